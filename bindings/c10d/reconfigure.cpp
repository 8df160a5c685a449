// Groups with ranks that change: with enable_reconfigure a group begins as one rank that others can
// meet, and each reconfigure() gives it the ranks that a list of handles names. PyTorch carries the
// handles from rank to rank. A reconfigure() needs no store, so it works after the death of any
// rank.
#include <algorithm>
#include <span>

#include "backend.h"
#include "errors.h"
#include "meet.h"
#include "python.h"

namespace tutti::pytorch {

void Backend::check_usable() const {
  TORCH_CHECK(formed_,
              "this group has no ranks yet: it was made with enable_reconfigure=True, so call "
              "reconfigure() before the first operation");
  TORCH_CHECK(!suspended_, "this group is suspended: call resume() before the next operation");
}

void Backend::replace(Communicator next) {
  std::shared_ptr<Messages> messages;
  std::shared_ptr<Communicator> last = std::make_shared<Communicator>(std::move(next));
  {
    const auto held = lock();
    const std::lock_guard its(replacing_);
    last.swap(comm_);
    messages.swap(messages_);
    revoked_ = false;
  }
  if (messages) messages->leave();
  // Other threads may be in calls of it; once it ends, the callbacks of its calls have run.
  while (last.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  last.reset();
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace {

using Handles = std::vector<::c10d::ReconfigureHandle>;

/// All ranks order a set alike.
Handles ordered(const ::c10d::ReconfigureOptions& opts) {
  if (const auto* const list = std::get_if<Handles>(&opts.handles)) return *list;
  const auto& set = std::get<0>(opts.handles);
  Handles all(set.begin(), set.end());
  std::ranges::sort(all);
  return all;
}

/// The place of `mine`, which is this rank from now on.
int place_in(const Handles& handles, const std::string& mine) {
  const auto count = [&](const std::string& handle) { return std::ranges::count(handles, handle); };
  TORCH_CHECK(!handles.empty(), "reconfigure: the list of handles is empty");
  TORCH_CHECK(std::ranges::all_of(handles, [&](const auto& h) { return count(h) == 1; }),
              "reconfigure: a handle is in the list twice");
  const auto found = std::ranges::find(handles, mine);
  TORCH_CHECK(found != handles.end(), "reconfigure: the handle of this rank, out of ",
              handles.size(),
              ", is missing; get_reconfigure_handle() gives a new one after each "
              "reconfigure()");
  return static_cast<int>(found - handles.begin());
}

/// Positive, and different for different uuids.
std::uint64_t number_of(std::int64_t uuid) {
  constexpr std::uint64_t kOfZero = std::uint64_t{1} << 63;
  return uuid == 0 ? kOfZero : static_cast<std::uint64_t>(uuid);
}

}  // namespace

::c10d::ReconfigureHandle Backend::get_reconfigure_handle() const {
  return translated([&] {
    const auto held = lock();  // throws in a child of fork()
    return comm()->handle();
  });
}

WorkPointer Backend::reconfigure(const ::c10d::ReconfigureOptions& opts) {
  const Milliseconds timeout = effective(opts.timeout.value_or(::c10d::kUnsetTimeout));
  const Handles handles = ordered(opts);
  const WithoutPython without;
  const EndedByCtrlC interruptible;
  const int rank = translated([&] { return place_in(handles, comm()->handle()); });
  try {
    tutti::Options wanted = options_of(options_->timeout);
    wanted.rendezvous_timeout = timeout;
    // Two statements: replace() waits until no thread is in a call of the last communicator, nor
    // this.
    Communicator next = comm()->reconfigure(handles, number_of(opts.uuid), wanted);
    replace(std::move(next));
    const auto held = lock();
    sequence_ = 0;
    formed_ = true;
    suspended_ = false;
    ledger_->begin_again();
  } catch (const Error& error) {
    throw_if_interrupted();
    const bool late = error.code() == ErrorCode::timed_out;
    throw as_torch(Error(error.code(),
                         c10::str("reconfigure ", late ? "timed out" : "failed", " (Wait timeout: ",
                                  timeout.count(), " ms); the group is as it was. ", error.what()),
                         error.rank()));
  }
  rank_ = rank;
  size_ = static_cast<int>(handles.size());
  auto work = make_work(Operation(::c10d::OpType::UNKNOWN, "tutti:reconfigure", at::kCPU), timeout);
  work->end(std::nullopt);
  return work;
}

#endif

}  // namespace tutti::pytorch
