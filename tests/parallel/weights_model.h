// A model whose elements say of which version they are, for tests of weights that go from one job
// to another. Of an element, one version in fifty changes it: so a version is whole if, and only
// if, all of its elements have the values that model_value() gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/agreement.h"
#include "parallel/reshard/layout.h"

namespace tutti::test {

namespace reshard = parallel::reshard;

inline constexpr std::uint64_t kWeightsPeriod = 50;

/// Of element `i` of tensor `t` in version `v`, 2 bytes: it changed in the newest version up to
/// `v` that is its hash modulo 50.
inline std::uint16_t model_value(std::uint64_t t, std::uint64_t i, std::uint64_t v) {
  const std::uint64_t hash = parallel::mix(t, i);
  const std::uint64_t back = (v + kWeightsPeriod - hash % kWeightsPeriod) % kWeightsPeriod;
  // Exponents as those of weights, and all the mantissa.
  const std::uint64_t bits = parallel::mix(hash, v + kWeightsPeriod - back);
  return static_cast<std::uint16_t>((bits & 0x80ff) | 0x3c00);
}

/// Four matrices of 2 bytes an element: the senders have rows, the receivers have columns, and of
/// the last one all of it.
inline reshard::Layout senders_layout(int ranks, std::uint64_t rows) {
  reshard::Layout layout(ranks);
  for (int t = 0; t < 4; ++t) {
    add_sharded(layout, {"w" + std::to_string(t), DataType::bfloat16, {rows, 1024}},
                {.mesh = {ranks}, .placements = {reshard::shard(0)}});
  }
  return layout;
}

inline reshard::Layout receivers_layout(int ranks, std::uint64_t rows) {
  reshard::Layout layout(ranks);
  for (int t = 0; t < 4; ++t) {
    add_sharded(
        layout, {"w" + std::to_string(t), DataType::bfloat16, {rows, 1024}},
        {.mesh = {ranks}, .placements = {t < 3 ? reshard::shard(1) : reshard::replicate()}});
  }
  return layout;
}

/// body(where in memory, tensor, element) for each element of the rank.
template <class Body>
void for_each_element(const reshard::Layout& layout, int rank, std::span<void* const> pointers,
                      const Body& body) {
  for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
    const reshard::TensorLayout& tensor = layout.tensors[t];
    for (const reshard::Piece& piece : tensor.pieces) {
      if (piece.rank != rank) continue;
      auto* at = reinterpret_cast<std::uint16_t*>(static_cast<std::byte*>(pointers[piece.buffer]) +
                                                  piece.offset);
      for (std::uint64_t r = piece.box[0].begin; r < piece.box[0].end; ++r) {
        for (std::uint64_t c = piece.box[1].begin; c < piece.box[1].end; ++c) {
          body(*at++, t, r * tensor.shape[1] + c);
        }
      }
    }
  }
}

inline void fill_version(const reshard::Layout& layout, int rank, std::span<void* const> pointers,
                         std::uint64_t version) {
  for_each_element(layout, rank, pointers,
                   [&](std::uint16_t& at, std::uint64_t t, std::uint64_t i) {
                     at = model_value(t, i, version);
                   });
}

/// How many elements are not those of the version; version 0: that are not 0.
inline std::uint64_t wrong_elements(const reshard::Layout& layout, int rank,
                                    std::span<void* const> pointers, std::uint64_t version) {
  std::uint64_t wrong = 0;
  for_each_element(layout, rank, pointers,
                   [&](std::uint16_t& at, std::uint64_t t, std::uint64_t i) {
                     wrong += at != (version == 0 ? 0 : model_value(t, i, version));
                   });
  return wrong;
}

}  // namespace tutti::test
