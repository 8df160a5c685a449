// Random pairs of layouts, the memory of all their ranks, and what is right there, element by
// element: a reference that shares nothing with the engine but the data structures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "parallel/reshard/pack.h"
#include "parallel/reshard/plan.h"

namespace tutti::parallel::reshard::test {

struct Case {
  Layout from, to;
  PlanOptions options;
};

/// 1 to 16 ranks on 1 to 4 hosts, which hold and need tensors of 1 to 4 dimensions: sharded, evenly
/// or not, replicated, as units, by owner, in boxes by hand, packed or with other strides. The sets
/// of ranks are equal, overlap, or are disjoint.
Case random_case(std::uint64_t seed);

/// The memory of a rank for a layout. Every byte that is no element is kGap.
struct RankMemory {
  static constexpr std::byte kGap{0xA5};
  std::vector<std::vector<std::byte>> buffers;
  std::vector<void*> pointers;
  std::vector<const void*> sources;
  RankMemory() = default;
  RankMemory(const Layout& layout, int rank);
  RankMemory(RankMemory&&) = default;
  RankMemory& operator=(RankMemory&&) = default;
};

/// Calls use(the element's number in the tensor, its byte in the buffer) for each element of `box`
/// in the piece.
template <class Use>
void each_element(const Tensor& tensor, const Piece& piece, const Box& box, const Use& use) {
  if (box.empty()) return;
  std::vector<std::uint64_t> at;
  for (std::size_t d = 0; d < box.dimensions(); ++d) at.push_back(box[d].begin);
  for (;;) {
    std::uint64_t number = 0, place = 0;
    for (std::size_t d = 0; d < box.dimensions(); ++d) {
      number = number * tensor.shape[d] + at[d];
      place += (at[d] - piece.box[d].begin) * piece.strides[d];
    }
    use(number, piece.offset + place * size_of(tensor.type));
    std::size_t d = box.dimensions();
    while (d > 0 && ++at[d - 1] == box[d - 1].end) {
      at[d - 1] = box[d - 1].begin;
      --d;
    }
    if (d == 0) return;
  }
}

/// Element `number` of a tensor, of `type`: `version` gives others. Nearly all differ.
std::vector<std::byte> value_of(const Tensor& tensor, std::uint64_t number, std::uint64_t version);
/// The same as it arrives in a target of another type.
std::vector<std::byte> arrived(const std::vector<std::byte>& value, DataType from, DataType to);

/// Writes all elements of the rank's pieces.
void fill(const Layout& layout, int rank, std::uint64_t version, RankMemory& memory);
/// What is wrong with the target's memory on this rank after a reshard; "": nothing.
std::string wrong(const Layout& from, const Layout& to, int rank, std::uint64_t version,
                  const RankMemory& memory);

/// Carries a plan out on the memory of all ranks, element by element, in the order of its messages.
/// Returns what is wrong with it: an element that is not there, is written twice, never, or to a
/// place of others. "": it is right.
std::string judge(const Layout& from, const Layout& to, const Plan& plan);

}  // namespace tutti::parallel::reshard::test
