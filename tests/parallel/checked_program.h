// Runs an engine on ranks, on the host or on GPUs that check the order of all work (checked_gpu.h).
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/parallel/checked_gpu.h"
#include "tests/parallel/checked_layer_math.h"
#include "tests/parallel/gpu_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {

/// Its kernels run on a GPU of its own.
class CheckedProgram final : public Program {
 public:
  parallel::Device& device() override { return gpu; }
  void launch(const Kernel& k) override {
    const std::size_t bytes = k.count * size_of(k.to_type);
    std::vector<CheckedGpu::Range> reads{{k.b, k.count * size_of(k.type)}};
    if (k.a != nullptr) reads.push_back({k.a, k.count * sizeof(float)});
    gpu.launch(k.name, gpu.current(), reads, {{k.to, bytes}}, [k] { run(k); });
  }

  CheckedGpu gpu;
  CheckedLayerMath math{gpu};
};

/// What each rank of the host's, and of the GPU's, ends with.
using Result = std::vector<float>;
using Body = std::function<Result(Communicator&, CheckedProgram*)>;

/// Runs `body` on ranks of threads. `gpu`: it gets a program with a GPU of its own, from whose
/// order step `left_out` is left out on rank 0; races are none, or go to `races`.
inline std::vector<Result> on_ranks(int ranks, bool gpu, const Body& body, int left_out = -1,
                                    std::vector<std::string>* races = nullptr,
                                    int* orders = nullptr) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  if (gpu) the_gpu = std::make_shared<StreamedGpu>();
  std::mutex mutex;
  Options options;
  options.timeout = std::chrono::seconds(60);
  run_thread_ranks(ranks, options, [&](Communicator& comm) {
    Result& result = results[static_cast<std::size_t>(comm.rank())];
    if (!gpu) {
      result = body(comm, nullptr);
      return;
    }
    CheckedProgram program;
    if (comm.rank() == 0) program.gpu.left_out = left_out;
    result = body(comm, &program);
    const std::lock_guard lock(mutex);
    if (races != nullptr) {
      races->insert(races->end(), program.gpu.races().begin(), program.gpu.races().end());
    } else {
      EXPECT_EQ(program.gpu.races(), std::vector<std::string>{}) << "rank " << comm.rank();
    }
    if (orders != nullptr && comm.rank() == 0) *orders = program.gpu.orders();
  });
  if (gpu) the_gpu.reset();
  return results;
}

inline const parallel::Sgd kSgd{{.learning_rate = 0.25}};
inline const parallel::Sgd kMomentum{{.learning_rate = 0.25, .momentum = 0.5}};
inline const parallel::AdamW kAdamW{{.learning_rate = 0.5}};

inline parallel::DataParallelPolicy small_buckets() {
  parallel::DataParallelPolicy policy;
  policy.bucket_bytes = policy.first_bucket_bytes = 800;
  return policy;
}

}  // namespace tutti::test
