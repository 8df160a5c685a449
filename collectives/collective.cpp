#include "collectives/collective.h"

#include <array>

namespace tutti {
namespace {

constexpr std::array<std::string_view, kCollectives> kNames = {
    "all_reduce",   "all_gather", "reduce_scatter", "broadcast",    "reduce",
    "gather",       "scatter",    "all_to_all",     "all_gather_v", "reduce_scatter_v",
    "all_to_all_v", "send_recv",  "barrier"};

}  // namespace

std::string_view name(Collective c) {
  return is_valid(c) ? kNames[static_cast<std::size_t>(c)] : "?";
}

std::optional<Collective> parse_collective(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::uint32_t in_blocks(Collective c, int ranks, int rank, int root) {
  const auto n = static_cast<std::uint32_t>(ranks);
  switch (c) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::reduce:
    case Collective::gather:
    case Collective::send_recv:
      return 1;
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return n;
    case Collective::broadcast:
      return rank == root ? 1 : 0;
    case Collective::scatter:
      return rank == root ? n : 0;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::uint32_t out_blocks(Collective c, int ranks, int rank, int root) {
  const auto n = static_cast<std::uint32_t>(ranks);
  switch (c) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::send_recv:
      return 1;
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return n;
    case Collective::reduce:
      return rank == root ? 1 : 0;
    case Collective::gather:
      return rank == root ? n : 0;
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::optional<std::uint32_t> in_place_block(Collective c, int ranks, int rank, int root,
                                            std::uint32_t block) {
  const auto self = static_cast<std::uint32_t>(rank);
  if (block >= in_blocks(c, ranks, rank, root)) return std::nullopt;
  switch (c) {
    case Collective::all_reduce:
    case Collective::broadcast:
      return 0;
    case Collective::reduce:
      return rank == root ? std::optional<std::uint32_t>(0) : std::nullopt;
    case Collective::all_gather:
    case Collective::all_gather_v:
      return self;
    case Collective::gather:
      return rank == root ? std::optional(self) : std::nullopt;
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scatter:
      return block == self ? std::optional<std::uint32_t>(0) : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool has_in_place(Collective c) {
  return c != Collective::all_to_all && c != Collective::all_to_all_v &&
         c != Collective::send_recv && c != Collective::barrier;
}

}  // namespace tutti
