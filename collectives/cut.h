// Cutting a call into tiles, and its way of writing. The executor uses this, and predictions must
// know it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/connection_shape.h"
#include "collectives/layout.h"
#include "collectives/plan.h"
#include "core/wide.h"

namespace tutti {

/// Where a plan's data go.
struct DataPath {
  bool windows = false;   // they address other ranks' memory:
  bool buffers = false;   // in or out, which are the user's, and not tmp alone, which is Tutti's
  bool link_data = true;  // links carry data, not only signals
  /// Chunks of tmp of the rank that has the most, if that may be many (users' plans), or if other
  /// ranks address them: more chunks make smaller tiles.
  std::uint32_t tmp_chunks = 0;
  /// All that is moved comes from inputs, so no step needs what another one has moved.
  bool from_inputs = false;

  /// All data go through tmp, where all ranks of a host read them.
  constexpr bool shares_tmp() const { return windows && !buffers; }
};

/// The most tmp that a rank should have; more only if chunks are a cache line each.
inline constexpr std::size_t kMostTmp = std::size_t{64} << 20;
/// The most tmp where all data go through it, as through slots: it should stay in the caches.
inline constexpr std::size_t kMostSharedTmp = std::size_t{1} << 20;

/// Bytes that a slot must have for the plan, whatever the type: a line of each chunk.
constexpr std::size_t least_slot(const PlanHeader& header) {
  const std::size_t line = header.format == Format::wide ? kMostWidening * kCacheLine : kCacheLine;
  return header.widest * line;
}

/// Whether links of this shape are enough for the plan.
constexpr bool links_suffice(const PlanHeader& header, ConnectionShape links) {
  return header.slots <= links.full_slots() && links.slot_bytes >= least_slot(header);
}
/// Bytes of links and tmp that each byte of plain elements takes, at most.
constexpr std::size_t widening(const PlanHeader& header, DataType type) {
  return header.format == Format::wide ? size_of(accumulation_type(type)) / size_of(type) : 1;
}

/// A message that fits into one slot is cut into a few pieces, so that the receiver reads it while
/// the sender writes it. No piece is smaller than this.
inline constexpr std::size_t kLeastPiece = std::size_t{16} << 10;
/// The least piece where ranks share out a block: all of them write at once, so nobody would be
/// idle meanwhile (docs/experiments.md#pieces-of-a-block-that-ranks-share-out).
inline constexpr std::size_t kLeastSharedPiece = std::size_t{32} << 10;
/// The least piece between hosts: there the network cuts a message into pieces anyway, and each
/// piece costs a system call or two (docs/experiments.md).
inline constexpr std::size_t kLeastFarPiece = std::size_t{512} << 10;

/// `block`: elements of the largest block. `bytes`: of the largest buffer. `tile_bytes`: see
/// TUTTI_TILE_BYTES.
inline Tiling cut(const PlanHeader& header, DataPath path, std::size_t block, std::size_t bytes,
                  DataType type, ConnectionShape links, std::size_t tile_bytes,
                  std::size_t least_piece = kLeastPiece) {
  const std::size_t element_bytes = size_of(type);
  // Without windows always, because tmp has the size of a tile.
  std::size_t chunk = SIZE_MAX;
  if (path.link_data || !path.windows) {
    // If only the two ends know a block's size, `block` is 0.
    const std::size_t quarter = block * element_bytes / (std::size_t{4} * header.pieces);
    chunk = links.slot_bytes / header.widest / widening(header, type);
    if (header.pieces > 1) least_piece = std::max(least_piece, kLeastSharedPiece);
    if (block > 0) chunk = std::min(chunk, std::max(quarter, least_piece));
  }
  if (path.windows) {
    const std::size_t blocks =
        block == 0 ? 1 : std::max<std::size_t>(bytes / element_bytes / block, 1);
    chunk = std::min(chunk, tile_bytes / (header.pieces * blocks));
  }
  if (path.tmp_chunks > 0) {
    const std::size_t most = path.shares_tmp() ? kMostSharedTmp : kMostTmp;
    chunk = std::min(chunk, most / path.tmp_chunks / widening(header, type));
  }
  return Tiling::of(block, element_bytes, header.pieces, chunk);
}

/// Bytes of the slots of one rank's connections that a plan sends data through, or receives it, if
/// those are more.
std::size_t slots_in_use(const RankPlan& plan, ConnectionShape links);

/// The memory of a call that competes for the caches. `bytes`: of the largest buffer; `slots`:
/// slots_in_use() of the rank that uses the most.
constexpr std::size_t bytes_in_caches(std::size_t bytes, std::size_t slots, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t buffers = 2 * bytes * n;
  // A call reuses slots again and again, and touches no more of them than its data need.
  return buffers + std::min(slots * n, buffers);
}
/// Whether to write results past the caches: they would not stay there.
constexpr bool writes_past_caches(std::size_t in_caches, std::size_t l3_bytes) {
  return in_caches >= l3_bytes;
}
/// Whether that is only a guess.
constexpr bool may_fit_caches(std::size_t in_caches, std::size_t l3_bytes) {
  return in_caches > l3_bytes / 2 && in_caches < 2 * l3_bytes;
}

/// Copies by the kernel from other processes, and to them, go through memory of this process, in
/// pieces of this many bytes: the pieces of all sources and of the result fit half of a usual L2
/// cache.
constexpr std::size_t copied_piece(std::size_t sources) {
  constexpr std::size_t kAtOnce = std::size_t{512} << 10;
  constexpr std::size_t kPage = 4096;
  return std::max(kAtOnce / (sources + 1) / kPage * kPage, kPage);
}

}  // namespace tutti
