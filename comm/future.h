// The state that a Future and the engine share: whether a started call is over, and its callbacks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/fork.h"
#include "core/wait.h"
#include "transport/host/control_block.h"

namespace tutti {

class Engine;

struct Future::State {
  /// The call is over; with `why`, it has failed. Runs the callbacks.
  void complete(std::optional<Error> why);
  /// As Future::wait_until().
  bool wait(Deadline deadline);
  /// Throws in a child of fork(), which does not have the thread that would complete it.
  void check_process() const;

  // None: it is over.
  std::shared_ptr<CallersWaits> callers;  // of the rank: a caller that waits for the call says so
  std::shared_ptr<Engine> engine;         // runs it
  const std::uint32_t made_in = process_generation();
  std::atomic<bool> done{false};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;                    // constant from `done` on
  std::vector<std::function<void()>> callbacks;  // none from `done` on
};

}  // namespace tutti
