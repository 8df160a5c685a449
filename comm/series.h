// A series: several calls of one communicator, one after the other, as a job that advances without
// blocking. group() and the engine (engine.h) run series side by side. A communicator's collectives
// are one series; its messages to each peer are one, and its messages from each peer. Within a
// series calls keep their order; calls of different series have none.
//
// Calls whose caller waits for them, one by itself or those of a group(), are such series, too: the
// caller's thread runs them until they are over, or until another thread wants its turn while they
// have to wait. Then the engine's thread goes on with them.
#pragma once

#include <compare>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/impl.h"
#include "execute/host/condition.h"

namespace tutti {

/// A call that has done what it can do at once, and waits for a condition, as calls of windows do
/// (window.h). It is a series of its own, so it waits for no other call.
struct ConditionCall {
  ConditionCall(Communicator::Impl& impl, std::unique_ptr<Condition> awaited,
                std::chrono::nanoseconds timeout)
      : condition(std::move(awaited)), operation(*impl.group, impl.workspace) {
    binding.condition = condition.get();
    binding.timeout = timeout;
  }
  ConditionCall(const ConditionCall&) = delete;
  ConditionCall& operator=(const ConditionCall&) = delete;

  const std::unique_ptr<Condition> condition;
  Operation operation;
  Binding binding;
};

/// Names one of a communicator's series, to which a call belongs.
struct SeriesKey {
  int peer = -1;  // of messages; -1: the collectives
  bool sends = false;
  ConditionCall* condition = nullptr;  // instead: this call alone

  static SeriesKey of(const Call& call);
  /// What the series runs on.
  Operation& operation(Communicator::Impl& impl) const;
  friend auto operator<=>(const SeriesKey&, const SeriesKey&) = default;
};

class Series : public Job {
 public:
  Series(Communicator::Impl& impl, SeriesKey key)
      : Job(key.operation(impl), impl.policy), impl_(impl), condition_(key.condition) {}

  Communicator::Impl& impl() const { return impl_; }
  /// The call that waits for a condition; null: it is a series of others.
  ConditionCall* condition() const { return condition_; }
  /// A call that has begun and stands still.
  struct Begun {
    Operation* operation;
    PreparedCall* agreeing;
    Standstill standstill;
  };
  Begun begun() { return {&operation(), agreeing_, standstill()}; }
  /// Goes on with `call`, which another series of this key has begun.
  void go_on(const Call& call, const Begun& begun);
  /// Begins the first call, or the first call that has come since the series ended. False if there
  /// is nothing to run.
  bool start_first();

 protected:
  /// The next call, which lives until it is over; null if there is none. The previous call is over.
  virtual const Call* next_call() = 0;
  /// The call of next_call() is wrong. So it is over, and nothing of it has begun. Throws `error`
  /// if that ends the series too.
  virtual void refused(const Error& error) { throw error; }

 private:
  const Binding* next() override;
  PreparedCall* look_up();

  Communicator::Impl& impl_;
  ConditionCall* const condition_;
  const Call* call_ = nullptr;
  PreparedCall* agreeing_ = nullptr;  // of `call_`, while its ranks agree on windows
};

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
