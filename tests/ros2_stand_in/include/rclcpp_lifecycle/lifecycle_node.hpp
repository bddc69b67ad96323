// Stands in for what a generated plug-in uses of rclcpp_lifecycle; ours.
#pragma once
#include <rclcpp/rclcpp.hpp>

namespace rclcpp_lifecycle
{
class State
{
};
class LifecycleNode
{
public:
  rclcpp::Logger get_logger() const { return {}; }
  rclcpp::Time now() const { return rclcpp::Time(0.0); }
  rclcpp::Parameter get_parameter(const std::string & name) const
  {
    return rclcpp::Parameter(values.at(name));
  }
  template <typename Message>
  std::shared_ptr<rclcpp::Publisher<Message>> create_publisher(const std::string &, int)
  {
    auto made = std::make_shared<rclcpp::Publisher<Message>>();
    publisher = made;
    return made;
  }
  template <typename Rep, typename Period, typename Callback>
  rclcpp::TimerBase::SharedPtr create_wall_timer(
    std::chrono::duration<Rep, Period>, Callback callback)
  {
    timer = std::make_shared<rclcpp::TimerBase>();
    timer->callback = callback;
    return timer;
  }
  template <typename Message, typename Callback>
  std::shared_ptr<rclcpp::Subscription<Message>> create_subscription(
    const std::string & topic, int, Callback callback)
  {
    auto made = std::make_shared<rclcpp::Subscription<Message>>();
    made->callback = callback;
    subscribed[topic] = made;
    return made;
  }
  std::map<std::string, rclcpp::SubscriptionBase::SharedPtr> subscribed;
  std::map<std::string, rclcpp::Value> values;
  std::shared_ptr<void> publisher;
  rclcpp::TimerBase::SharedPtr timer;
};
}  // namespace rclcpp_lifecycle
