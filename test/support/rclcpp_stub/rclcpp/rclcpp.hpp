// What docs/cpp.md takes of rclcpp, where ROS 2 from wheels has none. spin() plays lines of stdin to the node:
// "steered valid has_bearing azimuth elevation" publishes, "wait MS" lets time pass; each line ends with the timer's call.
#pragma once
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <efftam_ros/msg/target_velocity.hpp>

#define RCLCPP_INFO(logger, ...) (std::printf(__VA_ARGS__), std::printf("\n"))

namespace rclcpp {
using Message = efftam_ros::msg::TargetVelocity;
template <class T> struct Subscription { using SharedPtr = std::shared_ptr<Subscription<T>>; };
struct TimerBase { using SharedPtr = std::shared_ptr<TimerBase>; };
struct Node {
  explicit Node(const std::string&) {}
  template <class T, class F> std::shared_ptr<Subscription<T>> create_subscription(const std::string&, int, F take) {
    take_ = take;
    return std::make_shared<Subscription<T>>();
  }
  template <class F> TimerBase::SharedPtr create_wall_timer(std::chrono::milliseconds, F call) {
    call_ = call;
    return std::make_shared<TimerBase>();
  }
  int get_logger() { return 0; }
  std::function<void(Message::ConstSharedPtr)> take_;
  std::function<void()> call_;
};
inline void init(int, char**) {}
inline void shutdown() {}
inline void spin(std::shared_ptr<Node> node) {
  for (std::string line; std::getline(std::cin, line); node->call_()) {
    std::istringstream words(line);
    int milliseconds;
    if (line.rfind("wait ", 0) == 0 && words.ignore(5) >> milliseconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      continue;
    }
    auto message = std::make_shared<Message>();
    words >> message->steered >> message->valid >> message->has_bearing;
    words >> message->predicted_azimuth >> message->predicted_elevation;
    node->take_(message);
  }
}
}  // namespace rclcpp
