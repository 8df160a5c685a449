// A series: several calls of one communicator, one after the other, as a job that advances without
// blocking. group() and the engine (engine.h) run series side by side. A communicator's collectives
// are one series; its messages to each peer are one, and its messages from each peer. Within a
// series calls keep their order; calls of different series have none.
#pragma once

#include <compare>

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

}  // namespace tutti
