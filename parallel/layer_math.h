// LayerMath: what tensor, sequence and expert engines compute themselves on the memory of a device
// (device.h), in addition to what the caller computes for them. This class is the host's; a
// subclass is that of another kind of device. A device without one has engines that only
// communicate.
//
// Matrices are contiguous, stored by rows. Work is on Device::current(), and nobody waits for it
// but where a function says so; then what it writes is host memory. Lists of numbers (spans) are
// host memory, which has been read on return. Functions throw tutti::Error.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/multiply.h"

namespace tutti::parallel {

class LayerMath {
 public:
  LayerMath() = default;
  virtual ~LayerMath() = default;
  LayerMath(const LayerMath&) = delete;
  LayerMath& operator=(const LayerMath&) = delete;

  // --- Linear layers ---

  virtual void multiply(const tensor::Product& product);
  struct Matrix {
    DataType type = DataType::float32;
    std::size_t rows = 0, width = 0;
  };
  /// Adds `row` to each row.
  virtual void add_to_rows(const Matrix& matrix, const void* row, void* data);
  /// Adds the sum of the rows to `sum`; of narrow types in float32.
  virtual void add_rows(const Matrix& matrix, const void* data, void* sum);

  // --- Some rows of a matrix ---

  /// Row i has number which[i] of all rows, and the matrix has those from `first` to first + count.
  struct Chosen {
    DataType type = DataType::float32;
    std::size_t width = 0;
    std::span<const std::int64_t> which{};
    std::int64_t first = 0;
    std::size_t count = 0;
  };
  /// out[i] = the row; 0 where the matrix does not have it.
  virtual void take_rows(const Chosen& chosen, const void* matrix, void* out);
  /// Adds rows[i] to the row, one i after the other.
  virtual void add_to_chosen(const Chosen& chosen, const void* rows, void* matrix);

  /// to[i] = factors[i] x the row. products[i], float64 of the device, becomes the sum of the row x
  /// with[i]. The matrix has all of the rows.
  virtual void scale_rows(const Chosen& chosen, std::span<const double> factors, const void* matrix,
                          void* to, const void* with, double* products);
  /// to[t] = the sum of factors[i] (none: 1) x the row for the `each` i from t x each on, one after
  /// the other; rows that the matrix does not have are 0.
  virtual void sum_chosen(const Chosen& chosen, std::size_t each, std::span<const double> factors,
                          const void* matrix, void* to);

  // --- Cross entropy, in float64 ---

  /// Columns from `columns` to `width` are padding. Row i has target targets[i] of all columns of
  /// all ranks; these have those from `first` on.
  struct Logits {
    DataType type = DataType::float32;
    const void* data = nullptr;
    std::size_t width = 0, columns = 0;
    std::span<const std::int64_t> targets{};
    std::int64_t first = 0;
  };
  /// The largest of each row's columns; minus infinity if there are none. What is not a number does
  /// not count. Waits.
  virtual void largest(const Logits& logits, std::span<double> most);
  /// Of each row: the sum of exp(x - most), and x - most of the target, 0 if it is not here. Waits.
  virtual void exponentials(const Logits& logits, std::span<const double> most,
                            std::span<double> sums, std::span<double> of_targets);
  /// out = factor (exp(x - log_sum) - 1 for the target); 0 for the padding, and for rows with a
  /// factor of 0. It may be where the logits are.
  virtual void cross_entropy_gradient(const Logits& logits, std::span<const double> log_sums,
                                      std::span<const double> factors, void* out);

  // --- Attention (sequence/merge.h) ---

  virtual void merge(DataType type, std::size_t rows, std::size_t dim, const void* part,
                     const void* part_lse, void* out, void* lse);
  virtual void add_part(DataType type, std::size_t count, const void* part, void* sum);
  virtual void sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
                         std::span<const std::size_t> head_of, const void* messages, void* own);
  virtual void dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out,
                        const void* dout, void* delta);
};

/// The host's.
LayerMath& host_layer_math();

}  // namespace tutti::parallel
