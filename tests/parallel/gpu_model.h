// Small steps of training whose arithmetic is one kind of kernel, so that one program trains on the
// host, on a GPU that threads stand in for, and on a real one. Sums over ranks are exact in float32
// for 1, 2 and 4 ranks: all of them end at the same bits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/sharded/sharded.h"

namespace tutti::test {

/// The program's kernel: to[i] = a[i] + scale b[i], added to what is there if `adds`. `a` and `to`
/// may be the same; null is zeros.
struct Kernel {
  std::string name;
  const void* a = nullptr;
  const void* b = nullptr;
  float scale = 1;
  void* to = nullptr;
  bool adds = false;
  std::size_t count = 0;
  DataType type = DataType::float32;  // of b and `to`; a is float32
  DataType to_type = DataType::float32;
};

/// On the host, at once. Types: float32 and bfloat16.
void run(const Kernel& kernel);

/// Where a program's kernels run.
class Program {
 public:
  virtual ~Program() = default;
  virtual parallel::Device& device() = 0;
  /// On the device's stream current(), without waiting.
  virtual void launch(const Kernel& kernel) = 0;
};

class HostProgram final : public Program {
 public:
  parallel::Device& device() override { return parallel::host_device(); }
  void launch(const Kernel& kernel) override { run(kernel); }
};

struct TrainingOnDevice {
  parallel::Policy policy;
  int steps = 3;
  int micro_batches = 1;
  bool reduces_each = false;  // micro-batch
  bool clips = true;
  const parallel::Optimizer* optimizer = nullptr;  // outlives all work
};

/// Three units of two parameters. Returns all parameters, unit by unit, and after them the norm of
/// each step.
std::vector<float> train_sharded(Program& program, const parallel::ShardedAxes& axes,
                                 const TrainingOnDevice& training);
/// Six parameters in buckets of `bucket_bytes`. Returns all averages of all steps.
std::vector<float> train_data_parallel(Program& program, parallel::Axis& axis,
                                       parallel::DataParallelPolicy policy, int steps);
/// In each of three steps a rank (of two at least) passes numbers on to the next one, and adds up
/// what comes from the previous one. It starts the receive first, and a collective while the
/// messages are under way. Returns its sums.
std::vector<float> pass_messages(Program& program, parallel::Axis& axis);

}  // namespace tutti::test
