// Stands in for what a generated plug-in uses of controller_interface; ours.
#pragma once
#include <rclcpp_lifecycle/lifecycle_node.hpp>

namespace controller_interface
{
enum class return_type : std::uint8_t { OK = 0, ERROR = 1 };
enum class CallbackReturn : std::uint8_t { SUCCESS = 97, FAILURE = 98, ERROR = 99 };
enum class interface_configuration_type : std::uint8_t { ALL = 0, INDIVIDUAL = 1, NONE = 2 };
struct InterfaceConfiguration
{
  interface_configuration_type type;
  std::vector<std::string> names = {};
};
class LoanedStateInterface
{
public:
  explicit LoanedStateInterface(const double * value) : value_(value) {}
  double get_value() const { return *value_; }

private:
  const double * value_;
};
class LoanedCommandInterface
{
public:
  explicit LoanedCommandInterface(double * value) : value_(value) {}
  [[nodiscard]] bool set_value(double value)
  {
    *value_ = value;
    return true;
  }

private:
  double * value_;
};
class ControllerInterface
{
public:
  virtual ~ControllerInterface() = default;
  virtual CallbackReturn on_init() = 0;
  virtual InterfaceConfiguration command_interface_configuration() const = 0;
  virtual InterfaceConfiguration state_interface_configuration() const = 0;
  virtual CallbackReturn on_configure(const rclcpp_lifecycle::State &) = 0;
  virtual CallbackReturn on_activate(const rclcpp_lifecycle::State &) = 0;
  virtual CallbackReturn on_deactivate(const rclcpp_lifecycle::State &) = 0;
  virtual CallbackReturn on_cleanup(const rclcpp_lifecycle::State &) = 0;
  virtual return_type update(const rclcpp::Time &, const rclcpp::Duration &) = 0;
  std::shared_ptr<rclcpp_lifecycle::LifecycleNode> get_node() const { return node; }
  template <typename T>
  auto auto_declare(const std::string & name, const T & value)
  {
    return node->values.emplace(name, value), value;
  }
  std::shared_ptr<rclcpp_lifecycle::LifecycleNode> node =
    std::make_shared<rclcpp_lifecycle::LifecycleNode>();
  std::vector<LoanedCommandInterface> command_interfaces_;
  std::vector<LoanedStateInterface> state_interfaces_;
};
}  // namespace controller_interface
