// A tensor's boxes, which may overlap, as parts that do not: each with the pieces that have it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/reshard/layout.h"

namespace tutti::parallel::reshard {

struct Part {
  Box box;
  std::vector<std::uint32_t> pieces;  // their numbers, ascending
};

/// All elements that pieces have. Pieces with equal boxes share parts. Takes n log n time, where
/// boxes that differ do not overlap.
std::vector<Part> partition(std::span<const Piece> pieces);

/// The dimension in which boxes begin at the most places: an order of the boxes by it says most.
std::size_t most_cut(std::span<const Part> parts);

/// Finds the parts that overlap a box.
class PartIndex {
 public:
  /// `parts` outlives it; it puts them into another order.
  explicit PartIndex(std::vector<Part>& parts);
  /// Calls use(part) for each.
  template <class Use>
  void each(const Box& box, const Use& use) const {
    if (parts_.empty()) return;
    if (box.dimensions() == 0) return use(parts_.front());
    for (std::size_t i = first(box); i < parts_.size() && parts_[i].box[by_].begin < box[by_].end;
         ++i) {
      if (overlap(parts_[i].box, box)) use(parts_[i]);
    }
  }

 private:
  std::size_t first(const Box& box) const;
  std::span<const Part> parts_;
  std::size_t by_ = 0;
  std::uint64_t longest_ = 0;  // part in that dimension
};

}  // namespace tutti::parallel::reshard
