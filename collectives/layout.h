// From chunks to bytes: the one place that computes the place of a chunk in a call's buffers.
//
// A block of N elements is cut into tiles of `tile` elements, each tile into `pieces` chunks, in
// whole 64-byte grains while there are enough of them, so that SIMD loops and cache lines are not
// shared between ranks. Chunks may be empty. Every reader of a plan uses these functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// A run of elements.
struct Extent {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Elements per 64-byte grain.
constexpr std::size_t grain(std::size_t element_bytes) { return 64 / element_bytes; }

/// The cut of a call. The same on all ranks, because it depends on nothing local.
struct Tiling {
  std::size_t tile = 0;   // elements of each block per tile; a multiple of pieces * grain
  std::size_t tiles = 1;  // of the largest block; at least 1, so that signals are exchanged

  /// `block`: elements of the largest block. `chunk_bytes`: the most bytes of a chunk of a tile.
  static Tiling of(std::size_t block, std::size_t element_bytes, std::uint32_t pieces,
                   std::size_t chunk_bytes) {
    const std::size_t g = grain(element_bytes);
    const std::size_t most = std::max<std::size_t>(chunk_bytes / 64, 1) * g * pieces;
    Tiling t;
    if (block <= most) {
      t.tile = most;
      return t;
    }
    t.tiles = (block + most - 1) / most;
    // Even tiles: a short last one would cost a whole round of synchronisation.
    const std::size_t even = (block + t.tiles - 1) / t.tiles;
    t.tile = (even + g * pieces - 1) / (g * pieces) * (g * pieces);
    t.tiles = (block + t.tile - 1) / t.tile;
    return t;
  }
};

/// Piece `piece` of tile `t` of a block of `block` elements.
constexpr Extent chunk_extent(const Tiling& tiling, std::size_t t, std::size_t block,
                              std::size_t element_bytes, std::uint32_t pieces,
                              std::uint32_t piece) {
  const std::size_t first = std::min(block, t * tiling.tile);
  const std::size_t length = std::min(block - first, tiling.tile);
  if (pieces == 1) return {first, length};
  const std::size_t g = grain(element_bytes);
  const std::size_t grains = (length + g - 1) / g;
  const std::size_t begin = std::min(length, grains * piece / pieces * g);
  const std::size_t end = std::min(length, grains * (piece + 1) / pieces * g);
  return {first + begin, end - begin};
}

}  // namespace tutti
