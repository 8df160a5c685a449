// Jobs that may block, off the thread of Tutti's engine: callbacks of futures are the user's, and
// may wait for other futures; hooks may write files.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace tutti::pytorch {

/// Runs `job` soon, on a thread that may block.
void run_elsewhere(std::function<void()> job);

/// Jobs that run elsewhere, one at a time, in their order.
class InOrder {
 public:
  void run(std::function<void()> job);

 private:
  struct Jobs {
    std::mutex mutex;
    std::deque<std::function<void()>> waiting;
    bool running = false;
  };
  std::shared_ptr<Jobs> jobs_ = std::make_shared<Jobs>();  // outlives this object
};

}  // namespace tutti::pytorch
