#include "execute/host/placement.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace tutti {
namespace {

using std::chrono::milliseconds;

// A thread looks where the ranks are so often; sooner at first, until it knows that of all.
constexpr auto kEvery = milliseconds(50);
constexpr auto kAgain = std::chrono::microseconds(20);

}  // namespace

std::uint32_t publish_core(ControlBlock& own) {
  const auto core = static_cast<std::uint32_t>(sched_getcpu() + 1);
  own.core.store(core, std::memory_order_relaxed);
  return core;
}

void spread_out(const Members& members, ControlBlocks& blocks,
                std::chrono::steady_clock::time_point now) {
  thread_local std::chrono::steady_clock::time_point next{};
  if (now < next || members.ranks_here().size() == 1) return;
  next = now + kAgain;

  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // more than 1,024 cores
  const std::uint32_t here = publish_core(blocks.own());
  std::vector<int> ranks(CPU_SETSIZE + 1);  // on each core
  int highest = members.rank();             // on this one
  for (const int r : members.ranks_here()) {
    const std::uint32_t core = blocks.of(r).core.load(std::memory_order_relaxed);
    if (core == 0 || core > CPU_SETSIZE) return;  // it has not waited yet
    if (core == here) highest = std::max(highest, r);
    ++ranks[core];
  }
  next = now + kEvery;
  if (highest > members.rank()) return;
  std::uint32_t best = here;
  for (std::uint32_t core = 1; core <= CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core - 1, &allowed) && ranks[core] < ranks[best]) best = core;
  }
  if (ranks[here] - ranks[best] < 2) return;
  cpu_set_t target;
  CPU_ZERO(&target);
  CPU_SET(best - 1, &target);
  if (sched_setaffinity(0, sizeof target, &target) == 0) {
    sched_setaffinity(0, sizeof allowed, &allowed);
  }
  publish_core(blocks.own());
}

}  // namespace tutti
