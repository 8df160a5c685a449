// What a Future and the engine share: whether a started call is over, and who wants to know.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/communicator.h"

namespace tutti {

struct Future::State {
  /// The call is over; with `why`, it has failed. Runs the callbacks.
  void complete(std::optional<Error> why);

  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;                    // constant from `done` on
  std::vector<std::function<void()>> callbacks;  // none from `done` on
};

}  // namespace tutti
