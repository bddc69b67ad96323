// Stands in for what a generated plug-in uses of rclcpp, with the signatures of ROS 2 Jazzy; ours.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#define RCLCPP_WARN(logger, ...) ((void)(logger), std::fprintf(stderr, __VA_ARGS__), std::fputc('\n', stderr))
#define RCLCPP_ERROR(logger, ...) ((void)(logger), std::fprintf(stderr, __VA_ARGS__), std::fputc('\n', stderr))

namespace builtin_interfaces::msg
{
struct Time
{
  std::int32_t sec = 0;
  std::uint32_t nanosec = 0;
};
}  // namespace builtin_interfaces::msg

namespace rclcpp
{
class Time
{
public:
  explicit Time(double s = 0.0) : s_(s) {}
  double seconds() const { return s_; }
  operator builtin_interfaces::msg::Time() const
  {
    return {static_cast<std::int32_t>(s_), 0};
  }

private:
  double s_;
};
class Duration
{
public:
  explicit Duration(double s) : s_(s) {}
  double seconds() const { return s_; }

private:
  double s_;
};
struct Logger
{
};
using Value = std::variant<double, std::string, std::vector<double>, std::vector<std::string>>;
class Parameter
{
public:
  explicit Parameter(Value value) : value_(std::move(value)) {}
  double as_double() const { return std::get<double>(value_); }
  std::string as_string() const { return std::get<std::string>(value_); }
  std::vector<double> as_double_array() const { return std::get<std::vector<double>>(value_); }
  std::vector<std::string> as_string_array() const
  {
    return std::get<std::vector<std::string>>(value_);
  }

private:
  Value value_;
};
template <typename Message>
class Publisher
{
public:
  using SharedPtr = std::shared_ptr<Publisher<Message>>;
  void publish(const Message & message) { sent.push_back(message); }
  std::vector<Message> sent;
};
class SubscriptionBase
{
public:
  using SharedPtr = std::shared_ptr<SubscriptionBase>;
  virtual ~SubscriptionBase() = default;
};
template <typename Message>
class Subscription : public SubscriptionBase
{
public:
  using SharedPtr = std::shared_ptr<Subscription<Message>>;
  std::function<void(const Message &)> callback;
};
class TimerBase
{
public:
  using SharedPtr = std::shared_ptr<TimerBase>;
  std::function<void()> callback;
};
}  // namespace rclcpp
