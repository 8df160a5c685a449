// The started calls of one communicator, which the engine runs.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/engine.h"
#include "comm/future.h"
#include "comm/series.h"

namespace tutti {

struct StartedCall : Future::State {
  explicit StartedCall(const Call& call) : kept(call) {}
  explicit StartedCall(std::shared_ptr<ConditionCall> call)
      : kept(Call{}), condition(std::move(call)) {}
  SeriesKey key() const {
    return condition ? SeriesKey{-1, false, condition.get()} : SeriesKey::of(kept.call());
  }
  KeptCall kept;
  std::shared_ptr<ConditionCall> condition;  // instead of `kept`
  std::optional<Series::Begun> begun;        // on another thread
  std::atomic<bool> withdrawn{false};
};
using StartedCallPointer = std::shared_ptr<StartedCall>;

/// The started calls of a series, with their futures.
class StartedSeries final : public Series {
 public:
  StartedSeries(StartedCalls& owner, Communicator::Impl& impl, SeriesKey key)
      : Series(impl, key), owner_(owner) {}

  StartedCalls& owner() const { return owner_; }
  bool is_empty() const { return calls_.empty(); }
  void add(const StartedCallPointer& call) {
    calls_.push_back(call);
    keeps_ = call->condition;
  }
  /// Starts the first call, or goes on with it; false if there is nothing to run.
  bool run_first();
  /// Withdraws the first call, if it runs, should be withdrawn, and has moved nothing yet. Then it
  /// is over, and the job stands still.
  bool withdraw();
  /// Nothing runs, or nothing any more.
  void fail(const std::exception_ptr& error);

 private:
  const Call* next_call() override;
  void refused(const Error& error) override;
  /// The first of `calls_` is over.
  void complete_first(std::optional<Error> error);

  StartedCalls& owner_;
  std::deque<StartedCallPointer> calls_;
  std::shared_ptr<ConditionCall> keeps_;  // condition()
  bool begun_ = false;                    // the first of them
};

class StartedCalls {
 public:
  explicit StartedCalls(Communicator::Impl& impl);
  /// Finishes the started calls.
  ~StartedCalls();
  StartedCalls(const StartedCalls&) = delete;
  StartedCalls& operator=(const StartedCalls&) = delete;

  // In a thread's turn, or on the engine's thread while calls are started:
  /// `begun`: a call that has begun already, while no call is started.
  std::shared_ptr<Future::State> start(const Call& call,
                                       const std::optional<Series::Begun>& begun = std::nullopt);
  std::shared_ptr<Future::State> start(std::shared_ptr<ConditionCall> call);
  /// `call` is one of those.
  void withdraw(Future::State& call);
  /// Whether nothing is left to run.
  bool is_idle() const { return !impl_.has_started(); }
  /// Waits until that is so.
  void drain() {
    if (!is_idle()) engine_->drain(*this);
  }
  /// Ctrl-C on a thread that waits for the remaining calls.
  void interrupted();
  /// As Engine::destroy_when_idle().
  void destroy_when_idle(std::unique_ptr<Communicator::Impl>& impl) {
    engine_->destroy_when_idle(*this, impl);
  }

 private:
  friend class Engine;

  // For the engine's thread:
  void add(const StartedCallPointer& call);
  /// Puts `arrived_` into series, and the series that begin into `pending`.
  void begin(std::vector<Job*>& pending);
  /// Takes withdrawn calls out of `pending`.
  void take_back(std::vector<Job*>& pending);
  void ended(StartedSeries& series, const std::exception_ptr& error);
  /// A call by itself is over.
  void forget_condition(const StartedSeries& series);

  Communicator::Impl& impl_;
  std::shared_ptr<Engine> engine_;
  const std::shared_ptr<CallersWaits> callers_;  // as Future::State
  // Of the engine's thread:
  std::map<SeriesKey, std::unique_ptr<StartedSeries>> series_;
  std::vector<StartedCallPointer> arrived_;  // to be put there
  std::vector<StartedSeries*> starting_;
  bool taking_back_ = false;
  int running_ = 0;  // of the series
  // Under the engine's lock:
  std::vector<StartedCallPointer> inbox_;
  bool withdrawing_ = false;  // something has been withdrawn since the thread looked
  std::unique_ptr<Communicator::Impl> leaving_;  // this communicator, when it is idle
};

}  // namespace tutti
