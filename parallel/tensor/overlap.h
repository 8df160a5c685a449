// Collectives that travel while a layer multiplies matrices. It gathers rows and multiplies them as
// they come; it reduces rows of a product while it computes the next ones.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "parallel/axis.h"
#include "parallel/in_flight.h"
#include "parallel/memory_pool.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/multiply.h"

namespace tutti::parallel::tensor {

/// Rows of a matrix that all ranks of an axis have a slice of.
struct Rows {
  std::size_t count = 0;  // of the whole matrix
  std::size_t width = 0;  // elements of a row
  DataType type{};
  std::size_t pieces = 1;
  std::size_t bytes() const { return count * width * size_of(type); }
};

/// All-gathers `in`, the rank's slice, on the mapper's axis, and calls `use(rows, first, count)`
/// with some rows of the whole at a time, this rank's rows first. If `whole` is not null, the whole
/// lies there afterwards; else it does in `buffer`, in some order.
void gather_rows(
    const Mapper& mapper, const Rows& rows, const void* in, void* whole, std::byte* buffer,
    const std::function<void(const void* rows, std::size_t first, std::size_t count)>& use);

/// Calls `make(rows, first, count)`, to write some of the matrix's rows at a time, and starts their
/// all-reduce, in place, at `out`.
void reduce_rows(Axis& axis, const Rows& rows, void* out, InFlight& in_flight,
                 const std::function<void(void* rows, std::size_t first, std::size_t count)>& make);

/// Makes rows and reduce-scatters them: `out` gets this rank's slice. `buffer` has space for all.
void reduce_scatter_rows(
    Axis& axis, const Rows& rows, void* out, std::byte* buffer, InFlight& in_flight,
    const std::function<void(void* rows, std::size_t first, std::size_t count)>& make);

/// Makes the buffer at least this large; its old contents are lost.
std::byte* grown(Buffer& buffer, std::size_t bytes, MemoryPool& memory);

/// The gradients of a linear layer's weight (out x in), from `rows` rows of dy and of x, and of its
/// bias, from `count` of the rows of dy, on a device with a LayerMath. Nothing where they are null.
void weight_gradient(const Multiply& multiply, DataType type, std::size_t out, std::size_t in,
                     std::size_t rows, const void* dy, const void* x,
                     const LinearGradients& gradients);
void bias_gradient(Device& device, const Rows& outputs, std::size_t count, const void* dy,
                   const LinearGradients& gradients);

}  // namespace tutti::parallel::tensor
