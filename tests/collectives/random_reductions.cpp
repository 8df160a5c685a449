// Units of random plans that add up: each along a random tree, whose ranks take all messages at
// once or one by one, or look at their children's memory through a window.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/collectives/random_plan_maker.h"

namespace tutti::test {
namespace {

int message_of(int child) { return child; }

}  // namespace

void RandomPlanMaker::add_reductions(const std::vector<Run>& runs) {
  const bool scatters = header_.collective == Collective::reduce_scatter ||
                        header_.collective == Collective::reduce_scatter_v;
  const int blocks = scatters ? header_.ranks : 1;
  for (const Run& run : runs) {
    const auto lanes = any_lanes();
    for (int b = 0; b < blocks; ++b) {
      Unit& u = new_unit(scatters ? any_lanes() : lanes);
      const std::uint32_t chunk = static_cast<std::uint32_t>(b) * header_.pieces + run.first;
      const bool everywhere = header_.collective == Collective::all_reduce;
      const int home = scatters ? b : everywhere ? any_rank() : header_.root;
      add_reduction(u, run, chunk, home, everywhere);
    }
  }
}

void RandomPlanMaker::add_reduction(Unit& u, const Run& run, std::uint32_t chunk, int home,
                                    bool everywhere) {
  const auto order = shuffled_ranks();
  std::vector<int> members{home};
  for (const int r : order) {
    if (r != home) members.push_back(r);
  }
  // A random tree over `members`: parents come first, so children send before them from the back.
  std::vector<std::vector<int>> children(members.size());
  for (std::size_t i = 1; i < members.size(); ++i) {
    children[below(static_cast<std::uint32_t>(i))].push_back(static_cast<int>(i));
  }
  std::vector<int> parent(members.size(), 0);
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const int c : children[i]) parent[static_cast<std::size_t>(c)] = static_cast<int>(i);
  }
  for (std::size_t i = members.size(); i-- > 0;) {
    const int rank = members[i];
    const bool is_home = i == 0;
    std::vector<End> come;
    for (const int c : children[i]) {
      come.push_back({members[static_cast<std::size_t>(c)], message_of(c)});
    }
    std::shuffle(come.begin(), come.end(), random_);
    Event last = event(rank, run);
    last.shape = in(chunk);
    last.memory_from = {in(chunk)};
    // Some ranks that have nothing but their own input are looked at, through a window.
    std::vector<int> looked_at;
    for (const int r : fetched_) {
      if (std::ranges::find(come, r, &End::peer) == come.end()) continue;
      std::erase_if(come, [&](const End& end) { return end.peer == r; });
      looked_at.push_back(r);
      last.memory_from.push_back(in(chunk).at(r));
    }
    std::erase_if(fetched_,
                  [&](int r) { return std::ranges::find(looked_at, r) != looked_at.end(); });
    for (const int r : looked_at) signal(u, r, rank, 200 + r);
    if (!is_home && come.empty() && looked_at.empty() && windows_ && coin()) {
      fetched_.push_back(rank);
      continue;
    }
    if (come.size() > 1 && looked_at.empty() && coin()) {  // one by one, by way of tmp
      const std::uint32_t t = more_tmp(rank, run.count);
      Event first = last;
      first.memory_to = {tmp(t)};
      first.receives = {come.back()};
      come.pop_back();
      u.events.push_back(first);
      last.memory_from = {tmp(t)};
    }
    last.receives = come;
    if (is_home) {
      last.memory_to = {
          out(everywhere || header_.collective == Collective::reduce ? chunk : run.first)};
      last.completes = true;
    } else {
      last.sends = {
          {members[static_cast<std::size_t>(parent[i])], message_of(static_cast<int>(i))}};
    }
    u.events.push_back(last);
    for (const int r : looked_at) signal(u, rank, r, 300 + r);
  }
  if (everywhere) spread(u, run, out(chunk), members, out(chunk));
}

}  // namespace tutti::test
