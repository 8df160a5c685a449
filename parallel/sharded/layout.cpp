#include "parallel/sharded/layout.h"

#include <algorithm>

namespace tutti::parallel {
namespace {

std::size_t divide_up(std::size_t n, std::size_t by) { return (n + by - 1) / by; }
std::size_t align_up(std::size_t n, std::size_t to) { return divide_up(n, to) * to; }

}  // namespace

UnitLayout::UnitLayout(const Unit& unit, Layout layout, std::size_t ranks, std::size_t alignment)
    : ranks_(ranks) {
  const auto add_piece = [&](std::size_t block) {
    pieces_.push_back({block, full_, shard_});
    full_ += align_up(block * ranks, alignment);
    shard_ += align_up(block, alignment);
    gathered_ += block * ranks;
  };
  std::size_t flat = 0;
  for (const UnitParameter& p : unit.parameters) {
    parameters_ += p.count;
    if (layout == Layout::by_parameter) {
      offsets_.push_back(full_);
      held_.push_back({pieces_.size(), p.count});
      add_piece(p.rows == 0 ? 0 : divide_up(p.rows, ranks) * (p.count / p.rows));
    } else {
      offsets_.push_back(flat);
      held_.push_back({0, p.count});
      flat = align_up(flat + p.count, alignment);
    }
  }
  // Nothing stands after the last parameter but what the ranks' equal blocks need.
  if (layout == Layout::flat && !unit.parameters.empty()) {
    flat = offsets_.back() + unit.parameters.back().count;
    add_piece(align_up(divide_up(flat, ranks), alignment));
  }
}

LocalRange UnitLayout::local(std::size_t parameter, std::size_t rank) const {
  const Held& held = held_[parameter];
  const Piece& piece = pieces_[held.piece];
  // From here on within the piece.
  const std::size_t first = offsets_[parameter] - piece.full_offset, last = first + held.count;
  const std::size_t block = rank * piece.block;
  const std::size_t begin = std::clamp(block, first, last);
  const std::size_t end = std::clamp(block + piece.block, first, last);
  if (begin == end) return {};
  return {.begin = begin - first,
          .count = end - begin,
          .shard_offset = piece.shard_offset + (begin - block),
          .full_offset = piece.full_offset + begin};
}

}  // namespace tutti::parallel
