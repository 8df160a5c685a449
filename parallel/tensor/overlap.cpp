#include "parallel/tensor/overlap.h"

#include <algorithm>

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

}  // namespace

void gather_rows(const Mapper& mapper, const Rows& rows, const void* in, void* whole,
                 std::byte* buffer,
                 const std::function<void(const void*, std::size_t, std::size_t)>& use) {
  Axis& axis = mapper.axis();
  const auto ranks = static_cast<std::size_t>(axis.size());
  const auto rank = static_cast<std::size_t>(axis.rank());
  const std::size_t own = rows.count / ranks, row = rows.width * size_of(rows.type);
  const std::size_t pieces = pieces_of(own, rows.pieces);
  // A single piece comes in the order of the whole.
  std::byte* const target = pieces == 1 && whole != nullptr ? at(whole, 0) : buffer;
  InFlight in_flight(mapper.what(), mapper.label());
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
        axis.device().copy(at(whole, first * row), come, piece.count * row);
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

void bias_gradient(Device& device, const Rows& outputs, std::size_t count, const void* dy,
                   const LinearGradients& gradients) {
  if (gradients.bias == nullptr) return;
  if (!gradients.adds) device.zero(gradients.bias, outputs.width * size_of(outputs.type));
  device.layer_math()->add_rows({outputs.type, count, outputs.width}, dy, gradients.bias);
}

}  // namespace tutti::parallel::tensor
