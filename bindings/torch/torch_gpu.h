// TorchGpu: a GPU of PyTorch as the device of an axis, for modules on that GPU. No GPU has run it
// (docs/gpu-status.md).
//
//     TorchGpu gpu(0);
//     axis.use(gpu);
//     model->to(gpu.tensors());
//     FullyShard fsdp({.shard = &axis}, *model, {...});
//
// The program's stream is PyTorch's current one of the calling thread, whichever that is at each
// call, so autograd's threads and stream guards are followed. Arithmetic is PyTorch's.
//
// Nothing here needs record_stream(). Code that frees a tensor that a collective has read has
// waited for the collective on the current stream, by an event, and PyTorch's allocator gives
// memory out again in the order of that stream. The engines' own memory is Tutti's.
#pragma once

#include <c10/core/Device.h>

#include "../../parallel/axis.h"
#include "../../parallel/gpu.h"
#include "torch_layer_math.h"

namespace tutti::libtorch {

class TorchGpu : public parallel::Gpu {
 public:
  /// By CUDA's number. Throws Error(system) if there is none, or if libtutti_cuda.so is missing.
  explicit TorchGpu(int ordinal)
      : Gpu(ordinal), tensors_(c10::kCUDA, static_cast<c10::DeviceIndex>(ordinal)) {}
  /// For tests: what stands for GPUs, and the device of tensors over its memory.
  TorchGpu(const Gpus& gpus, int ordinal, c10::Device tensors)
      : Gpu(gpus, ordinal), tensors_(tensors) {}

  /// The device of the tensors.
  c10::Device tensors() const { return tensors_; }

  bool computes() const override { return true; }
  parallel::LayerMath* layer_math() override { return &math_; }
  Stream current() override;
  void convert(DataType from, const void* in, DataType to, void* out, std::size_t count) override;
  void add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
           std::size_t count) override;
  double sum_of_squares(DataType type, std::span<const Values> of) override;
  /// AdamW and Sgd; others by their update_on_gpu().
  void update(const parallel::Optimizer& optimizer,
              const parallel::Optimizer::Slice& slice) override;

 private:
  c10::Device tensors_;
  TorchLayerMath math_{tensors_};
};

/// The device of the tensors that lie in the axis's memory: the CPU, or a TorchGpu's. Throws
/// Error(invalid_argument) for another GPU.
c10::Device tensors_of(const parallel::Axis& axis);

}  // namespace tutti::libtorch
