// Gpu: the memory of a GPU as a device of engines (device.h). One H200 has run
// a part of it (docs/gpu-status.md).
//
//     Gpu gpu(0);
//     gpu.use(stream);                       // of the program's kernels, a cudaStream_t
//     CommunicatorAxis axis(comm);
//     axis.use(gpu);                         // before engines are made on it
//     ShardedDataParallel model(units, Policy::fsdp(), {.shard = &axis});
//
// Each rank has a Gpu of its own, also where ranks share one. Its kernels have the bits of the
// host's arithmetic, but for norms, which are sums in another order. Optimizers other than AdamW
// and Sgd bring kernels of their own (Optimizer::update_on_gpu()).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device.h"

namespace tutti {
struct Gpus;
namespace device {
class EngineDevice;
}
}  // namespace tutti

namespace tutti::parallel {

class GpuKernels;

class Gpu : public Device {
 public:
  /// By CUDA's number. Throws Error(system) if there is none, or if libtutti_cuda.so or
  /// libtutti_parallel_cuda.so is missing.
  explicit Gpu(int ordinal);
  /// For tests: what stands for GPUs, without kernels.
  Gpu(const Gpus& gpus, int ordinal);
  ~Gpu() override;

  /// The stream of the program's kernels from now on. Until then: the default stream, which ranks
  /// that share a process and a GPU cannot use. The program orders streams that it changes between:
  /// memory that engines keep follows the order of the program's work.
  void use(Stream stream) { current_ = stream; }

  std::string_view name() const override { return name_; }
  bool is_gpu() const override { return true; }
  bool owns(const void* memory) const override;
  bool computes() const override { return kernels_ != nullptr; }
  /// None. PyTorch's is TorchGpu's.
  LayerMath* layer_math() override { return nullptr; }
  bool converts(DataType from, DataType to) const override;
  std::byte* allocate(std::size_t bytes) override;
  void release(std::byte* memory, const Event& last_use) noexcept override;
  Available available() const override;
  Stream current() override { return current_; }
  std::shared_ptr<void> make_stream() override;
  Event record(Stream stream) override;
  void order(const Event& event, Stream stream) override;
  bool is_over(const Event& event) override;
  void synchronize(const Event& event) override;
  void zero(void* memory, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void copy_rows(void* to, std::size_t to_step, const void* from, std::size_t from_step,
                 std::size_t bytes, std::size_t rows) override;
  void read(void* to, const void* from, std::size_t bytes) override;
  void convert(DataType from, const void* in, DataType to, void* out, std::size_t count) override;
  void add(DataType type, void* to, const void* values, unsigned divisor, const void* before,
           std::size_t count) override;
  double sum_of_squares(DataType type, std::span<const Values> of) override;
  void update(const Optimizer& optimizer, const Optimizer::Slice& slice) override;

 private:
  void check_owner(std::string_view what, const Given& given) const override;
  Gpu(const Gpus& gpus, int ordinal, bool computes);
  void check_computes(std::string_view what) const;

  int (*owner_)(const void* pointer);
  const int ordinal_;
  const std::string name_;
  const std::shared_ptr<device::EngineDevice> gpu_;
  const GpuKernels* const kernels_;  // null: for tests, none
  double* sums_ = nullptr;           // of sum_of_squares(), which has waited for its kernels
  Stream current_ = nullptr;
};

}  // namespace tutti::parallel
