// Steps of training by ranks whose memory is a GPU's (tests/parallel/gpu_model.h), for
// device_rank.cpp: they end at the bits of the same steps on the host. The program's
// kernels run on the host, on copies of what they read, so they run on whatever the ranks have.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "comm/impl.h"
#include "parallel/gpu.h"
#include "tests/device/device_exercises.h"
#include "tests/parallel/gpu_model.h"

namespace tutti::test {

class CopyingProgram final : public Program {
 public:
  explicit CopyingProgram(parallel::Gpu& gpu) : gpu_(gpu) {}
  parallel::Device& device() override { return gpu_; }
  void launch(const Kernel& k) override {
    Kernel here = k;
    const std::vector<std::byte> a = read(k.a, k.count * sizeof(float)),
                                 b = read(k.b, k.count * size_of(k.type));
    std::vector<std::byte> to = read(k.to, k.count * size_of(k.to_type));
    if (k.a != nullptr) here.a = a.data();
    if (k.b != nullptr) here.b = b.data();
    here.to = to.data();
    test::run(here);
    gpu_.copy(k.to, to.data(), to.size());
  }
  std::vector<std::byte> read(const void* from, std::size_t bytes) {
    std::vector<std::byte> values(bytes);
    if (from != nullptr) gpu_.read(values.data(), from, bytes);
    return values;
  }

 private:
  parallel::Gpu& gpu_;
};

/// Plain gradient descent; on a GPU by copies, too.
class CopyingDescent final : public parallel::Optimizer {
 public:
  explicit CopyingDescent(CopyingProgram* program) : program_(program) {}
  std::string_view name() const override { return "descent"; }
  std::size_t states() const override { return 0; }
  void update_on_gpu(const Slice& slice, void*) const override {
    program_->launch({.name = "update",
                      .a = nullptr,
                      .b = slice.gradient,
                      .scale = -kRate,
                      .to = slice.master,
                      .adds = true,
                      .count = slice.count});
  }

 private:
  static constexpr float kRate = 0.25;
  void update_block(const Slice&, const parallel::kernels::Block& block) const override {
    auto* const master = static_cast<float*>(block.master);
    const auto* const gradient = static_cast<const float*>(block.gradient);
    for (std::size_t i = 0; i < block.count; ++i) master[i] += -kRate * gradient[i];
  }
  CopyingProgram* const program_;
};

inline void train_on_gpu(Communicator& comm, Accelerator& accelerator, Tally& tally) {
  using parallel::Policy;
  accelerator.adopt(comm);
  parallel::Gpu gpu(comm.impl().gpus, 0);
  gpu.use(accelerator.stream());
  CopyingProgram program(gpu);
  HostProgram host;
  parallel::CommunicatorAxis on_gpu(comm), on_host(comm);
  on_gpu.use(gpu);
  const auto compare = [&](const std::vector<float>& got, const std::vector<float>& expected,
                           const std::string& what) {
    std::size_t wrong = got.size() == expected.size() ? 0 : 1;
    for (std::size_t i = 0; i < got.size() && wrong == 0; ++i) wrong += got[i] != expected[i];
    tally.count(wrong, what);
  };
  for (const Policy& policy : {Policy::zero1(), Policy::fsdp()}) {
    const CopyingDescent descent(&program);
    TrainingOnDevice training{.policy = policy, .clips = false, .optimizer = &descent};
    const auto got = train_sharded(program, {.shard = &on_gpu}, training);
    compare(got, train_sharded(host, {.shard = &on_host}, training), policy.describe());
  }
  parallel::DataParallelPolicy buckets;
  buckets.bucket_bytes = buckets.first_bucket_bytes = 800;
  const auto got = train_data_parallel(program, on_gpu, buckets, 2);
  compare(got, train_data_parallel(host, on_host, buckets, 2), "data parallel");
}

}  // namespace tutti::test
