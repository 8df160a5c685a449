// Calls whose caller waits for them: one by itself, or those of a group(). The caller's thread runs
// them, as series, until they are over, or until another thread wants its turn while they have to
// wait. Then the engine's thread goes on with them.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/series.h"

namespace tutti {

/// A call, and the one after it in its series.
struct ListedCall {
  const Call* call = nullptr;
  ListedCall* next = nullptr;
};

class CallersSeries final : public Series {
 public:
  /// `waiting`: that of the key.
  CallersSeries(Communicator::Impl& impl, SeriesKey key, std::shared_ptr<ConditionCall> waiting)
      : Series(impl, key), waiting_(std::move(waiting)) {}

  /// `call` outlives this.
  void add(ListedCall& call) {
    (last_ != nullptr ? last_->next : next_) = &call;
    last_ = &call;
  }
  /// Whether a call was wrong, so that nothing of it has begun.
  bool was_refused() const { return refused_; }
  /// Starts what is left of it, which stands still, or has not begun; adds the futures to `moved`.
  void move_to_engine(std::vector<Future>& moved);

 private:
  const Call* next_call() override {
    current_ = next_;
    if (current_ == nullptr) return nullptr;
    next_ = current_->next;
    return current_->call;
  }
  void refused(const Error& error) override {
    refused_ = true;
    throw error;
  }

  std::shared_ptr<ConditionCall> waiting_;  // condition()
  ListedCall* current_ = nullptr;
  ListedCall* next_ = nullptr;
  ListedCall* last_ = nullptr;
  bool refused_ = false;
};

/// Runs started CallersSeries in this thread's turns at all their communicators, as long as none of
/// these is `wanted`; the rest moves to the engine.
void run_or_move(std::span<Job*> series, Wanted wanted, std::vector<Future>& moved);
/// Ends this thread's turn, and waits for what has moved.
void wait_without(Communicator::Impl::Turn& turn, Communicator::Impl& impl,
                  std::span<Future> moved);
/// Waits for what has moved, of these communicators, for which this thread counts as Blocked.
/// Throws the first error that it sees.
void wait_for_moved(std::span<Future> moved, std::span<Communicator::Impl* const> impls);

}  // namespace tutti
