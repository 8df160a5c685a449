// A blocking call of a communicator that several threads share: it runs on the thread that makes
// it, and moves to the engine when it waits while another thread wants the communicator.
#include <atomic>
#include <new>
#include <utility>

#include "comm/impl.h"
#include "comm/series.h"
#include "comm/started_calls.h"
#include "core/as_error.h"

namespace tutti {
namespace {

/// A call by itself, which is refused before anything of it has begun, or runs.
class OneCall final : public Series {
 public:
  OneCall(Communicator::Impl& impl, const Call& call)
      : Series(impl, SeriesKey::of(call)), call_(&call) {}
  bool was_refused() const { return refused_; }

 private:
  const Call* next_call() override { return std::exchange(call_, nullptr); }
  void refused(const Error& error) override {
    refused_ = true;
    throw error;
  }

  const Call* call_;
  bool refused_ = false;
};

}  // namespace

Future Communicator::Impl::run_or_start(const Call& call, const std::atomic<int>& wanted) {
  const OnlyCaller only(*this);
  group->liveness().throw_if_failed();
  if (call.collective == Collective::send_recv) {
    or_tell([&] {
      check(call);
      check_not_to_itself(call);
    });
  }
  OneCall one(*this, call);
  try {
    if (!one.start_first() || run_unless_wanted(one, wanted)) return {};
    return Future(started_calls().start(call, one.begun()));
  } catch (const std::exception& e) {
    if (one.was_refused()) throw;
    fail_with(as_error(e));
  }
}

Future Communicator::run_or_start(const Call& call, const std::atomic<int>& wanted) try {
  Impl& i = impl();
  i.check_process();
  if (group_is_open() || is_engine_thread()) {
    run(call);
    return {};
  }
  if (i.has_started()) return start(call);
  if (i.team) i.team->note_failure(*i.group);
  return i.run_or_start(call, wanted);
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

void Communicator::wake() const {
  RankGroup& group = *impl().group;
  ring(group.control().doorbell);
  if (group.network() != nullptr) group.network()->wake();
}

}  // namespace tutti
