#include "core/turns.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "core/background.h"
#include "core/error.h"
#include "core/fork.h"

namespace tutti {

struct Turns::Queue {
  const std::uint32_t made_in = process_generation();
  std::mutex mutex;  // of:
  std::deque<Thread> threads;
  std::condition_variable changed;
};

Turns::Turns(std::function<void()> wake, std::function<Deadline()> patience)
    : wake_(std::move(wake)), patience_(std::move(patience)), queue_(std::make_shared<Queue>()) {}

Turns::~Turns() {
  // In a child of fork() the threads that wait there do not exist.
  if (queue_->made_in != process_generation()) abandon(std::move(queue_));
}

void Turns::lock_as_all(Thread me, Deadline deadline) {
  Thread first = first_.load(std::memory_order_relaxed);
  if (first == nullptr && first_.compare_exchange_strong(first, me)) return lock(deadline);
  const bool is_busy = busy_.load(std::memory_order_relaxed);
  if (holder_.load(std::memory_order_relaxed) == me || (first == me && is_busy)) {
    throw Error(ErrorCode::invalid_usage,
                "a signal's handler calls what its thread was calling when the signal came");
  }
  // acquire: where the last waiting thread has left, it has done so after its heavy fence, and the
  // first thread's turn is seen.
  if (shared_.load(std::memory_order_acquire) && wanted_.load(std::memory_order_acquire) == 0 &&
      !busy_.load(std::memory_order_acquire)) {
    Thread none = nullptr;
    if (holder_.compare_exchange_strong(none, me, std::memory_order_acquire)) return;
  }
  wait(me, deadline);
}

void Turns::unlock_as_all() {
  // Nobody else has it: the first thread has, from before there was a second one, or `holder_`.
  const bool is_first = holder_.load(std::memory_order_relaxed) == nullptr;
  is_first ? busy_.store(false) : holder_.store(nullptr);
  // Before the look, as a waiting thread has one between `wanted_` and its look at these.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (wanted_.load(std::memory_order_relaxed) != 0) tell();
}

void Turns::wait(Thread me, Deadline deadline) {
  deadline = std::min(deadline, patience_());
  Queue& queue = *queue_;
  std::unique_lock held(queue.mutex);
  queue.threads.push_back(me);
  wanted_.fetch_add(1);
  if (shared_.exchange(true)) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    // Once, as joining takes milliseconds where there are several threads.
    join_heavy_fences();
    heavy_fence();
  }
  const auto is_mine = [&] {
    Thread none = nullptr;
    return queue.threads.front() == me && !busy_.load(std::memory_order_acquire) &&
           holder_.compare_exchange_strong(none, me, std::memory_order_acquire);
  };
  bool has_it = is_mine();
  if (!has_it) wake_();
  for (bool stops = false; !has_it && !stops; has_it = is_mine()) {
    // A thread that may be interrupted sleeps for moments; without an end, it needs no timer.
    const Deadline next = Interruptible::any() ? deadline_after(kMoment) : deadline;
    if (std::min(next, deadline) == Deadline::max()) {
      queue.changed.wait(held);
    } else {
      queue.changed.wait_until(held, std::min(next, deadline));
    }
    held.unlock();  // whoever is asked may need what a thread holds that comes here
    stops = std::chrono::steady_clock::now() >= deadline || must_stop();
    held.lock();
  }
  std::erase(queue.threads, me);
  wanted_.fetch_sub(1);
  held.unlock();
  if (has_it) return;
  queue.changed.notify_all();  // another one may be the first of the queue now
  throw_if_stopping();
  throw Error(ErrorCode::invalid_usage,
              "another thread has the turn at this communicator, and keeps it for long: it makes a "
              "communicator or a window of it");
}

void Turns::tell() {
  { const std::lock_guard held(queue_->mutex); }  // a thread that looks sleeps by now, or sees it
  queue_->changed.notify_all();
}

}  // namespace tutti
