// Stands in for geometry_msgs; ours.
#pragma once
#include <rclcpp/rclcpp.hpp>

namespace geometry_msgs::msg
{
struct PoseStamped
{
  struct
  {
    builtin_interfaces::msg::Time stamp;
    std::string frame_id;
  } header;
  struct
  {
    struct
    {
      double x = 0.0, y = 0.0, z = 0.0;
    } position;
    struct
    {
      double x = 0.0, y = 0.0, z = 0.0, w = 1.0;
    } orientation;
  } pose;
};
}  // namespace geometry_msgs::msg
