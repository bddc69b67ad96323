// @MARK@
#pragma once

#include <rigidgrad_link.h>

#include <cstdint>
#include <string>
#include <vector>

#include <rclcpp_lifecycle/lifecycle_node.hpp>

namespace @PACKAGE@
{

/// Where controls come from: a planner in another process, through shared memory.
class Source
{
public:
  ~Source() { close(); }

  template <typename Declare>
  void declare(const Declare & parameter)
  {
    parameter("link", std::string("@ROBOT@"));
    parameter("wait", 0.0);
  }

  /// Reads the parameters; what is wrong, or nothing.
  std::string open(rclcpp_lifecycle::LifecycleNode & node)
  {
    const std::string name = node.get_parameter("link").as_string();
    wait_ = node.get_parameter("wait").as_double();
    if (!(wait_ >= 0.0)) return "wait is not negative";
    close();
    const int trouble = rg_link_open(&link_, name.c_str(), RG_LINK_ROBOT, @STATES@, @JOINTS@, 64);
    if (trouble != RG_LINK_OK) return "link " + name + ": " + rg_link_error(trouble);
    open_ = true;
    return "";
  }

  void close()
  {
    if (open_) rg_link_close(&link_);
    open_ = false;
  }

  void reset() {}

  /// A control for a state, which is nullptr where none was measured; false without one. `since`
  /// becomes the time of the state that it answers.
  bool ask(double now, const double * x, double * u, double & since)
  {
    rg_message message;
    int got = 0;
    if (x && wait_ > 0.0) {
      got = rg_link_exchange(&link_, now, x, &message, u, static_cast<std::int64_t>(1e9 * wait_));
    } else {
      if (x) rg_link_send(&link_, now, x);
      got = rg_link_newest(&link_, &message, u);
    }
    if (got == 1) since = message.time;
    return got == 1;
  }

  struct Count
  {
    const char * name;
    std::uint64_t value;
  };

  /// For the diagnostics, once a second: what there is to say, whether it is grave, and counts.
  const char * finding(bool & grave)
  {
    grave = false;
    return rg_link_connected(&link_) ? nullptr : "no controller is connected; the posture is held";
  }
  std::vector<Count> counts() const { return {}; }

private:
  rg_link link_{};
  bool open_ = false;
  double wait_ = 0.0;  // s that an update waits for the answer to its own state
};

}  // namespace @PACKAGE@
