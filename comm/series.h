// Several calls of one communicator, one after the other, as a job that advances without blocking:
// what group() runs side by side, and the engine (engine.h). A communicator's collectives are a
// series, and so are its messages to each peer, and those from each. Within a series calls keep
// their order; different ones have none.
#pragma once

#include <compare>

#include "comm/impl.h"

namespace tutti {

/// Which of a communicator's series a call belongs to.
struct SeriesKey {
  int peer = -1;  // of messages; -1: the collectives
  bool sends = false;

  static SeriesKey of(const Call& call);
  /// What the series runs on.
  Operation& operation(Communicator::Impl& impl) const;
  friend auto operator<=>(const SeriesKey&, const SeriesKey&) = default;
};

class Series : public Job {
 public:
  Series(Communicator::Impl& impl, SeriesKey key)
      : Job(key.operation(impl), impl.policy), impl_(impl) {}

  Communicator::Impl& impl() const { return impl_; }
  /// A call that has begun, and stands still.
  struct Begun {
    Operation* operation;
    PreparedCall* agreeing;
    Standstill standstill;
  };
  Begun begun() { return {&operation(), agreeing_, standstill()}; }
  /// Goes on with what another series of this key has begun for `call`.
  void go_on(const Call& call, const Begun& begun);
  /// Begins the first call, or the first of those that have come since the series had ended. False
  /// when there is nothing to run.
  bool start_first();

 protected:
  /// The next call, which lives until it is over; null when there is none. The one before it is
  /// over.
  virtual const Call* next_call() = 0;
  /// What next_call() has returned is wrong, so it is over, and nothing of it has begun. Throws
  /// `error` where that ends the series, too.
  virtual void refused(const Error& error) { throw error; }

 private:
  const Binding* next() override;
  PreparedCall* look_up();

  Communicator::Impl& impl_;
  const Call* call_ = nullptr;
  PreparedCall* agreeing_ = nullptr;  // of `call_`, while its ranks agree on windows
};

}  // namespace tutti
