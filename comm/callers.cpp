#include "comm/callers.h"

#include "comm/started_calls.h"
#include "core/background.h"
#include "core/wait.h"

namespace tutti {

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

void Communicator::Impl::run_here(const Call& call, Wanted wanted, std::vector<Future>& moved) {
  // A kernel's failure is the cause of what follows from it, also where nobody has looked yet.
  if (team) team->note_failure(*group);
  group->liveness().throw_if_failed();
  const Binding* const again = bind_if_repeated(call);
  if (again == nullptr && call.collective == Collective::send_recv) {
    or_tell([&] {
      check(call);
      check_not_to_itself(call);
    });
  }
  ListedCall alone{&call};
  CallersSeries series(*this, SeriesKey::of(call));
  series.add(alone);
  try {
    Job* jobs[] = {&series};
    if (series.start_first(again)) run_or_move(jobs, wanted, moved);
  } catch (const std::exception& e) {
    if (series.was_refused()) throw;
    fail_with(as_error(e));
  } catch (...) {  // pthread_cancel(): this thread goes on to end
    fail_unwound();
    throw;
  }
}

void Communicator::Impl::run_in_turn(const Call& call) {
  std::vector<Future> none;
  run_here(call, {}, none);
}

void Communicator::Impl::run(const Call& call, Turn& turn) {
  std::vector<Future> moved;
  if (!has_started()) {
    const std::atomic<int>* const wanted[] = {&turns.wanted()};
    run_here(call, wanted, moved);
  } else {
    or_tell([&] {
      check(call);
      check_not_to_itself(call);
    });
    refuse_to_block("make a blocking call");
    moved.push_back(Future(started_calls().start(call)));
  }
  if (!moved.empty()) wait_without(turn, moved);
}

void Communicator::Impl::run(const std::shared_ptr<ConditionCall>& call, Turn& turn) {
  std::vector<Future> moved;
  if (!has_started()) {
    const std::atomic<int>* const wanted[] = {&turns.wanted()};
    CallersSeries series(*this, call);
    ListedCall alone{&call->call};
    series.add(alone);
    or_fail([&] {
      Job* jobs[] = {&series};
      if (series.start_first()) run_or_move(jobs, wanted, moved);
    });
  } else {
    moved.push_back(Future(started_calls().start(call)));
  }
  if (!moved.empty()) wait_without(turn, moved);
  if (const auto error = call->condition->error()) throw Error(*error);
}

void Communicator::Impl::wait_without(Turn& turn, std::span<Future> moved) {
  const Blocked blocked_here(*this);
  turn.end();
  Impl* const impls[] = {this};
  wait_for_moved(moved, impls);
}

}  // namespace tutti
