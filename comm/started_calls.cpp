#include "comm/started_calls.h"

#include <fmt/format.h>

#include <utility>

#include "comm/impl.h"
#include "comm/membership.h"
#include "core/as_error.h"
#include "core/background.h"
#include "core/wait.h"

namespace tutti {

namespace {

Error withdrawn() {
  return {ErrorCode::aborted, "this recv was withdrawn before anything had come"};
}

}  // namespace

const Call* StartedSeries::next_call() {
  if (begun_) complete_first(keeps_ ? keeps_->condition->error() : std::nullopt);
  while (!calls_.empty() && calls_.front()->withdrawn) complete_first(withdrawn());
  begun_ = !calls_.empty();
  return begun_ ? &calls_.front()->kept.call() : nullptr;
}

bool StartedSeries::run_first() {
  const StartedCall& first = *calls_.front();
  if (!first.begun) return start_first();
  begun_ = true;
  go_on(first.kept.call(), *first.begun);
  return true;
}

bool StartedSeries::withdraw() {
  if (!begun_ || !calls_.front()->withdrawn) return false;
  const Operation::Blocked b = operation().blocked();
  if (b.peer < 0 || b.sending || b.step > 0 || b.tile > 0) return false;
  operation().abandon();
  complete_first(withdrawn());
  return true;
}

void StartedSeries::refused(const Error& error) { complete_first(error); }

void StartedSeries::complete_first(std::optional<Error> error) {
  const StartedCallPointer call = std::move(calls_.front());
  calls_.pop_front();
  begun_ = false;
  call->complete(std::move(error));
}

void StartedSeries::fail(const std::exception_ptr& error) {
  std::optional<Error> why;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    why = impl().fail_with(as_error(e));
  }
  while (!calls_.empty()) complete_first(why);
}

StartedCalls::StartedCalls(Communicator::Impl& impl)
    : impl_(impl),
      engine_(impl.membership->engine),
      callers_(impl.group->blocks().segment(), &impl.group->control().callers) {
  engine_->join(*this);
}

StartedCalls::~StartedCalls() {
  drain();
  engine_->leave(*this);
}

std::shared_ptr<Future::State> StartedCalls::start(const Call& call,
                                                   const std::optional<Series::Begun>& begun) {
  auto started = std::make_shared<StartedCall>(call);
  started->callers = callers_;
  started->engine = engine_;
  started->begun = begun;
  engine_->start(*this, started);
  return started;
}

std::shared_ptr<Future::State> StartedCalls::start(std::shared_ptr<ConditionCall> call) {
  auto started = std::make_shared<StartedCall>(std::move(call));
  started->callers = callers_;
  started->engine = engine_;
  engine_->start(*this, started);
  return started;
}

void StartedCalls::withdraw(Future::State& state) {
  auto& started = static_cast<StartedCall&>(state);
  const Call& call = started.kept.call();
  if (call.collective != Collective::send_recv || call.sends) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("withdraw() of {}: only a started recv can be withdrawn",
                            call.sends ? "a send" : name(call.collective)));
  }
  started.withdrawn = true;
  engine_->withdraw(*this);
}

void StartedCalls::interrupted() {
  RankGroup& group = *impl_.group;
  group.liveness().fail(
      {ErrorCode::aborted, group.rank(),
       fmt::format("rank {} exits, or was interrupted, while it waits for what it has started",
                   group.rank())});
}

void StartedCalls::take_back(std::vector<Job*>& pending) {
  std::erase_if(pending, [&](Job* job) {
    auto& series = static_cast<StartedSeries&>(*job);
    if (&series.owner() != this || !series.withdraw()) return false;
    try {
      if (series.start_first()) return false;
    } catch (...) {
      series.fail(std::current_exception());
    }
    --running_;
    return true;
  });
}

void StartedCalls::add(const StartedCallPointer& call) {
  const SeriesKey key = call->key();
  auto series = series_.find(key);
  if (series == series_.end()) {
    series = series_.emplace(key, std::make_unique<StartedSeries>(*this, impl_, key)).first;
  }
  const bool starts = series->second->is_empty();
  if (starts) starting_.push_back(series->second.get());
  try {
    series->second->add(call);
  } catch (...) {
    if (starts) starting_.pop_back();
    throw;
  }
}

void StartedCalls::begin(std::vector<Job*>& pending) {
  for (const StartedCallPointer& call : arrived_) {
    try {
      add(call);
    } catch (const std::exception& e) {  // the other ranks wait for it
      call->complete(impl_.fail_with(as_error(e)));
    }
  }
  arrived_.clear();
  for (StartedSeries* const series : starting_) {
    try {
      if (series->run_first()) {
        pending.push_back(series);
        ++running_;
        continue;
      }
    } catch (...) {
      series->fail(std::current_exception());
    }
    forget_condition(*series);
  }
  starting_.clear();
}

void StartedCalls::ended(StartedSeries& series, const std::exception_ptr& error) {
  if (error) series.fail(error);
  forget_condition(series);
  --running_;
}

void StartedCalls::forget_condition(const StartedSeries& series) {
  if (series.condition() != nullptr) series_.erase({-1, false, series.condition()});
}

}  // namespace tutti
