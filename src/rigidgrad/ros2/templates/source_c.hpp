// @MARK@
#pragma once

#include <@PLANNER@.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <geometry_msgs/msg/pose_stamped.hpp>
#include <rclcpp/rclcpp.hpp>
#include <rclcpp_lifecycle/lifecycle_node.hpp>

namespace @PACKAGE@
{

/// Where controls come from: the controller of the task as generated C, in the update itself.
class Source
{
public:
  template <typename Declare>
  void declare(const Declare &)
  {
  }

  /// What is wrong, or nothing. All memory is taken here.
  std::string open(rclcpp_lifecycle::LifecycleNode & node)
  {
    memory_.assign(@PLANNER@_mpc_memory(), 0);
    mpc_ = @PLANNER@_mpc_init(memory_.data(), memory_.size());
    if (!mpc_) return "the controller has no memory";
    @PLANNER@_mpc_set_clock(mpc_, seconds, nullptr);
    const auto logger = node.get_logger();
    targets_ = node.create_subscription<geometry_msgs::msg::PoseStamped>(
      "~/target", 1, [this, logger](const geometry_msgs::msg::PoseStamped & message) {
        if (!aim(message)) RCLCPP_WARN(logger, "a target was refused: @TARGETS@");
      });
    return "";
  }

  void close() { targets_.reset(); }

  /// Forgets all plans.
  void reset()
  {
    if (mpc_) @PLANNER@_mpc_reset(mpc_);
  }

  /// The control for a state, which is nullptr where none was measured.
  bool ask(double now, const double * x, double * u, double & since)
  {
    {
      const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
      if (lock.owns_lock() && fresh_) {  // else with the next update
@WRITE@        fresh_ = false;
        ++aimed_;
      }
    }
    @PLANNER@_mpc_step(mpc_, x, now, u);
    const @PLANNER@_counts * c = @PLANNER@_mpc_counts(mpc_);
    const long found[KINDS] = {c->plans, c->late, c->kept, c->cold, c->missing, c->clock, c->held, c->violated};
    for (int k = 0; k < KINDS; ++k) counts_[k] = static_cast<std::uint64_t>(found[k]);
    since = now;
    return true;
  }

  struct Count
  {
    const char * name;
    std::uint64_t value;
  };

  /// For the diagnostics, once a second: what there is to say, whether it is grave, and counts.
  const char * finding(bool & grave)
  {
    static const char * const said[KINDS] = {
      nullptr, "plans took longer than a period", "plans failed; the last one goes on",
      "plans were made from a posture", "states were missing", "times went back",
      "no plan; the posture is held", "plans leave the limits"};
    const char * message = nullptr;
    grave = false;
    for (int k = 0; k < KINDS; ++k) {
      const std::uint64_t now = counts_[k];
      if (now > reported_[k] && said[k]) message = said[k];
      grave = grave || (k >= GRAVE && now > reported_[k]);
      reported_[k] = now;
    }
    return message;
  }
  std::vector<Count> counts() const
  {
    return {{"plans", counts_[0]}, {"late", counts_[1]}, {"kept", counts_[2]}, {"cold", counts_[3]},
      {"missing", counts_[4]}, {"clock", counts_[5]}, {"held", counts_[6]}, {"violated", counts_[7]},
      {"targets", aimed_}, {"targets refused", refused_}};
  }

private:
  static constexpr int KINDS = 8, GRAVE = 6;  ///< counts from the sixth on are errors

  static double seconds(void *)
  {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
  }

  /// Takes a target in the robot's base or the world; whether it is used.
  bool aim(const geometry_msgs::msg::PoseStamped & message)
  {
    const std::string & frame = message.header.frame_id;
    const auto & p = message.pose.position;
    bool known = false;
    for (const char * name : {@FRAME_NAMES@}) known = known || frame == name;
    if (!@AIMED@ || !known || !std::isfinite(p.x + p.y + p.z)) {
      ++refused_;
      return false;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    target_[0] = p.x;
    target_[1] = p.y;
    target_[2] = p.z;
    fresh_ = true;
    return true;
  }

  std::vector<unsigned char> memory_;
  @PLANNER@_mpc * mpc_ = nullptr;
  rclcpp::Subscription<geometry_msgs::msg::PoseStamped>::SharedPtr targets_;
  std::mutex mutex_;  // of the target; an update never waits for it
  double target_[3] = {};
  bool fresh_ = false;
  std::atomic<std::uint64_t> counts_[KINDS] = {}, aimed_{0}, refused_{0};
  std::uint64_t reported_[KINDS] = {};
};

}  // namespace @PACKAGE@
