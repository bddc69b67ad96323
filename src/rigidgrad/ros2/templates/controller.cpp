// @MARK@
#include "@PACKAGE@/controller.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <pluginlib/class_list_macros.hpp>

#include "@HEADER@"

namespace @PACKAGE@
{

using controller_interface::CallbackReturn;
using controller_interface::InterfaceConfiguration;
using controller_interface::interface_configuration_type;
using controller_interface::return_type;

namespace
{
std::string text(std::uint64_t value) { return std::to_string(value); }
}  // namespace

CallbackReturn Controller::on_init()
{
  try {
    auto_declare<std::vector<std::string>>("joints", std::vector<std::string>());
    auto_declare<std::vector<double>>("effort", std::vector<double>());
    auto_declare<std::vector<double>>("stiffness", std::vector<double>());
    auto_declare<std::vector<double>>("damping", std::vector<double>());
    auto_declare<double>("max_age", max_age_);
    source_.declare([this](const char * name, auto value) {
      auto_declare<decltype(value)>(name, value);
    });
  } catch (const std::exception & error) {
    RCLCPP_ERROR(get_node()->get_logger(), "parameters cannot be declared: %s", error.what());
    return CallbackReturn::ERROR;
  }
  return CallbackReturn::SUCCESS;
}

InterfaceConfiguration Controller::command_interface_configuration() const
{
  InterfaceConfiguration wanted{interface_configuration_type::INDIVIDUAL, {}};
  for (const auto & joint : joints_) wanted.names.push_back(joint + "/effort");
  return wanted;
}

InterfaceConfiguration Controller::state_interface_configuration() const
{
  InterfaceConfiguration wanted{interface_configuration_type::INDIVIDUAL, {}};
  for (const auto & joint : joints_) wanted.names.push_back(joint + "/position");
  for (const auto & joint : joints_) wanted.names.push_back(joint + "/velocity");
  return wanted;
}

CallbackReturn Controller::on_configure(const rclcpp_lifecycle::State &)
{
  const auto node = get_node();
  joints_ = node->get_parameter("joints").as_string_array();
  effort_ = node->get_parameter("effort").as_double_array();
  stiffness_ = node->get_parameter("stiffness").as_double_array();
  damping_ = node->get_parameter("damping").as_double_array();
  max_age_ = node->get_parameter("max_age").as_double();
  const std::size_t n = static_cast<std::size_t>(N);
  if (effort_.empty()) effort_.assign(n, std::numeric_limits<double>::infinity());
  if (joints_.size() != n || effort_.size() != n || stiffness_.size() != n || damping_.size() != n) {
    RCLCPP_ERROR(
      node->get_logger(), "joints, effort, stiffness and damping need %d entries, in the model's order",
      N);
    return CallbackReturn::ERROR;
  }
  if (!(max_age_ > 0.0)) {
    RCLCPP_ERROR(node->get_logger(), "max_age is a time above zero");
    return CallbackReturn::ERROR;
  }
  const std::string trouble = source_.open(*node);
  if (!trouble.empty()) {
    RCLCPP_ERROR(node->get_logger(), "%s", trouble.c_str());
    return CallbackReturn::ERROR;
  }
  diagnostics_ = node->create_publisher<diagnostic_msgs::msg::DiagnosticArray>("/diagnostics", 10);
  timer_ = node->create_wall_timer(std::chrono::seconds(1), [this]() { report(); });
  return CallbackReturn::SUCCESS;
}

CallbackReturn Controller::on_activate(const rclcpp_lifecycle::State &)
{
  any_ = false;
  holding_ = false;
  source_.reset();
  return read_state() ? CallbackReturn::SUCCESS : CallbackReturn::ERROR;
}

CallbackReturn Controller::on_deactivate(const rclcpp_lifecycle::State &)
{
  return CallbackReturn::SUCCESS;
}

CallbackReturn Controller::on_cleanup(const rclcpp_lifecycle::State &)
{
  timer_.reset();
  diagnostics_.reset();
  source_.close();
  return CallbackReturn::SUCCESS;
}

/// The state in the model's order; false, and what was before, if a number is none.
bool Controller::read_state()
{
  double x[2 * N];
  for (std::size_t k = 0; k < 2 * static_cast<std::size_t>(N); ++k) {
    x[k] = state_interfaces_[k].get_value();
    if (!std::isfinite(x[k])) return false;
  }
  std::copy(x, x + 2 * N, x_);
  return true;
}

/// Gravity compensation, springs to the posture in which holding began, and dampers.
void Controller::hold(double)
{
  if (!holding_) std::copy(x_, x_ + N, held_);
  holding_ = true;
  @PREFIX@_gravity_torque(x_, u_);
  for (std::size_t k = 0; k < static_cast<std::size_t>(N); ++k)
    u_[k] += stiffness_[k] * (held_[k] - x_[k]) - damping_[k] * x_[k + N];
}

return_type Controller::update(const rclcpp::Time & time, const rclcpp::Duration & period)
{
  const double now = time.seconds();
  double answer[N], since = now;
  const bool seen = read_state();
  ++updates_;
  if (!seen) ++invalid_;
  const bool got = source_.ask(now, seen ? x_ : nullptr, answer, since);
  if (got && std::all_of(answer, answer + N, [](double u) { return std::isfinite(u); })) {
    std::copy(answer, answer + N, answer_);
    answered_ = since;  // of the state that it answers
    any_ = true;
    ++answers_;
  } else {
    ++misses_;
  }
  const double age = now - answered_;
  if (any_ && age >= 0.0 && age <= max_age_) {
    std::copy(answer_, answer_ + N, u_);
    holding_ = false;
  } else {
    ++fallbacks_;
    hold(period.seconds());
  }
  for (std::size_t k = 0; k < static_cast<std::size_t>(N); ++k)
    (void)command_interfaces_[k].set_value(std::clamp(u_[k], -effort_[k], effort_[k]));
  return return_type::OK;
}

/// Once a second, outside of the real-time thread.
void Controller::report()
{
  const std::uint64_t counts[5] = {
    updates_.load(), answers_.load(), misses_.load(), fallbacks_.load(), invalid_.load()};
  const char * names[5] = {"updates", "answers", "deadline misses", "fallbacks", "invalid states"};
  diagnostic_msgs::msg::DiagnosticArray array;
  diagnostic_msgs::msg::DiagnosticStatus status;
  status.name = "@PACKAGE@: controller";
  status.hardware_id = "@ROBOT@";
  const bool fell = counts[3] > reported_[3], missed = counts[2] > reported_[2];
  bool grave = false;
  const char * found = source_.finding(grave);
  status.level = fell || grave     ? diagnostic_msgs::msg::DiagnosticStatus::ERROR
                 : missed || found ? diagnostic_msgs::msg::DiagnosticStatus::WARN
                                   : diagnostic_msgs::msg::DiagnosticStatus::OK;
  status.message = found    ? found
                   : fell   ? "answers are too old; the posture is held"
                   : missed ? "some answers were late"
                            : "controlled";
  for (int k = 0; k < 5; ++k) {
    diagnostic_msgs::msg::KeyValue value;
    value.key = names[k];
    value.value = text(counts[k]);
    status.values.push_back(value);
    reported_[k] = counts[k];
  }
  for (const auto & count : source_.counts()) {
    diagnostic_msgs::msg::KeyValue value;
    value.key = count.name;
    value.value = text(count.value);
    status.values.push_back(value);
  }
  array.header.stamp = get_node()->now();
  array.status.push_back(status);
  diagnostics_->publish(array);
}

}  // namespace @PACKAGE@

PLUGINLIB_EXPORT_CLASS(@PACKAGE@::Controller, controller_interface::ControllerInterface)
