// Plays the controller manager: a robot of unit inertias under the plug-in, 5 ms per update. Usage:
// drive LINK UPDATES WAIT [TARGET: x z]. Prints per phase the largest command and what the diagnostics say.
#include <controller_interface/controller_interface.hpp>
#include <diagnostic_msgs/msg/diagnostic_array.hpp>

#include <cmath>
#include <cstdlib>
#include <geometry_msgs/msg/pose_stamped.hpp>
#include <memory>

controller_interface::ControllerInterface * make_controller();

int main(int argc, char ** argv)
{
  if (argc < 4) return 2;
  using controller_interface::CallbackReturn;
  std::unique_ptr<controller_interface::ControllerInterface> plugin(make_controller());
  if (plugin->on_init() != CallbackReturn::SUCCESS) return 3;
  auto & values = plugin->node->values;
  values["joints"] = std::vector<std::string>{"shoulder", "elbow"};
  values["link"] = std::string(argv[1]);
  values["effort"] = std::vector<double>{5.0, 5.0};
  values["stiffness"] = std::vector<double>{1.0, 1.0};
  values["damping"] = std::vector<double>{0.5, 0.5};
  values["max_age"] = 0.05;
  values["wait"] = std::atof(argv[3]);
  rclcpp_lifecycle::State state;
  if (plugin->on_configure(state) != CallbackReturn::SUCCESS) return 4;
  double x[4] = {0.3, -0.2, 0.0, 0.0}, u[2] = {0.0, 0.0};
  for (int k = 0; k < 2; ++k) plugin->command_interfaces_.emplace_back(&u[k]);
  for (int k = 0; k < 4; ++k) plugin->state_interfaces_.emplace_back(&x[k]);
  const auto commands = plugin->command_interface_configuration().names;
  const auto states = plugin->state_interface_configuration().names;
  std::printf("%s %s %s\n", commands[1].c_str(), states[1].c_str(), states[2].c_str());
  if (plugin->on_activate(state) != CallbackReturn::SUCCESS) return 5;
  if (argc > 5) {
    geometry_msgs::msg::PoseStamped target;
    target.pose.position.x = std::atof(argv[4]);
    target.pose.position.z = std::atof(argv[5]);
    const auto topic =
      std::static_pointer_cast<rclcpp::Subscription<geometry_msgs::msg::PoseStamped>>(
        plugin->node->subscribed.at("~/target"));
    target.header.frame_id = "camera";
    topic->callback(target);  // refused
    target.header.frame_id = "world";
    topic->callback(target);
  }
  double largest = 0.0;
  const int updates = std::atoi(argv[2]);
  for (int k = 0; k < updates; ++k) {
    if (k == updates / 2) x[3] = NAN;  // an encoder fails once
    (void)plugin->update(rclcpp::Time(0.005 * k), rclcpp::Duration(0.005));
    if (k == updates / 2) x[3] = 0.0;
    for (int i = 0; i < 2; ++i) {
      if (!std::isfinite(u[i])) return 6;
      largest = std::fmax(largest, std::fabs(u[i]));
    }
  }
  plugin->node->timer->callback();
  const auto & sent =
    std::static_pointer_cast<rclcpp::Publisher<diagnostic_msgs::msg::DiagnosticArray>>(
      plugin->node->publisher)
      ->sent;
  const auto & status = sent.back().status.back();
  std::printf("%.6f %.6f %.6f %d %s\n", u[0], u[1], largest, status.level, status.message.c_str());
  for (const auto & value : status.values)
    std::printf("%s=%s\n", value.key.c_str(), value.value.c_str());
  (void)plugin->on_deactivate(state);
  (void)plugin->on_cleanup(state);
  return 0;
}
