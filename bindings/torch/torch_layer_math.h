// The arithmetic of layers by PyTorch, on a device of its own. On a GPU it is work on PyTorch's
// current stream.
#pragma once

#include <c10/core/Device.h>

#include "../../parallel/layer_math.h"

namespace tutti::libtorch {

/// With PyTorch's BLAS. Matrices are on `device`.
void multiply(const parallel::tensor::Product& product, c10::Device device);

/// Sums are in PyTorch's order.
class TorchLayerMath final : public parallel::LayerMath {
 public:
  explicit TorchLayerMath(c10::Device device) : device_(device) {}

  void multiply(const parallel::tensor::Product& product) override;
  void add_to_rows(const Matrix& matrix, const void* row, void* data) override;
  void add_rows(const Matrix& matrix, const void* data, void* sum) override;
  void take_rows(const Chosen& chosen, const void* matrix, void* out) override;
  void add_to_chosen(const Chosen& chosen, const void* rows, void* matrix) override;
  void scale_rows(const Chosen& chosen, std::span<const double> factors, const void* matrix,
                  void* to, const void* with, double* products) override;
  void sum_chosen(const Chosen& chosen, std::size_t each, std::span<const double> factors,
                  const void* matrix, void* to) override;
  void largest(const Logits& logits, std::span<double> most) override;
  void exponentials(const Logits& logits, std::span<const double> most, std::span<double> sums,
                    std::span<double> of_targets) override;
  void cross_entropy_gradient(const Logits& logits, std::span<const double> log_sums,
                              std::span<const double> factors, void* out) override;
  void merge(DataType type, std::size_t rows, std::size_t dim, const void* part,
             const void* part_lse, void* out, void* lse) override;
  void add_part(DataType type, std::size_t count, const void* part, void* sum) override;
  void sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
                 std::span<const std::size_t> head_of, const void* messages, void* own) override;
  void dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out, const void* dout,
                void* delta) override;

 private:
  c10::Device device_;
};

}  // namespace tutti::libtorch
