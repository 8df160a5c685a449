// How a call is cut into tiles, and how it writes: what the executor does, and what a prediction
// must know.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/layout.h"
#include "collectives/plan.h"
#include "transport/connection.h"

namespace tutti {

/// What a plan's steps use.
struct Reach {
  bool windows = false;   // they address other ranks' memory
  bool link_data = true;  // links carry data, not only signals
  /// Chunks of tmp of the rank that has the most, where that may be many (users' plans): the
  /// tiles are the smaller.
  std::uint32_t tmp_chunks = 0;
};

/// So much tmp a rank is to have at most; more only where chunks are a cache line each.
inline constexpr std::size_t kMostTmp = std::size_t{64} << 20;

/// Whether links of this shape are enough for the plan.
constexpr bool links_suffice(const PlanHeader& header, ConnectionShape links) {
  return header.slots <= links.full_slots() && links.slot_bytes / header.widest >= kCacheLine;
}

/// A message that a slot could hold goes in a few, so that it is read while it is written; but not
/// in less than this.
inline constexpr std::size_t kLeastPiece = std::size_t{16} << 10;
/// The same between hosts: there a message is on its way in pieces anyway, and each costs a call of
/// the kernel or two (docs/experiments.md).
inline constexpr std::size_t kLeastFarPiece = std::size_t{512} << 10;

/// `block`: elements of the largest block. `bytes`: of the largest buffer. `tile_bytes`: see
/// TUTTI_TILE_BYTES.
inline Tiling cut(const PlanHeader& header, Reach reach, std::size_t block, std::size_t bytes,
                  std::size_t element_bytes, ConnectionShape links, std::size_t tile_bytes,
                  std::size_t least_piece = kLeastPiece) {
  // Without windows always, because tmp has the size of a tile.
  std::size_t chunk = SIZE_MAX;
  if (reach.link_data || !reach.windows) {
    // Where only the two ends know a block's size, `block` is 0.
    const std::size_t quarter = block * element_bytes / (std::size_t{4} * header.pieces);
    chunk = links.slot_bytes / header.widest;
    if (block > 0) chunk = std::min(chunk, std::max(quarter, least_piece));
  }
  if (reach.windows) {
    const std::size_t blocks =
        block == 0 ? 1 : std::max<std::size_t>(bytes / element_bytes / block, 1);
    chunk = std::min(chunk, tile_bytes / (header.pieces * blocks));
  }
  if (reach.tmp_chunks > 0) chunk = std::min(chunk, kMostTmp / reach.tmp_chunks);
  return Tiling::of(block, element_bytes, header.pieces, chunk);
}

/// Bytes of the slots of one rank's connections that a plan sends data through, or receives it, if
/// those are more.
std::size_t slots_in_use(const RankPlan& plan, ConnectionShape links);

/// What a call has in the caches. `bytes`: of the largest buffer; `slots`: slots_in_use() of the
/// rank that uses the most.
constexpr std::size_t bytes_in_caches(std::size_t bytes, std::size_t slots, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t buffers = 2 * bytes * n;
  // Slots come round again and again, and no more of them than data goes through.
  return buffers + std::min(slots * n, buffers);
}
/// Whether results are written past the caches: they would not stay there.
constexpr bool writes_past_caches(std::size_t in_caches, std::size_t l3_bytes) {
  return in_caches >= l3_bytes;
}
/// Whether that is only a guess.
constexpr bool may_fit_caches(std::size_t in_caches, std::size_t l3_bytes) {
  return in_caches > l3_bytes / 2 && in_caches < 2 * l3_bytes;
}

/// What the kernel copies from other processes, and then to them, goes through memory of ours, in
/// pieces of so many bytes: those of all sources and of the result fit half of a usual L2 cache.
constexpr std::size_t copied_piece(std::size_t sources) {
  constexpr std::size_t kAtOnce = std::size_t{512} << 10;
  constexpr std::size_t kPage = 4096;
  return std::max(kAtOnce / (sources + 1) / kPage * kPage, kPage);
}

}  // namespace tutti
