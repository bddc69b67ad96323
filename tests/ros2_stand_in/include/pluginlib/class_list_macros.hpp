// Stands in for pluginlib: the class is made by a function; ours.
#pragma once
#define PLUGINLIB_EXPORT_CLASS(Class, Base) \
  Base * make_controller() { return new Class(); }
