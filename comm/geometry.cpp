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

ConnectionShape links_for(ConnectionShape wish, int ranks, bool crowded, bool one_per_host) {
  constexpr std::size_t kLeast = 8;
  constexpr std::size_t kMost = 32;
  // That all of a rank's links are to have, about.
  constexpr std::size_t kLinksBytes = std::size_t{8} << 20;
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
  // Else a link should exceed a core's L2 cache (transport/connection.h).
  return {kMost, wish.slot_bytes, std::clamp(kLinksBytes / links / wish.slot_bytes, kLeast, kMost)};
}

}  // namespace tutti
