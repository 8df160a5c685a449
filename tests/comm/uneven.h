// all_gather_v and reduce_scatter_v with counts that differ by rank, packed: what the buffers hold.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/perf/benchmark.h"
#include "collectives/collective.h"

namespace tutti::test {

struct UnevenCall {
  std::vector<std::size_t> counts;  // by rank; rank 1's is 0
  std::size_t in_offset = 0;        // elements from the start of the send buffer (in place: of the
  std::size_t out_offset = 0;       // receive buffer) to the call's input, output
  perf::Expectation images;
};

/// `setup.shape.count` is the smallest count that is not 0.
inline UnevenCall uneven_call(const perf::CallSetup& setup, std::size_t guard) {
  UnevenCall u;
  for (int r = 0; r < setup.ranks; ++r) {
    const std::size_t count = setup.shape.count;
    u.counts.push_back(r == 1 ? 0 : count + static_cast<std::size_t>(r) * (count / 3));
  }
  const auto self = static_cast<std::size_t>(setup.rank);
  std::size_t total = 0;
  std::size_t mine = 0;  // where this rank's block begins in the large buffer
  std::vector<perf::Patch> gathered;
  for (std::size_t r = 0; r < u.counts.size(); ++r) {
    if (r == self) mine = total;
    gathered.push_back({perf::Content::input, static_cast<int>(r), guard + total, u.counts[r], 0});
    total += u.counts[r];
  }
  perf::Expectation& e = u.images;
  const std::size_t large = total + 2 * guard;
  const std::size_t small = u.counts[self] + 2 * guard;
  if (setup.collective == Collective::all_gather_v) {
    e.receive_after = {large, gathered};
    if (setup.in_place) {
      e.receive_before = {large, {gathered[self]}};
      u.in_offset = mine;
    } else {
      e.send = {small, {{perf::Content::input, setup.rank, guard, u.counts[self], 0}}};
      e.receive_before = {large, {}};
    }
  } else {
    const perf::Patch all{perf::Content::input, setup.rank, guard, total, 0};
    const std::size_t at = setup.in_place ? mine : 0;
    const perf::Patch result{perf::Content::reduction, 0, guard + at, u.counts[self], mine};
    u.out_offset = at;
    if (setup.in_place) {
      e.receive_before = {large, {all}};
      e.receive_after = {large, {all, result}};
    } else {
      e.send = {large, {all}};
      e.receive_before = {small, {}};
      e.receive_after = {small, {result}};
    }
  }
  return u;
}

}  // namespace tutti::test
