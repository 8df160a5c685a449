#include "parallel/tensor/overlap.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/combine.h"
#include "core/convert.h"

namespace tutti::parallel::tensor {
namespace {

std::byte* at(void* base, std::size_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const std::byte* at(const void* base, std::size_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

/// Piece k of `count` rows, cut into `pieces` as equal as can be.
struct Piece {
  std::size_t first, count;
};
Piece piece_of(std::size_t count, std::size_t pieces, std::size_t k) {
  const std::size_t first = count * k / pieces;
  return {first, count * (k + 1) / pieces - first};
}
/// No more than there are rows, and one at least: ranks without rows make the same calls.
std::size_t pieces_of(std::size_t count, std::size_t wanted) {
  return std::max<std::size_t>(1, std::min(count, wanted));
}

template <class T>
void add_rows_of(const Rows& rows, std::size_t count, const void* matrix, T* sum) {
  std::vector<T> row(rows.width);
  const std::size_t bytes = rows.width * size_of(rows.type);
  for (std::size_t i = 0; i < count; ++i) {
    convert(at(matrix, i * bytes), rows.type, row.data(),
            rows.type == DataType::float64 ? DataType::float64 : DataType::float32, rows.width);
    for (std::size_t j = 0; j < rows.width; ++j) sum[j] += row[j];
  }
}

/// Adds the sum of the rows to `sum`, one after the other; of narrow types in float32.
void add_rows(const Rows& rows, std::size_t count, const void* matrix, void* sum) {
  if (rows.type == DataType::float64) {
    return add_rows_of(rows, count, matrix, static_cast<double*>(sum));
  }
  if (rows.type == DataType::float32) {
    return add_rows_of(rows, count, matrix, static_cast<float*>(sum));
  }
  std::vector<float> wide(rows.width);
  convert(sum, rows.type, wide.data(), DataType::float32, rows.width);
  add_rows_of(rows, count, matrix, wide.data());
  convert(wide.data(), DataType::float32, sum, rows.type, rows.width);
}

}  // namespace

void gather_rows(Axis& axis, const std::string& what, const Rows& rows, const void* in, void* whole,
                 std::byte* buffer,
                 const std::function<void(const void*, std::size_t, std::size_t)>& use) {
  const auto ranks = static_cast<std::size_t>(axis.size());
  const auto rank = static_cast<std::size_t>(axis.rank());
  const std::size_t own = rows.count / ranks, row = rows.width * size_of(rows.type);
  const std::size_t pieces = pieces_of(own, rows.pieces);
  // A single piece comes in the order of the whole.
  std::byte* const target = pieces == 1 && whole != nullptr ? at(whole, 0) : buffer;
  InFlight in_flight(what);
  for (std::size_t k = 0; k < pieces; ++k) {
    const Piece piece = piece_of(own, pieces, k);
    in_flight.add(axis,
                  call_of(Collective::all_gather, at(in, piece.first * row),
                          target + ranks * piece.first * row, piece.count * rows.width, rows.type));
  }
  use(in, rank * own, own);
  for (std::size_t k = 0; k < pieces; ++k) {
    in_flight.wait(k);
    const Piece piece = piece_of(own, pieces, k);
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::size_t first = r * own + piece.first;
      const std::byte* const come = target + (ranks * piece.first + r * piece.count) * row;
      if (whole != nullptr && target != whole) {
        std::memcpy(at(whole, first * row), come, piece.count * row);
      }
      if (r != rank) use(come, first, piece.count);
    }
  }
}

void reduce_rows(Axis& axis, const Rows& rows, void* out, InFlight& in_flight,
                 const std::function<void(void*, std::size_t, std::size_t)>& make) {
  const std::size_t row = rows.width * size_of(rows.type);
  const std::size_t pieces = pieces_of(rows.count, rows.pieces);
  for (std::size_t k = 0; k < pieces; ++k) {
    const Piece piece = piece_of(rows.count, pieces, k);
    std::byte* const to = at(out, piece.first * row);
    make(to, piece.first, piece.count);
    in_flight.add(axis,
                  call_of(Collective::all_reduce, to, to, piece.count * rows.width, rows.type));
  }
}

void reduce_scatter_rows(Axis& axis, const Rows& rows, void* out, std::byte* buffer,
                         InFlight& in_flight,
                         const std::function<void(void*, std::size_t, std::size_t)>& make) {
  const auto ranks = static_cast<std::size_t>(axis.size());
  const std::size_t own = rows.count / ranks, row = rows.width * size_of(rows.type);
  const std::size_t pieces = pieces_of(own, rows.pieces);
  for (std::size_t k = 0; k < pieces; ++k) {
    const Piece piece = piece_of(own, pieces, k);
    std::byte* const from = buffer + ranks * piece.first * row;
    if (pieces == 1) {
      make(from, 0, rows.count);
    } else {
      for (std::size_t r = 0; r < ranks; ++r) {
        make(from + r * piece.count * row, r * own + piece.first, piece.count);
      }
    }
    in_flight.add(axis, call_of(Collective::reduce_scatter, from, at(out, piece.first * row),
                                piece.count * rows.width, rows.type));
  }
}

std::byte* grown(Buffer& buffer, std::size_t bytes, MemoryPool& memory) {
  if (buffer.size() < bytes) {
    buffer.reset();  // before the next one is there
    buffer = memory.zeros(bytes);
  }
  return buffer.data();
}

void add_to_rows(const Rows& rows, std::size_t count, const void* bias, void* matrix) {
  const Combiner sum(rows.type, ReduceKind::sum);
  for (std::size_t i = 0; i < count; ++i) {
    void* const row = at(matrix, i * rows.width * size_of(rows.type));
    const Source sources[] = {{.data = row}, {.data = bias}};
    sum({&row, 1}, sources, rows.width);
  }
}

void weight_gradient(const Multiply& multiply, DataType type, std::size_t out, std::size_t in,
                     std::size_t rows, const void* dy, const void* x,
                     const LinearGradients& gradients) {
  if (gradients.weight == nullptr) return;
  multiply({.type = type,
            .rows = out,
            .columns = in,
            .inner = rows,
            .a = dy,
            .transpose_a = true,
            .b = x,
            .c = gradients.weight,
            .adds = gradients.adds});
}

void bias_gradient(const Rows& outputs, std::size_t count, const void* dy,
                   const LinearGradients& gradients) {
  if (gradients.bias == nullptr) return;
  if (!gradients.adds) std::memset(gradients.bias, 0, outputs.width * size_of(outputs.type));
  add_rows(outputs, count, dy, gradients.bias);
}

}  // namespace tutti::parallel::tensor
