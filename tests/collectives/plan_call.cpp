// The definitions of the collectives, on numbers.
#include "tests/collectives/plan_call.h"

#include <stdexcept>

namespace tutti::test {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  a = (a ^ (b + 0x9e3779b97f4a7c15U + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdU;
  return a ^ (a >> 29);
}

Place Call::place(int rank, Space space, int tile, std::uint32_t chunk) const {
  const PlanHeader& h = header_;
  if (space == Space::tmp) return {rank, Space::tmp, 0, chunk};
  if (space == Space::in && in_place_) {
    if (const auto block = in_place_block(h.collective, h.ranks, rank, h.root, chunk / h.pieces)) {
      return {rank, Space::out, tile, *block * h.pieces + chunk % h.pieces};
    }
  }
  return {rank, space, tile, chunk};
}

std::uint32_t Call::length(int rank, Space space, std::uint32_t chunk) const {
  const std::uint64_t piece = chunk % header_.pieces;
  const std::uint64_t block = chunk / header_.pieces;
  const auto self = static_cast<std::uint64_t>(rank);
  std::uint64_t which = 0;
  if (header_.collective == Collective::all_gather_v) which = space == Space::in ? self : block;
  if (header_.collective == Collective::reduce_scatter_v) {
    which = space == Space::out ? self : block;
  }
  if (header_.collective == Collective::all_to_all_v) {
    which = space == Space::in ? self * 1000 + block : block * 1000 + self;
  }
  return 1 + static_cast<std::uint32_t>(mix(mix(salt_, which), piece) % 1000);
}

Number Call::input(int rank, int tile, std::uint32_t chunk) const {
  const std::uint64_t who =
      mix(mix(salt_, static_cast<std::uint64_t>(rank) + 1), static_cast<std::uint64_t>(tile) + 1);
  const std::uint64_t id = mix(who, chunk);
  return {id, mix(id, 1), true, 0, length(rank, Space::in, chunk)};
}

Number Call::total(int tile, std::uint32_t chunk) const {
  Number n{0, 0, true, 1, 0};
  for (int r = 0; r < header_.ranks; ++r) n.sum += scale() * input(r, tile, chunk).sum;
  return n;
}

Number Call::expected(int rank, int tile, std::uint32_t chunk) const {
  const PlanHeader& h = header_;
  const auto block = static_cast<int>(chunk / h.pieces);
  const std::uint32_t piece = chunk % h.pieces;
  const std::uint32_t own = static_cast<std::uint32_t>(rank) * h.pieces + piece;
  switch (h.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return total(tile, chunk);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
      return total(tile, own);
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::gather:
      return input(block, tile, piece);
    case Collective::broadcast:
      return input(h.root, tile, piece);
    case Collective::scatter:
      return input(h.root, tile, own);
    case Collective::all_to_all:
    case Collective::all_to_all_v:
      return input(block, tile, own);
    case Collective::send_recv:
      return input((rank + h.ranks - 1) % h.ranks, tile, piece);
    case Collective::barrier:
      break;
  }
  throw std::logic_error("a barrier has no out");
}

}  // namespace tutti::test
