// Stands in for diagnostic_msgs; ours.
#pragma once
#include <rclcpp/rclcpp.hpp>

namespace diagnostic_msgs::msg
{
struct KeyValue
{
  std::string key, value;
};
struct DiagnosticStatus
{
  static constexpr std::uint8_t OK = 0, WARN = 1, ERROR = 2;
  std::uint8_t level = 0;
  std::string name, message, hardware_id;
  std::vector<KeyValue> values;
};
struct DiagnosticArray
{
  struct
  {
    builtin_interfaces::msg::Time stamp;
  } header;
  std::vector<DiagnosticStatus> status;
};
}  // namespace diagnostic_msgs::msg
