#include "tests/ptx/registers.h"

#include <algorithm>
#include <bit>

namespace tutti::ptx {
namespace {

using Bits = std::vector<std::uint64_t>;

bool has(const Bits& b, std::size_t i) { return (b[i / 64] >> (i % 64) & 1) != 0; }
void set(Bits& b, std::size_t i) { b[i / 64] |= std::uint64_t{1} << (i % 64); }
void clear(Bits& b, std::size_t i) { b[i / 64] &= ~(std::uint64_t{1} << (i % 64)); }

/// The registers that a later instruction may still read, before each instruction.
std::vector<Bits> live_before(const std::vector<Flow>& flow, std::size_t registers) {
  std::vector<Bits> live(flow.size(), Bits((registers + 63) / 64));
  bool changed = true;
  while (changed) {
    changed = false;
    for (std::size_t i = flow.size(); i-- > 0;) {
      Bits now(live[i].size());
      for (const std::uint32_t n : flow[i].next) {
        for (std::size_t w = 0; w < now.size(); ++w) now[w] |= live[n][w];
      }
      for (const int r : flow[i].writes) clear(now, static_cast<std::size_t>(r));
      for (const int r : flow[i].reads) set(now, static_cast<std::size_t>(r));
      if (now != live[i]) {
        live[i] = std::move(now);
        changed = true;
      }
    }
  }
  return live;
}

}  // namespace

Slots assign_slots(const std::vector<Flow>& flow, std::size_t registers,
                   const std::vector<int>& given) {
  const std::vector<Bits> live = live_before(flow, registers);
  struct Interval {
    std::size_t first = ~std::size_t{0}, last = 0;
    int reg = 0;
  };
  std::vector<Interval> intervals(registers);
  for (std::size_t r = 0; r < registers; ++r) intervals[r].reg = static_cast<int>(r);
  const auto touch = [&](std::size_t r, std::size_t at) {
    intervals[r].first = std::min(intervals[r].first, at);
    intervals[r].last = std::max(intervals[r].last, at);
  };
  for (std::size_t i = 0; i < flow.size(); ++i) {
    for (std::size_t w = 0; w < live[i].size(); ++w) {
      for (std::uint64_t b = live[i][w]; b != 0; b &= b - 1) {
        touch(w * 64 + static_cast<std::size_t>(std::countr_zero(b)), i);
      }
    }
    // A destination is written while the sources are read: lane by lane, so they may share a slot
    // only where nothing else is written.
    for (const int r : flow[i].writes) {
      touch(static_cast<std::size_t>(r), i);
      touch(static_cast<std::size_t>(r), i + 1);
    }
  }
  for (const int r : given) touch(static_cast<std::size_t>(r), 0);
  Slots result;
  result.slot.assign(registers, 0);
  if (!flow.empty()) {
    for (std::size_t r = 0; r < registers; ++r) {
      if (has(live[0], r) &&
          std::find(given.begin(), given.end(), static_cast<int>(r)) == given.end()) {
        result.unwritten.push_back(static_cast<int>(r));
      }
    }
  }
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.first < b.first; });
  std::vector<std::pair<std::size_t, std::int32_t>> busy;  // until, slot
  std::vector<std::int32_t> free;
  for (const Interval& v : intervals) {
    if (v.first == ~std::size_t{0}) continue;
    for (std::size_t k = 0; k < busy.size();) {
      if (busy[k].first < v.first) {
        free.push_back(busy[k].second);
        busy[k] = busy.back();
        busy.pop_back();
      } else {
        ++k;
      }
    }
    std::int32_t slot = 0;
    if (free.empty()) {
      slot = static_cast<std::int32_t>(result.count++);
    } else {
      const auto lowest = std::min_element(free.begin(), free.end());
      slot = *lowest;
      free.erase(lowest);
    }
    result.slot[static_cast<std::size_t>(v.reg)] = slot;
    busy.emplace_back(v.last, slot);
  }
  return result;
}

}  // namespace tutti::ptx
