#include "comm/series.h"

#include "comm/device_call.h"
#include "comm/started_calls.h"
#include "core/as_error.h"
#include "core/background.h"
#include "core/wait.h"

namespace tutti {

SeriesKey SeriesKey::of(const Call& call) {
  if (call.collective != Collective::send_recv) return {};
  return {call.peer, call.sends};
}

Operation& SeriesKey::operation(Communicator::Impl& impl) const {
  if (condition != nullptr) return condition->operation;
  return peer < 0 ? impl.operation : impl.messages(peer, sends).operation;
}

bool Series::start_first() {
  const Binding* const first = next();
  if (first != nullptr) start(*first);
  return first != nullptr;
}

void Series::go_on(const Call& call, const Begun& begun) {
  call_ = &call;
  agreeing_ = begun.agreeing;
  standstill() = begun.standstill;
  run_on(*begun.operation);
}

PreparedCall* Series::look_up() {
  try {
    return &impl_.look_up(*call_);
  } catch (const Error& error) {
    if (impl_.group->liveness().failed()) throw;
    refused(error);
    return nullptr;
  }
}

const Binding* Series::next() {
  if (agreeing_ != nullptr) {
    run_on(impl_.operation);
    return &impl_.bind(*std::exchange(agreeing_, nullptr), *call_);
  }
  while ((call_ = next_call()) != nullptr) {
    impl_.group->liveness().throw_if_failed();
    if (condition_ != nullptr) return &condition_->binding;
    if (const Binding* const again = impl_.bind_if_repeated(*call_)) return again;
    if (call_->collective == Collective::send_recv) {
      return &impl_.bind_message(impl_.messages(call_->peer, call_->sends), *call_);
    }
    PreparedCall* const prepared = look_up();
    if (prepared == nullptr || !impl_.begin(*prepared, *call_)) continue;
    if (impl_.agrees(*prepared)) {
      agreeing_ = prepared;
      run_on(impl_.agreement);
      return &impl_.bind_agreement(*prepared, *call_);
    }
    return &impl_.bind(*prepared, *call_);
  }
  return nullptr;
}

void CallersSeries::move_to_engine(std::vector<Future>& moved) {
  StartedCalls& started = impl().started_calls();
  if (waiting_) return moved.push_back(Future(started.start(waiting_)));
  if (current_ != nullptr) moved.push_back(Future(started.start(*current_->call, begun())));
  for (; next_ != nullptr; next_ = next_->next) {
    moved.push_back(Future(started.start(*next_->call)));
  }
}

void run_or_move(std::span<Job*> series, Wanted wanted, std::vector<Future>& moved) {
  std::span<Job*> left = run_unless_wanted(series, wanted);
  // A callback's thread cannot move what it waits for.
  if (!left.empty() && is_engine_thread()) left = run_unless_wanted(left, {});
  for (Job* const job : left) static_cast<CallersSeries*>(job)->move_to_engine(moved);
}

void wait_for_moved(std::span<Future> moved, std::span<Communicator::Impl* const> impls) {
  for (Future& future : moved) {
    if (moved.size() == 1 && !Interruptible::any()) return future.wait();
    while (!future.wait_for(kMoment)) {
      for (Communicator::Impl* const impl : impls) {
        if (must_stop()) impl->started_calls().interrupted();
      }
      for (const Future& other : moved) {
        if (const auto error = other.error()) throw Error(*error);
      }
    }
  }
}

void wait_without(Communicator::Impl::Turn& turn, Communicator::Impl& impl,
                  std::span<Future> moved) {
  const Communicator::Impl::Blocked blocked(impl);
  turn.unlock();
  Communicator::Impl* const impls[] = {&impl};
  wait_for_moved(moved, impls);
}

namespace {

/// Runs a call, or what waits for a condition, on this thread, in its turn, while it is not
/// `wanted`. What is left goes to `moved`.
void run_here(Communicator::Impl& impl, const Call& call, std::shared_ptr<ConditionCall> waiting,
              Wanted wanted, std::vector<Future>& moved) {
  // A kernel's failure is the cause of what follows from it, also where nobody has looked yet.
  if (impl.team) note_device_failure(*impl.group);
  impl.group->liveness().throw_if_failed();
  if (!waiting && call.collective == Collective::send_recv) impl.check_alone(call);
  ListedCall alone{&call};
  const SeriesKey key = waiting ? SeriesKey{-1, false, waiting.get()} : SeriesKey::of(call);
  CallersSeries series(impl, key, std::move(waiting));
  series.add(alone);
  try {
    Job* jobs[] = {&series};
    if (series.start_first()) run_or_move(jobs, wanted, moved);
  } catch (const std::exception& e) {
    if (series.was_refused()) throw;
    throw impl.fail_with(as_error(e));
  } catch (...) {  // pthread_cancel(): this thread goes on to end
    impl.fail_unwound();
    throw;
  }
}

}  // namespace

void Communicator::Impl::run_in_turn(const Call& call) {
  std::vector<Future> none;
  run_here(*this, call, nullptr, {}, none);
}

void Communicator::Impl::run(const Call& call, Turn& turn,
                             const std::shared_ptr<ConditionCall>& waiting) {
  std::vector<Future> moved;
  if (!has_started()) {
    const std::atomic<int>* const wanted[] = {&turns.wanted()};
    run_here(*this, call, waiting, wanted, moved);
  } else if (waiting) {
    moved.push_back(Future(started_calls().start(waiting)));
  } else {
    check_alone(call);
    refuse_to_block("make a blocking call");
    moved.push_back(Future(started_calls().start(call)));
  }
  if (!moved.empty()) wait_without(turn, *this, moved);
}

}  // namespace tutti
