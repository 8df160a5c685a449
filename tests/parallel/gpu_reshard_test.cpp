// Reshards of memory of a GPU, for which threads stand in that check the order of all work
// (checked_gpu.h).
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/reshard/reshard.h"
#include "parallel/weights/receiver.h"
#include "parallel/weights/sender.h"
#include "tests/parallel/checked_program.h"
#include "tests/parallel/reshard_cases.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::reshard::test {
namespace {

using tutti::test::Body;
using tutti::test::CheckedAxis;
using tutti::test::CheckedGpu;
using tutti::test::CheckedProgram;
using tutti::test::contains;
using tutti::test::error_of;
using tutti::test::on_ranks;
using tutti::test::Result;

/// The GPU's memory for what a rank has on the host.
class OnGpu {
 public:
  OnGpu(CheckedGpu& gpu, RankMemory& host) : gpu_(gpu), host_(host) {
    for (const auto& buffer : host.buffers) {
      memory_.push_back(buffer.empty() ? nullptr : gpu.allocate(buffer.size()));
    }
  }
  ~OnGpu() {
    for (std::byte* const memory : memory_) {
      if (memory != nullptr) gpu_.release(memory, gpu_.record(gpu_.current()));
    }
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  void upload() {
    for (std::size_t b = 0; b < memory_.size(); ++b) {
      gpu_.copy(memory_[b], host_.buffers[b].data(), host_.buffers[b].size());
    }
  }
  void download() {
    for (std::size_t b = 0; b < memory_.size(); ++b) {
      if (memory_[b] == nullptr) continue;
      gpu_.read(host_.buffers[b].data(), memory_[b], host_.buffers[b].size());
    }
  }
  std::vector<void*> pointers() const { return {memory_.begin(), memory_.end()}; }
  std::vector<const void*> sources() const { return {memory_.begin(), memory_.end()}; }

 private:
  CheckedGpu& gpu_;
  RankMemory& host_;
  std::vector<std::byte*> memory_;
};

ReshardOptions options_of(const Case& c) {
  ReshardOptions o;
  o.message_bytes = c.options.message_bytes;
  o.host_message_bytes = c.options.host_message_bytes;
  o.hosts = c.options.hosts;
  return o;
}

/// Moves two versions on each rank.
Body body_of(const Case& c, std::uint64_t seed) {
  return [&c, seed](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    const int rank = comm.rank();
    RankMemory source(c.from, rank), target(c.to, rank);
    OnGpu gpu_source(gpu, source), gpu_target(gpu, target);
    gpu_target.upload();  // the gaps
    Reshard reshard(axis, c.from, c.to, options_of(c));
    for (const std::uint64_t version : {1, 2}) {
      fill(c.from, rank, version, source);
      gpu_source.upload();
      reshard.run(gpu_source.sources(), gpu_target.pointers());
      gpu_target.download();
      EXPECT_EQ(wrong(c.from, c.to, rank, version, target), "") << "seed " << seed;
    }
    return Result();
  };
}

/// Whether a GPU has kernels for what the case converts.
bool is_served(const Case& c) {
  CheckedGpu gpu;
  for (const TensorLayout& target : c.to.tensors) {
    for (const TensorLayout& source : c.from.tensors) {
      if (source.name == target.name && source.type != target.type &&
          !gpu.converts(source.type, target.type)) {
        return false;
      }
    }
  }
  return true;
}

TEST(GpuReshard, RandomPairsBringEveryElement) {
  int served = 0, converting = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Case c = random_case(seed);
    if (c.to.ranks > 4) continue;
    tutti::test::the_gpu = std::make_shared<tutti::test::StreamedGpu>();
    const bool is = is_served(c);
    tutti::test::the_gpu.reset();
    if (!is) continue;
    ++served;
    for (const TensorLayout& t : c.to.tensors) {
      for (const TensorLayout& s : c.from.tensors)
        converting += s.name == t.name && s.type != t.type;
    }
    (void)on_ranks(c.to.ranks, true, body_of(c, seed));
  }
  EXPECT_GE(served, 15);
  EXPECT_GE(converting, 3);
}

/// Rows of two ranks become columns of three, of another type; the last rank has no source.
Case rows_to_columns() {
  Case c{Layout(3), Layout(3), {}};
  const std::vector<std::uint64_t> shape{40, 24};
  add_sharded(c.from, {"w", DataType::float32, shape}, {{2}, {shard(0)}, {0, 1}});
  add_sharded(c.to, {"w", DataType::bfloat16, shape}, {{3}, {shard(1)}, {0, 1, 2}});
  c.options.host_message_bytes = 200;
  return c;
}

// Each order left out in turn: there is none that is not needed, but for what nothing has used yet.
TEST(GpuReshard, AForgottenOrderIsARace) {
  const Case c = rows_to_columns();
  int orders = 0, missed = 0;
  (void)on_ranks(3, true, body_of(c, 0), -1, nullptr, &orders);
  EXPECT_GT(orders, 10);
  for (int left_out = 0; left_out < orders; ++left_out) {
    std::vector<std::string> races;
    (void)on_ranks(3, true, body_of(c, 0), left_out, &races);
    missed += races.empty() ? 1 : 0;
  }
  EXPECT_LT(missed, orders / 4) << "of " << orders;
}

TEST(GpuReshard, WhatIsRefused) {
  (void)on_ranks(3, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    Case c = rows_to_columns();
    RankMemory source(c.from, comm.rank()), target(c.to, comm.rank());
    {
      Reshard reshard(axis, c.from, c.to);
      const Error e = error_of([&] { reshard.run(source.sources, target.pointers); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_TRUE(contains(e.what(), "host memory, and the axis is on GPU 0")) << e.what();
    }
    ReshardOptions timed;
    timed.timeout = std::chrono::seconds(1);
    EXPECT_TRUE(contains(error_of([&] { Reshard(axis, c.from, c.to, timed); }).what(),
                         "over an axis there is no coder, and no timeout"));
    c.to.tensors[0].type = DataType::float64;
    const Error e = error_of([&] { Reshard(axis, c.from, c.to); });
    EXPECT_TRUE(
        contains(e.what(), "tensor 'w' becomes float64 of float32, and GPU 0 has no kernel"))
        << e.what();
    return Result();
  });
}

// On an axis of host memory it is the same.
TEST(AxisReshard, BringsEveryElementOfTheHost) {
  for (std::uint64_t seed = 300; seed < 330; ++seed) {
    const Case c = random_case(seed);
    tutti::test::run_thread_ranks(c.to.ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const int rank = comm.rank();
      RankMemory source(c.from, rank), target(c.to, rank);
      Reshard reshard(axis, c.from, c.to, options_of(c));
      reshard.bind(source.sources, target.pointers);
      for (const std::uint64_t version : {1, 2}) {
        fill(c.from, rank, version, source);
        reshard.run();
        EXPECT_EQ(wrong(c.from, c.to, rank, version, target), "") << "seed " << seed;
      }
    });
  }
}

// From memory of a GPU to memory of a GPU of another job.
TEST(GpuWeights, GoThroughMemoryOfTheHost) {
  tutti::test::the_gpu = std::make_shared<tutti::test::StreamedGpu>();
  const TemporaryFolder folder;
  const auto options = [&](CheckedGpu& gpu) {
    weights::WeightsOptions o;
    o.patience = std::chrono::seconds(20);
    o.device = &gpu;
    return o;
  };
  Case c{Layout(2), Layout(1), {}};
  add_sharded(c.from, {"w", DataType::float32, {40, 24}}, {{2}, {shard(0)}, {0, 1}});
  add_replicated(c.to, {"w", DataType::float32, {40, 24}}, std::vector<int>{0});
  const auto place = [&] { return weights::folder_place(folder.path("place")); };
  std::jthread sends([&] {
    tutti::test::run_thread_ranks(2, [&](Communicator& job) {
      CheckedGpu gpu;
      RankMemory source(c.from, job.rank());
      OnGpu gpu_source(gpu, source);
      weights::Sender sender(job, c.from, place(), options(gpu));
      for (const std::uint64_t version : {1, 2, 3}) {
        fill(c.from, job.rank(), version, source);
        gpu_source.upload();
        while (sender.send(version, gpu_source.sources()).receivers == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      }
      EXPECT_EQ(gpu.races(), std::vector<std::string>{});
    });
  });
  tutti::test::run_thread_ranks(1, [&](Communicator& job) {
    CheckedGpu gpu;
    RankMemory target(c.to, 0);
    OnGpu gpu_target(gpu, target);
    const auto targets = gpu_target.pointers();
    const Error host =
        error_of([&] { weights::Receiver(job, c.to, place(), target.pointers, options(gpu)); });
    EXPECT_TRUE(contains(host.what(), "is host memory, and the axis is on GPU 0")) << host.what();
    weights::Receiver receiver(job, c.to, place(), targets, options(gpu));
    for (const std::uint64_t version : {1, 2, 3}) {
      EXPECT_EQ(receiver.receive(), version);
      gpu_target.download();
      EXPECT_EQ(wrong(c.from, c.to, 0, version, target), "");
    }
    EXPECT_EQ(gpu.races(), std::vector<std::string>{});
  });
  sends.join();
  tutti::test::the_gpu.reset();
}

}  // namespace
}  // namespace tutti::parallel::reshard::test
