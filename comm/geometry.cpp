// See geometry.h.
#include "comm/geometry.h"

#include <algorithm>

#include "core/settings.h"

namespace tutti {

Geometry geometry_of(const Options& options, int rank) {
  Geometry g;
  g.shape = {options.slots, (options.slot_bytes + kCacheLine - 1) / kCacheLine * kCacheLine};
  g.tile_bytes = setting_bytes("TUTTI_TILE_BYTES");
  g.windows = setting_boolean("TUTTI_WINDOWS");
  g.round_once = options.round_once;
  g.invariant = options.invariant;
  if (rank == 0) g.machine = used_machine().machine;
  return g;
}

ConnectionShape links_for(ConnectionShape wish, int ranks, bool crowded, bool one_per_host,
                          double l2_bytes) {
  constexpr std::size_t kLeast = 8;
  constexpr std::size_t kMost = 32;
  // That all of a rank's links are to have, about.
  constexpr std::size_t kLinksBytes = std::size_t{8} << 20;
  constexpr double kLargeL2 = 2 << 20;
  const auto links = static_cast<std::size_t>(std::max(ranks - 1, 1));
  if (wish.slot_bytes == 0) {
    constexpr std::size_t kNear = std::size_t{64} << 10, kFar = std::size_t{512} << 10;
    wish.slot_bytes = one_per_host
                          ? std::clamp(kLinksBytes / links / kLeast / kNear * kNear, kNear, kFar)
                          : kNear;
  }
  if (wish.slots > 0) return wish;
  // Ranks that share a core share its caches: the less data goes round, the more stays there.
  if (crowded) return {kMost, wish.slot_bytes, kLeast};
  std::size_t most_bytes = kLinksBytes / links;
  // Half of a large L2 cache; else a link should exceed it (transport/host/connection.h).
  if (!one_per_host && l2_bytes >= kLargeL2) {
    most_bytes = std::min(most_bytes, static_cast<std::size_t>(l2_bytes) / 2);
  }
  return {kMost, wish.slot_bytes, std::clamp(most_bytes / wish.slot_bytes, kLeast, kMost)};
}

}  // namespace tutti
