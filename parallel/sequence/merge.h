// Puts the results of blocks together. Sums are of type wide(type); `type` is that of the blocks.
// A row is `dim` elements of one head.
#pragma once

#include <cstddef>
#include <span>

#include "core/types.h"

namespace tutti::parallel::sequence {

/// The online softmax (Milakov and Gimelshein, 2018): `out` and `lse`, of some keys, become those
/// of these keys and of the keys of `part` and `part_lse`. Rows that have seen no key have an lse
/// of minus infinity.
void merge(DataType type, std::size_t rows, std::size_t dim, const void* part, const void* part_lse,
           void* out, void* lse);

/// sum[i] += part[i]
void add(DataType type, std::size_t count, const void* part, void* sum);

/// Message r has `rows` rows of head head_of[r]. Each row of `own` has the rows of all heads: each
/// is the sum of those of its messages, in their order.
void sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
               std::span<const std::size_t> head_of, const void* messages, void* own);

/// delta[row] = the sum of out * dout over the row.
void dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out, const void* dout,
              void* delta);

}  // namespace tutti::parallel::sequence
