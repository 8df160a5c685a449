#include "parallel/reshard/transfer.h"

#include <tutti/core/background.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::parallel::reshard {

class Transfer::State {
 public:
  explicit State(std::function<void()> body) : body_(std::move(body)) {
    thread_ = start_thread("tutti-reshard", [this] { work(); });
  }
  ~State() { thread_.join(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool ready() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  bool wait_until_done(std::chrono::nanoseconds longest) {
    std::unique_lock lock(mutex_);
    if (longest != std::chrono::nanoseconds::max()) {
      return changed_.wait_for(lock, longest, [&] { return done_; });
    }
    changed_.wait(lock, [&] { return done_; });
    return true;
  }
  void throw_error() {
    if (const std::exception_ptr error = std::exchange(error_, nullptr)) {
      std::rethrow_exception(error);
    }
  }

 private:
  void work() {
    std::exception_ptr error;
    try {
      body_();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    done_ = true;
    changed_.notify_all();
  }

  const std::function<void()> body_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // the last: it uses the others
};

Transfer::Transfer(std::shared_ptr<State> state) : state_(std::move(state)) {}
Transfer& Transfer::operator=(Transfer&& other) noexcept {
  if (this == &other) return *this;
  if (state_) state_->wait_until_done(std::chrono::nanoseconds::max());
  state_ = std::move(other.state_);
  return *this;
}
Transfer::~Transfer() {
  if (state_) state_->wait_until_done(std::chrono::nanoseconds::max());
}

bool Transfer::ready() const { return !state_ || state_->ready(); }

void Transfer::wait() { wait_for(std::chrono::nanoseconds::max()); }

bool Transfer::wait_for(std::chrono::nanoseconds longest) {
  if (!state_) return true;
  if (!state_->wait_until_done(longest)) return false;
  state_->throw_error();
  return true;
}

std::shared_ptr<Transfer::State> start_transfer(std::shared_ptr<Transfer::State> before,
                                                std::function<void()> body) {
  if (before) before->wait_until_done(std::chrono::nanoseconds::max());
  return std::make_shared<Transfer::State>(std::move(body));
}

}  // namespace tutti::parallel::reshard
