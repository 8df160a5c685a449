#include "execute/host/wait.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "execute/host/placement.h"
#include "transport/network/network.h"

namespace tutti {
namespace {

using Clock = Wait::Clock;
using std::chrono::milliseconds;

// Yielding costs little while others want the core; after this long no answer is near. With many
// ranks a core, ranks that yield are in the way of ranks that could go on.
constexpr auto kYieldFor = milliseconds(2);
constexpr int kYieldingRanks = 8;  // of a core; with more, each does for a shorter time
// The more threads wait, the less often each looks around.
constexpr int kLookingThreads = 16;  // of a core
constexpr int kMostCrowd = 4;        // so many times less often
// While ranks of this host may send something: they cannot wake a thread that sleeps on the
// network.
constexpr auto kShortSleep = std::chrono::microseconds(500);
// While the network may have to be asked for what comes.
constexpr auto kLongSleep = milliseconds(10);
// While the reactor listens to the network.
constexpr Clock::duration kLongestSleep = kLateLookEvery;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Threads of this process that wait for other hosts.
std::atomic<int> waiting_for_hosts{0};

int cores() {
  static const int cores = std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
  return cores;
}

/// How many times less often than a few threads would, each looks.
int crowd() {
  const int waiting = waiting_for_hosts.load(std::memory_order_relaxed);
  const int of_a_core = waiting == 0 ? 0 : waiting / cores();  // to count the cores reads a file
  return std::clamp(of_a_core / kLookingThreads, 1, kMostCrowd);
}

// Ranks of a core: for so many, a rank sleeps a millisecond more before it looks.
constexpr int kCrowdOfASleep = 16, kMostRanksOfACore = 512;

std::chrono::nanoseconds timeout_of(const Job& job) {
  const std::chrono::nanoseconds own = job.operation().binding().timeout;
  return own.count() > 0 ? own : job.policy().timeout;
}

}  // namespace

bool outnumber_cores() { return waiting_for_hosts.load(std::memory_order_relaxed) > cores(); }

Wait::Wait(std::span<Job* const> pending, const JobSource* source, Wanted wanted)
    : pending_(pending),
      source_(source),
      wanted_(wanted),
      concerned_(pending.front()),
      spins_(pending.front()->policy().spins),
      yields_for_(kYieldFor) {
  for (const Job* job : pending) {
    crowded_ = crowded_ || job->policy().crowded;
    spans_hosts_ = spans_hosts_ || job->operation().spans_hosts();
    spins_ = std::min(spins_, job->policy().spins);
    ranks_of_a_core_ = std::max(ranks_of_a_core_, job->policy().ranks_of_a_core);
    yields_for_ = std::min<Clock::duration>(
        yields_for_,
        kYieldFor * kYieldingRanks / std::max(job->policy().ranks_of_a_core, kYieldingRanks));
  }
  if (spans_hosts_) waiting_for_hosts.fetch_add(1, std::memory_order_relaxed);
}

Wait::~Wait() {
  if (spans_hosts_) waiting_for_hosts.fetch_sub(1, std::memory_order_relaxed);
  if (newest_ != began_ && is_callers()) end();
}

void Wait::once() {
  if (spans_hosts_ && !left_to_reactor_) poll_network();
  const bool must_not_look = spans_hosts_ && outnumber_cores();
  if (must_not_look) looks_ = spins_;
  if (looks_ == 0 && crowded_ && waits_for_own_core()) looks_ = spins_;
  if (++looks_ <= spins_) {
    pause();
    // The line stays in this core's cache until a rank fails; still, not on every look.
    if ((looks_ & 63) == 0) throw_if_failed();
    return;
  }
  throw_if_failed();
  const auto now = Clock::now();
  if (began_ == Clock::time_point{}) began_ = now;
  newest_ = now;
  look_after(now);
  looks_ = 0;
  const bool sleeps = now - began_ >= yields_for_ || must_not_look;
  lets_go_ = should_let_go(sleeps);
  if (lets_go_) return;
  if (sleeps) return sleep(now);
  RankGroup& group = pending_.front()->operation().group();
  spread_out(group, group.blocks(), now);
  // A core of its own a rank does not yield: another program that wants it would have it for its
  // whole slice, some milliseconds. An engine keeps it only while a caller sleeps until a Future is
  // ready: else the threads that start calls need it, too.
  const auto caller_sleeps = [](const Job* job) {
    return job->operation().group().control().callers.futures.load(std::memory_order_relaxed) > 0;
  };
  const bool keeps_core = is_callers() || std::ranges::any_of(pending_, caller_sleeps);
  if (crowded_ || spans_hosts_ || !keeps_core || waits_for_own_core()) sched_yield();
}

bool Wait::is_over() {
  if (source_ != nullptr && source_->has_more()) return true;
  return std::ranges::any_of(pending_, [this](Job* job) {
    concerned_ = job;
    return job->operation().can_advance();
  });
}

void Wait::look_after(Clock::time_point now) {
  for (Job* job : pending_) {
    if (job->standstill().is_due(now, timeout_of(*job), seldom(timeout_of(*job))))
      inspect(*job, now);
  }
}

void Wait::end() const {
  RankGroup& group = concerned_->operation().group();
  const auto waited = std::chrono::nanoseconds(newest_ - began_).count();
  group.control().callers.ns.fetch_add(static_cast<std::uint64_t>(waited),
                                       std::memory_order_relaxed);
  for (Job* job : pending_) {
    if (job->standstill().began != Clock::time_point{}) {
      job->operation().group().diagnostics().end_wait(job->standstill().began);
    }
  }
}

bool Wait::waits_for_own_core() const {
  bool wanted = false;
  for (Job* job : pending_) {
    Operation& op = job->operation();
    wanted = op.waits_for_core(publish_core(op.group().control())) || wanted;
  }
  return wanted;
}

int Wait::crowds_of_a_core() const {
  return std::min(ranks_of_a_core_, kMostRanksOfACore) / kCrowdOfASleep;
}

int Wait::seldom(std::chrono::nanoseconds timeout) const {
  constexpr int kLooksBefore = 8;
  const int most = timeout.count() > 0
                       ? static_cast<int>(std::clamp<std::int64_t>(
                             timeout / kLateLookEvery / kLooksBefore, 1, kMostRanksOfACore))
                       : kMostRanksOfACore;
  return std::max(crowd(), std::min(crowds_of_a_core(), most));
}

void Wait::poll_network() {
  for (Job* job : pending_) {
    job->operation().poll();
    // Others may wait to hear that there is room again.
    if (looks_ >= spins_) job->operation().group().poll_network();
  }
}

void Wait::sleep(Clock::time_point now) {
  std::vector<RankGroup*> groups;
  for (const Job* job : pending_) groups.push_back(&job->operation().group());
  std::ranges::sort(groups);
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  left_to_reactor_ = spans_hosts_ && leave_to_reactor(groups, now);
  if (spans_hosts_ && !left_to_reactor_) return sleep_on_network(groups, now);
  std::vector<Doorbell*> doorbells;
  for (RankGroup* g : groups) doorbells.push_back(&g->control().doorbell);
  // In a crowd, ranks that look every millisecond whether there is something for them take the
  // time of those that have something to do. Where nobody has rung, there hardly is.
  Clock::duration most = milliseconds(1 + crowds_of_a_core());
  // Of several hosts, some may share the cores with this one.
  if (left_to_reactor_) most = std::max(most, std::min((now - began_) / 8, kLongestSleep));
  sleep_unless(
      doorbells, [&] { return is_over() || should_let_go(true) || has_failed(); }, most);
}

bool Wait::leave_to_reactor(std::span<RankGroup* const> groups, Clock::time_point now) const {
  if (now - began_ < kLongSleep) return false;
  if (std::ranges::all_of(groups, [](RankGroup* g) { return g->ranks_here().size() == 1; })) {
    return false;
  }
  return std::ranges::all_of(
      groups, [](RankGroup* g) { return g->one_host() || g->network()->leave_to_reactor(); });
}

bool Wait::has_failed() const {
  return std::ranges::any_of(
      pending_, [](const Job* job) { return job->operation().group().liveness().failed(); });
}

void Wait::sleep_on_network(std::span<RankGroup* const> groups, Clock::time_point now) {
  const auto spans = [](RankGroup* g) { return !g->one_host(); };
  Network& network = *(*std::ranges::find_if(groups, spans))->network();
  const auto alone = [&](RankGroup* g) {
    return g->ranks_here().size() == 1 && g->network() == &network;
  };
  Clock::duration most = kShortSleep;
  if (source_ == nullptr && std::ranges::all_of(groups, alone)) {
    most = std::clamp<Clock::duration>((now - began_) / 8, kShortSleep, kLongSleep);
    if (network.hears_all()) {
      most = crowd() * kLateLookEvery;
      for (Job* job : pending_) most = std::min(most, job->standstill().next_look - now);
    }
  }
  network.sleep(std::max<Clock::duration>(most, std::chrono::microseconds(50)),
                [&] { return is_over() || should_let_go(true) || has_failed(); });
}

void Wait::throw_if_failed() {
  for (Job* job : pending_) {
    concerned_ = job;
    job->operation().group().liveness().throw_if_failed();
  }
}

void Wait::inspect(Job& job, Clock::time_point now) {
  concerned_ = &job;
  Operation& op = job.operation();
  const Operation::Blocked b = op.blocked();
  if (b.peer < 0) return;
  Awaited awaited{b.peer, b.sending ? "take a message" : "send a message"};
  if (const Condition* const condition = op.binding().condition) {
    awaited.what = condition->what();
    awaited.where = condition->where();
    awaited.call = awaited.where.starts_with("in ") ? awaited.where.substr(3) : awaited.where;
  } else {
    awaited.where = fmt::format("in step {} (lane {}, tile {}) of {}", b.step, b.lane, b.tile,
                                op.binding().signature.text());
    awaited.call = op.call_text();
  }
  awaited.started = !is_callers();
  awaited.still = [&] { return op.blocked().peer == b.peer; };
  awaited.alone = std::ranges::none_of(pending_, [&](const Job* other) {
    return other != &job && &other->operation().group() == &op.group();
  });
  look_around(op.group(), awaited, job.standstill(), job.policy(), timeout_of(job), now);
}

}  // namespace tutti
