// Turns: threads that share an object use it one after the other, in the order in which they come.
// Most objects are used by one thread alone. So until a second one comes, the turns of the first
// one cost a few loads and stores (asymmetric_fence.h). From then on each turn costs a locked
// instruction.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/asymmetric_fence.h"
#include "core/wait.h"

namespace tutti {

class Turns {
 public:
  /// `wake`: makes the thread that has its turn look at wanted(), where it sleeps in a wait. A
  /// thread that has to wait for its turn calls it once. `patience`: until when a thread waits that
  /// has to wait from now on.
  Turns(std::function<void()> wake, std::function<Deadline()> patience);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// Waits for this thread's turn. Throws Error(invalid_usage) where it does not come until
  /// `deadline`, or this thread has it already, as a signal's handler may find it; Error(aborted)
  /// where this thread must_stop() meanwhile.
  void lock(Deadline deadline = Deadline::max()) {
    const Thread me = this_thread();
    // acquire: this thread's number may have been that of another one, which has ended.
    if (first_.load(std::memory_order_relaxed) == me && !shared_.load(std::memory_order_relaxed) &&
        !busy_.load(std::memory_order_acquire)) {
      busy_.store(true, std::memory_order_relaxed);
      light_fence();
      if (!shared_.load(std::memory_order_relaxed)) return;
      busy_.store(false, std::memory_order_release);
      tell();
    }
    lock_as_all(me, deadline);
  }
  /// Ends this thread's turn. release: who has the next one sees what was done in this one.
  void unlock() {
    if (shared_.load(std::memory_order_relaxed)) return unlock_as_all();
    busy_.store(false, std::memory_order_release);
    light_fence();  // the second thread has a heavy one between `shared_` and its look at `busy_`
    if (shared_.load(std::memory_order_relaxed)) tell();
  }
  /// Whether a thread has its turn, or waits for it.
  bool are_taken() const {
    return busy_.load(std::memory_order_acquire) ||
           holder_.load(std::memory_order_acquire) != nullptr ||
           wanted_.load(std::memory_order_acquire) != 0;
  }
  /// How many threads wait for their turns. A thread that has its turn, and has to wait for
  /// something else, looks here now and then.
  const std::atomic<int>& wanted() const { return wanted_; }

 private:
  using Thread = const void*;  // a number of a thread, unique among those that live

  static Thread this_thread() { return __builtin_thread_pointer(); }
  void lock_as_all(Thread me, Deadline deadline);
  void unlock_as_all();
  void wait(Thread me, Deadline deadline);
  void tell();

  std::atomic<Thread> first_{nullptr};   // null: none has come yet
  std::atomic<bool> shared_{false};      // another one has come
  std::atomic<bool> busy_{false};        // the first one has its turn, as long as nobody else came
  std::atomic<Thread> holder_{nullptr};  // has its turn, from then on
  std::atomic<int> wanted_{0};           // as many as the queue has
  const std::function<void()> wake_;
  const std::function<Deadline()> patience_;
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace tutti
