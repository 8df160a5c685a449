#include "device/watch.h"

#include <poll.h>

#include "core/background.h"

namespace tutti {

std::shared_ptr<DeviceWatch> DeviceWatch::start(std::function<void(RankGroup&)> look,
                                                std::function<void()> wait) {
  const std::shared_ptr<DeviceWatch> watch(new DeviceWatch(std::move(look)));
  run_in_background("tutti-watch", [watch, wait = std::move(wait)](int stop_fd) {
    pollfd stop{stop_fd, POLLIN, 0};
    do {
      wait();
    } while (poll(&stop, 1, 0) <= 0 && watch->look());
  });
  return watch;
}

void DeviceWatch::add(RankGroup& group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(&group);
}

void DeviceWatch::remove(RankGroup& group) {
  const std::lock_guard lock(mutex_);
  std::erase(groups_, &group);
}

void DeviceWatch::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
}

bool DeviceWatch::look() {
  const std::lock_guard lock(mutex_);
  if (!stopped_ && !groups_.empty()) look_(*groups_.front());
  return !stopped_;
}

}  // namespace tutti
