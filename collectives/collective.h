// The collectives, and the shape of their buffers: how many blocks `in` and `out` have on each
// rank, which block is which, and the blocks that coincide in an in-place call (NCCL's rules).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  send_recv,  // point to point; as a plan: every rank sends to the next and receives from the
              // previous
  barrier,
};
inline constexpr int kCollectives = 13;

std::string_view name(Collective c);
std::optional<Collective> parse_collective(std::string_view text);

constexpr bool is_valid(Collective c) { return static_cast<int>(c) < kCollectives; }
constexpr bool is_rooted(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}
constexpr bool is_reduction(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter ||
         c == Collective::reduce_scatter_v || c == Collective::reduce;
}
/// Whether blocks may have different sizes.
constexpr bool is_v(Collective c) {
  return c == Collective::all_gather_v || c == Collective::reduce_scatter_v ||
         c == Collective::all_to_all_v;
}

/// Whether links may carry 8 bits for an element of it (format.h).
constexpr bool is_compressible(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter;
}

/// Blocks of rank `rank`'s input and output buffer; 0: the rank has no such buffer.
///
///     collective        in                out
///     all_reduce        1                 1
///     all_gather(_v)    1                 n
///     reduce_scatter(_v) n                1
///     broadcast         1 on the root     1
///     reduce            1                 1 on the root
///     gather            1                 n on the root
///     scatter           n on the root     1
///     all_to_all(_v)    n                 n
///     send_recv         1                 1
///     barrier           0                 0
std::uint32_t in_blocks(Collective c, int ranks, int rank, int root);
std::uint32_t out_blocks(Collective c, int ranks, int rank, int root);

/// In place, block `block` of `in` is this block of `out` (the same memory); nullopt if `in` is
/// outside of `out`, or if the collective has no in-place form (all_to_all, send_recv).
///
///     all_reduce, reduce (root), broadcast (root): 0 -> 0
///     all_gather(_v): 0 -> rank;  gather (root): 0 -> rank
/// For reduce_scatter and scatter `out` lies inside of `in`: out's block 0 is in's block `rank`. So
/// this maps block `rank` -> 0 and every other block to nullopt.
std::optional<std::uint32_t> in_place_block(Collective c, int ranks, int rank, int root,
                                            std::uint32_t block);
/// Whether the collective has an in-place form at all.
bool has_in_place(Collective c);

}  // namespace tutti
