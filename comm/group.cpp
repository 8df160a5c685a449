// group(): calls kept until the outermost one ends, then run side by side.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/device_call.h"
#include "comm/impl.h"
#include "comm/series.h"
#include "comm/window_impl.h"
#include "core/as_error.h"

namespace tutti {
namespace {

struct GroupedCall {
  Communicator::Impl* impl;
  KeptCall kept;
  std::shared_ptr<ConditionCall> condition;  // instead of `kept`
  const Call& call() const { return kept.call(); }
};

struct GroupedWindowCall {
  std::shared_ptr<Window::Impl> window;
  WindowCall call;
};

struct GroupedDeviceCall : GroupedCall {
  device::Stream stream;
};

struct OpenGroup {
  std::vector<std::unique_ptr<Communicator::Impl>> leaving;  // destroyed since the group was opened
  std::vector<GroupedCall> calls;
  std::vector<GroupedDeviceCall> device_calls;
  std::vector<GroupedWindowCall> window_calls;
};

OpenGroup& open_group() {
  thread_local OpenGroup g;
  return g;
}

/// A rank's messages to itself have to be in one group, or they would wait for ever.
template <class GroupedCalls>
void check_own_messages(const GroupedCalls& calls) {
  std::map<const Communicator::Impl*, std::pair<int, int>> own;
  for (const auto& k : calls) {
    if (k.call().collective != Collective::send_recv || k.call().peer != k.impl->group->rank())
      continue;
    auto& [sends, receives] = own[k.impl];
    (k.call().sends ? sends : receives) += 1;
  }
  for (const auto& [impl, count] : own) {
    if (count.first == count.second) continue;
    const std::string why = fmt::format(
        "rank {} has {} send(s) to itself but {} recv(s) from itself in this group; they must "
        "pair up within one group",
        impl->group->rank(), count.first, count.second);
    for (const auto& k : calls) k.impl->tell_refusal(why);  // none of them runs
    throw Error(ErrorCode::invalid_usage, why);
  }
}

void run_on_device(const std::vector<GroupedDeviceCall>& kept) {
  std::vector<DeviceCallOn> calls;
  for (const GroupedDeviceCall& k : kept) calls.push_back({k.impl, &k.call(), k.stream});
  tutti::run_on_device(calls);
}

/// The number in `group` of a rank of `source`; -1: it is not there, or that cannot be told.
int same_rank(int rank, const Members& source, const Members& group) {
  if (&source == &group) return rank;
  if (rank >= source.size()) return -1;
  if (&source.host_peers() != &group.host_peers()) return -1;
  return group.rank_of(source.member(rank));
}

/// A call of a group has failed and cut off all of the group's communicators half way: so they
/// fail, too.
void fail_all(const std::vector<GroupedCall>& calls, const Error& error) {
  std::set<RankGroup*> all;
  for (const GroupedCall& k : calls) all.insert(k.impl->group.get());
  const bool one = all.size() == 1;
  // The communicator whose failure this is, if that can be told: it numbers the error's rank.
  const auto is_source = [&](RankGroup* group) {
    return one || (group->liveness().failed() && group->liveness().failure().text == error.what());
  };
  const auto found = std::ranges::find_if(all, is_source);
  RankGroup* const source = found == all.end() ? nullptr : *found;
  const bool known = error.rank() >= 0 && source != nullptr;
  for (RankGroup* const group : all) {
    // Each communicator names a dead rank by its own number. A communicator that was aborted, or
    // had a call that did not match, was often given up by a rank that knew of a death.
    if (!group->liveness().failed()) group->liveness().check_peers_first("in a group()");
    if (group->liveness().failed()) continue;
    const int rank = known ? same_rank(error.rank(), *source, *group) : -1;
    std::string why = error.what();
    if (!one) why = "a call of another communicator in the same group() failed: " + why;
    // The other communicator's text has that one's numbers.
    if (!one && rank >= 0 && error.code() == ErrorCode::peer_lost) {
      why = fmt::format("rank {} ({}) is lost: {}", rank, group->process_text(rank), why);
    }
    group->liveness().fail({error.code(), rank, why});
  }
  for (RankGroup* const group : all) group->wait_until_untouched();
}

/// Does what can be done now of calls of windows. The rest of them goes to `calls`.
void issue(const std::vector<GroupedWindowCall>& window_calls, std::vector<GroupedCall>& calls) {
  for (const GroupedWindowCall& k : window_calls) {
    k.window->check(k.call);  // again: what has ended since
    if (auto left = k.window->issue(k.call)) {
      Communicator::Impl& impl = *k.window->comm;
      calls.push_back({&impl, KeptCall(Call{}),
                       std::make_shared<ConditionCall>(impl, std::move(left), k.call.timeout)});
    }
  }
}

/// The communicators of a group, and this thread's turns at them.
class TurnsOfGroup {
 public:
  TurnsOfGroup(const std::vector<GroupedCall>& calls,
               const std::vector<GroupedWindowCall>& window_calls) {
    for (const GroupedCall& k : calls) impls_.push_back(k.impl);
    for (const GroupedWindowCall& k : window_calls) {
      if (!k.window->ended) impls_.push_back(k.window->comm);
    }
    // In the order of their addresses, as two threads may take some of the same.
    std::ranges::sort(impls_);
    impls_.erase(std::unique(impls_.begin(), impls_.end()), impls_.end());
    for (Communicator::Impl* const impl : impls_) turns_.emplace_back(impl->turns);
    for (Communicator::Impl* const impl : impls_) wanted_.push_back(&impl->turns.wanted());
  }

  std::span<Communicator::Impl* const> impls() const { return impls_; }
  Wanted wanted() const { return wanted_; }
  /// Before this thread waits for the engine's.
  void end() {
    for (Communicator::Impl* const impl : impls_) blocked_.emplace_back(*impl);
    turns_.clear();
  }

 private:
  std::array<std::byte, 1024> room_;  // the heap takes as long as a short message
  std::pmr::monotonic_buffer_resource memory_{room_.data(), room_.size()};
  std::pmr::vector<Communicator::Impl*> impls_{&memory_};
  std::pmr::list<Communicator::Impl::Turn> turns_{&memory_};
  std::pmr::list<Communicator::Impl::Blocked> blocked_{&memory_};
  std::pmr::vector<const std::atomic<int>*> wanted_{&memory_};
};

/// Runs `calls` on this thread; what moves to the engine goes to `moved`. Where a communicator has
/// started calls, all move there.
void run_calls(const std::vector<GroupedCall>& calls, const TurnsOfGroup& turns,
               std::vector<Future>& moved) {
  std::array<std::byte, 4096> room;
  std::pmr::monotonic_buffer_resource memory(room.data(), room.size());
  std::pmr::map<std::pair<Communicator::Impl*, SeriesKey>, CallersSeries> all(&memory);
  std::pmr::list<ListedCall> listed(&memory);
  for (const GroupedCall& k : calls) {
    const SeriesKey key =
        k.condition ? SeriesKey{-1, false, k.condition.get()} : SeriesKey::of(k.call());
    all.try_emplace({k.impl, key}, *k.impl, key, k.condition)
        .first->second.add(listed.emplace_back(&k.call()));
  }
  if (std::ranges::any_of(turns.impls(), &Communicator::Impl::has_started)) {
    refuse_to_block("make a blocking call");
    for (auto& [key, series] : all) series.move_to_engine(moved);
    return;
  }
  std::pmr::vector<Job*> jobs(&memory);
  for (auto& [key, series] : all) {
    if (series.start_first()) jobs.push_back(&series);
  }
  if (!jobs.empty()) run_or_move(jobs, turns.wanted(), moved);
}

void run_together(std::vector<GroupedCall>& calls,
                  const std::vector<GroupedWindowCall>& window_calls) {
  // Since fork(), perhaps.
  for (const GroupedCall& k : calls) k.impl->check_process();
  for (const GroupedWindowCall& k : window_calls) {
    if (!k.window->ended) k.window->comm->check_process();
  }
  TurnsOfGroup turns(calls, window_calls);
  std::vector<Future> moved;
  try {
    issue(window_calls, calls);
    run_calls(calls, turns, moved);
    if (!moved.empty()) {
      turns.end();
      wait_for_moved(moved, turns.impls());
    }
    for (const GroupedCall& k : calls) {
      if (!k.condition) continue;
      if (const auto error = k.condition->condition->error()) throw Error(*error);
    }
  } catch (const std::exception& e) {
    fail_all(calls, as_error(e));
    for (Future& future : moved) {
      try {
        future.wait();
      } catch (const Error&) {  // the group has failed with the first one
      }
    }
    throw;
  }
}

}  // namespace

constinit thread_local int open_groups = 0;
std::atomic<int> threads_in_groups{0};

void keep_for_group(Communicator::Impl& impl, const Call& call) {
  open_group().calls.push_back({&impl, KeptCall(call), nullptr});
}

void keep_for_group(std::shared_ptr<Window::Impl> window, const WindowCall& call) {
  open_group().window_calls.push_back({std::move(window), call});
}

void keep_for_group(Communicator::Impl& impl, const Call& call, device::Stream stream) {
  open_group().device_calls.push_back({{&impl, KeptCall(call), nullptr}, stream});
}

void refuse_to_meet(const char* call) {
  if (group_is_open()) {
    throw Error(ErrorCode::invalid_usage, fmt::format("{} inside of a group()", call));
  }
  if (is_engine_thread()) refuse_to_block(fmt::format("call {}", call).c_str());
}

void leave_after_group(std::unique_ptr<Communicator::Impl> impl) {
  open_group().leaving.push_back(std::move(impl));
}

void group_start() {
  if (++open_groups == 1) threads_in_groups.fetch_add(1, std::memory_order_relaxed);
}

namespace {

/// Whether that was the outermost one.
bool leave_group() {
  if (--open_groups > 0) return false;
  threads_in_groups.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

}  // namespace

void group_end() try {
  if (open_groups == 0)
    throw Error(ErrorCode::invalid_usage, "group_end() without a group_start() on this thread");
  if (!leave_group()) return;
  OpenGroup closed = std::exchange(open_group(), {});
  check_own_messages(closed.device_calls);
  check_own_messages(closed.calls);
  run_on_device(closed.device_calls);  // does not wait
  run_together(closed.calls, closed.window_calls);
  // The next group's memory.
  closed.calls.clear();
  if (open_group().calls.empty()) open_group().calls = std::move(closed.calls);
} catch (const std::bad_alloc& e) {
  throw as_error(e);
}

bool inside_group() { return group_is_open(); }

void group_drop() {
  if (open_groups > 0 && leave_group()) open_group() = {};
}

void group(const std::function<void()>& body) {
  group_start();
  try {
    body();
  } catch (...) {
    group_drop();
    throw;
  }
  group_end();
}

}  // namespace tutti
