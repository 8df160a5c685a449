// The progress thread of a communicator: runs started calls one after the other. It exists from the
// first start() on.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/communicator.h"
#include "comm/kept_call.h"

namespace tutti {

struct Future::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
};

class ProgressThread {
 public:
  using Run = std::function<void(const Call&)>;

  explicit ProgressThread(Run run);
  /// Finishes what was started.
  ~ProgressThread();
  std::shared_ptr<Future::State> start(const Call& call);
  /// Waits until nothing is left to run.
  void drain();

 private:
  struct Item {
    KeptCall call;
    std::shared_ptr<Future::State> state;
  };
  void work();

  Run run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tutti
