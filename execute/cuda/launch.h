// Everything but the plan that a launch hands to the kernel: addresses, the operator, and the words
// through which host and kernel talk while it runs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.h"
#include "execute/cuda/plan_block.h"
#include "execute/cuda/segment.h"

namespace tutti::device {

enum class Trouble : std::uint64_t {
  none,
  timed_out,  // the deadline has passed
  late,       // no failure: a wait is long
  mismatch,   // a message of another operation, or of another size
  window,     // a peer named memory that is not in its windows
};

/// The first failure of a rank, or a long wait, written by one thread of one of its blocks.
struct Report {
  std::uint64_t trouble;   // Trouble; not none: the rest is there (release)
  std::uint64_t messages;  // 1: of sends and receives, which have no number
  std::uint64_t operation;
  std::uint64_t lane, copy, tile, step;
  std::uint64_t peer;      // waited for, or at fault
  std::uint64_t sending;   // 1: waited for a free slot, else for a message
  std::uint64_t expected;  // mismatch: what the header should have said
  std::uint64_t found;
};

/// Memory of the host that a running kernel looks at and writes; one per rank.
struct Control {
  std::uint64_t abort;       // not 0: leave every wait
  std::uint64_t timeout_ns;  // of one wait; 0: none
  std::uint64_t late_ns;     // a wait this long is told; 0: none is
  Report report;
  Report late;  // when the host has read it, it makes its trouble `none` again
};

/// The kernels of a type, which are one source. Of those that can walk a plan the shortest is the
/// fastest: a short call takes as long as its instructions take to come, each time.
enum class KernelKind : std::uint8_t {
  any,
  words,      // of plans that send all data by LL
  windows,    // of plans whose data go through windows alone
  canonical,  // sums and products of floats are in the canonical order (canonical_order.h)
};
inline constexpr int kKernelKinds = 4;

/// One rank's part of a launch.
struct RankLaunch {
  const std::byte* plan;       // PlanBlock
  std::byte* segment;          // its own
  std::byte* const* segments;  // of all ranks, as mapped here
  // Of a segment in memory of the host, by SegmentShape::data_row(): where the data of Simple slots
  // are, as if the connection was there. Null: in the connections.
  std::byte* const* data;
  Control* control;
  std::byte* in;
  std::byte* out;
  std::byte* tmp;             // copies x tmp_stride
  BufferAddresses addresses;  // what its signals say of in, out, tmp
  std::uint64_t scalar;
  std::uint64_t signature;  // a hash of the call, which messages carry
  std::uint32_t rank;
  std::uint32_t plan_bytes;   // PlanBlock::bytes, so that nobody has to look there first
  std::uint32_t first_block;  // of the launch
  std::uint32_t blocks;       // from there on: lanes x copies
  ReduceKind kind;
  KernelKind kernel;  // that walks the plan; of all ranks of a launch
  bool is_plain;   // its buffers begin at multiples of 8, and its reduction is a sum: plain moves
  bool is_signed;  // its integers; the kernels are those of unsigned ones
};

inline constexpr std::uint32_t kMostRanks = 16;  // of one launch; kernel parameters are 4 KB

/// Ranks of one process and one GPU that take part in an operation: one kernel for all of them,
/// so that none has to wait for another's to be scheduled.
struct Launch {
  SegmentLayout shape;
  std::uint32_t ranks;
  std::uint32_t ranks_per_block;  // times 2^24, rounded up, where all have as many blocks, else 0
  RankLaunch rank[kMostRanks];

  /// The rank of a block, and its part of the launch.
  TUTTI_HD const RankLaunch& rank_of(std::uint32_t block) const {
    // Each look at a parameter whose number is not known before takes a while.
    std::uint32_t r = ranks - 1;
    if (ranks_per_block != 0) {
      r = static_cast<std::uint32_t>(std::uint64_t{block} * ranks_per_block >> 24);
    } else {
      TUTTI_NO_UNROLL
      while (rank[r].first_block > block) --r;
    }
    return rank[r];
  }

  /// The kernel that can do all of them. (Of one plan a rank may have too much for the short ones.)
  KernelKind kernel() const {
    for (std::uint32_t r = 1; r < ranks; ++r) {
      if (rank[r].kernel != rank[0].kernel) return KernelKind::any;
    }
    return rank[0].kernel;
  }
};
static_assert(sizeof(Launch) <= 4096);

}  // namespace tutti::device
