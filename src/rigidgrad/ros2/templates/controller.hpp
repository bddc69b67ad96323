// @MARK@
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <controller_interface/controller_interface.hpp>
#include <diagnostic_msgs/msg/diagnostic_array.hpp>
#include <rclcpp/rclcpp.hpp>

#include "@PACKAGE@/source.hpp"

namespace @PACKAGE@
{

/// Applies the controls of its source to the robot. Where none is fresh, it holds the posture that
/// the robot has then by its own gravity compensation and joint springs and dampers.
class Controller : public controller_interface::ControllerInterface
{
public:
  controller_interface::CallbackReturn on_init() override;
  controller_interface::InterfaceConfiguration command_interface_configuration() const override;
  controller_interface::InterfaceConfiguration state_interface_configuration() const override;
  controller_interface::CallbackReturn on_configure(
    const rclcpp_lifecycle::State & previous) override;
  controller_interface::CallbackReturn on_activate(
    const rclcpp_lifecycle::State & previous) override;
  controller_interface::CallbackReturn on_deactivate(
    const rclcpp_lifecycle::State & previous) override;
  controller_interface::CallbackReturn on_cleanup(
    const rclcpp_lifecycle::State & previous) override;
  controller_interface::return_type update(
    const rclcpp::Time & time, const rclcpp::Duration & period) override;

  static constexpr int N = @JOINTS@;  ///< joints

private:
  bool read_state();
  void hold(double period);
  void report();

  std::vector<std::string> joints_;
  std::vector<double> effort_, stiffness_, damping_;
  double max_age_ = 0.01;  ///< s: older answers do not count

  Source source_;
  double x_[2 * N] = {}, u_[N] = {}, answer_[N] = {}, held_[N] = {};
  double answered_ = 0.0;  ///< the time of the state that answer_ rests upon
  bool any_ = false;       ///< whether there is an answer
  bool holding_ = true;

  std::atomic<std::uint64_t> updates_{0}, answers_{0}, misses_{0}, fallbacks_{0}, invalid_{0};
  std::uint64_t reported_[5] = {};
  rclcpp::Publisher<diagnostic_msgs::msg::DiagnosticArray>::SharedPtr diagnostics_;
  rclcpp::TimerBase::SharedPtr timer_;
};

}  // namespace @PACKAGE@
