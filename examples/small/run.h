// 6. Running a plan: the one function that moves data, whatever the collective and the algorithm.
//
// A rank goes through its steps. For each step it waits until all sources are there and all
// destinations have room, combines, publishes the messages that it has written and frees those that
// it has read. The messages are written where they lie: the sum of a step goes straight into the
// slot.
//
// A plan counts in chunks, a call in elements. A long call is cut into *tiles*, so that a chunk
// fits in a slot, and the steps are repeated for each tile (chunk_of()).
//
// In the library: collectives/layout.h (chunks), core/combine.h (sums, with the machine's vector
// instructions; other operators and types), execute/ (cores and GPUs; started calls,
// several lanes), comm/ (Communicator, which keeps plans and chooses among them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "job.h"
#include "verify.h"

namespace small {

enum class Type { int32, int64, float32, float64 };

std::size_t size_of(Type type);

/// What all ranks call together. `count`: elements of one block. `in` has in_blocks() blocks, `out`
/// has out_blocks(), and they do not overlap.
struct Call {
  Type type;
  std::size_t count;
  const void* in;
  void* out;
};

/// Makes the call by the plan. Integers wrap. Throws Error when a wait ends at its deadline, when
/// another rank has failed, and when ranks' calls do not match; then the job is over.
void run(Job& job, const Proved& plan, const Call& call);

/// A chunk: elements `begin` to `begin + count` of its block.
struct Extent {
  std::size_t begin;
  std::size_t count;
};

/// How a block is cut: into tiles, and these into pieces. All ranks cut alike, as nothing local
/// counts.
struct Cut {
  std::size_t block;   // elements
  std::size_t grain;   // elements of 64 bytes, which are not divided while there are enough
  std::size_t pieces;  // of a tile
  std::size_t tile;    // elements
  std::size_t tiles;

  Cut(std::size_t block, std::size_t element_bytes, std::size_t pieces, std::size_t slot_bytes);
  Extent piece(std::size_t tile_index, std::size_t piece_index) const;
};

}  // namespace small
