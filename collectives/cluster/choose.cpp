// See choose.h.
#include "collectives/cluster/choose.h"

#include <fmt/format.h>

#include <limits>

#include "collectives/cluster/parts.h"
#include "core/error.h"

namespace tutti::cluster {
namespace {

/// Stages that overlap may gain as much, and no more.
constexpr double kHopeless = 8;

}  // namespace

Prediction choose(const Cluster& c, const Call& call) {
  Prediction best;
  best.us = std::numeric_limits<double>::infinity();
  const double block = block_of(call.collective, call.bytes, c.ranks());
  for (const Algorithm& a : algorithms()) {
    if (a.collective != call.collective || a.windows) continue;
    const Parts parts(c, call.collective, a.name);
    const PartOf part = [&](int rank) { return parts(rank); };
    try {
      part(0);
    } catch (const Error&) {
      continue;  // not for so many ranks
    }
    for (const Protocol p : kProtocols) {
      if (!c.possible(p)) continue;
      double before = std::numeric_limits<double>::infinity();
      for (int tiles = 1; tiles <= kMostTiles; tiles *= 4) {
        if (tiles > 1 && call.bytes / tiles < kLeastTile) break;
        const double us = time_of(c, part, block, p, tiles) + c.constants().call(p);
        // With more tiles it gets better and then worse; far behind, it will not win.
        if (us >= before || us > kHopeless * best.us) break;
        before = us;
        if (us < best.us) best = {us, std::string(a.name), p, tiles};
      }
    }
  }
  if (best.algorithm.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no plan without windows does {}", name(call.collective)));
  }
  best.us += (call.gpus_of_thread - 1) * c.constants().launch_more;
  return best;
}

}  // namespace tutti::cluster
