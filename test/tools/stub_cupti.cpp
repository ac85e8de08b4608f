// Stands in for libcupti: enabling the driver's domain makes three calls of the driver, each reported twice, when it
// begins and when it ends, as the real library does. A fourth, under way before, is reported at its end alone; a last
// one is made while the process ends.
#include <cstdint>

namespace {
struct CallbackData {
  int site;
  const char* function_name;
};
using Callback = void (*)(void*, std::uint32_t, std::uint32_t, const CallbackData*);

Callback subscribed = nullptr;

void report(int site, std::uint32_t function, const char* name) {
  CallbackData const data{site, name};
  subscribed(nullptr, 1, function, &data);
}

void call(std::uint32_t function, const char* name) {
  report(0, function, name);
  report(1, function, name);
}
}  // namespace

__attribute__((destructor)) void end() {
  if (subscribed != nullptr) call(3, "cuModuleUnload");
}

extern "C" {
int cuptiSubscribe(void** subscriber, Callback callback, void* /*userdata*/) {
  constexpr int kMultipleSubscribers = 39;
  if (subscribed != nullptr) return kMultipleSubscribers;
  subscribed = callback;
  *subscriber = &subscribed;
  return 0;
}

int cuptiEnableDomain(std::uint32_t enable, void* subscriber, int domain) {
  constexpr int kInvalidParameter = 1;
  if (enable != 1 || subscriber != &subscribed || domain != 1) return kInvalidParameter;
  report(1, 5, "cuCtxSynchronize");
  call(7, "cuEventSynchronize");
  call(9, "cuLaunchKernel");
  call(9, "cuLaunchKernel");
  return 0;
}

int cuptiUnsubscribe(void* subscriber) {
  constexpr int kInvalidParameter = 1;
  if (subscriber != &subscribed) return kInvalidParameter;
  subscribed = nullptr;
  return 0;
}
}
