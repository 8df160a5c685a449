// Messages of an axis on the memory of a GPU, for which threads stand in (checked_gpu.h). Part of
// gpu_engines_test.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/axis.h"
#include "tests/parallel/checked_program.h"
#include "tests/parallel/late_peer.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using namespace parallel;

constexpr std::size_t kCount = 400;
constexpr std::size_t kBytes = kCount * sizeof(float);

const Body kPassOn = [](Communicator& comm, CheckedProgram* program) {
  HostProgram host;
  if (program == nullptr) {
    CommunicatorAxis axis(comm);
    return pass_messages(host, axis);
  }
  CheckedAxis axis(comm, program->gpu);
  return pass_messages(*program, axis);
};

TEST(GpuMessages, TravelToTheHostsBits) {
  for (const int ranks : {2, 3, 4})
    EXPECT_EQ(on_ranks(ranks, true, kPassOn), on_ranks(ranks, false, kPassOn));
}

// Both ranks receive before they have made what they send, and call a collective before it.
TEST(GpuMessages, AReceiveThatIsStartedEarlyHoldsUpNothing) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    MemoryPool pool(MemoryPool::Reuse::no, gpu);
    const Buffer come[2] = {pool.zeros(kBytes), pool.zeros(kBytes)}, own = pool.zeros(kBytes);
    const int peer = 1 - comm.rank();
    Pending recv[2];
    for (int i = 0; i < 2; ++i) {
      recv[i] = axis.recv(come[i].data(), kCount, DataType::float32, peer);
    }
    axis.all_reduce(own.data(), own.data(), kCount, DataType::float32).wait();
    gpu.launch("make", gpu.current(), {}, {{own.data(), kBytes}}, nullptr);
    Pending send = axis.send(own.data(), kCount, DataType::float32, peer);
    EXPECT_FALSE(gpu.happened_before("recv 400", "make"));
    EXPECT_FALSE(gpu.happened_before("recv 400", "send 400"));
    EXPECT_TRUE(gpu.happened_before("make", "send 400"));
    recv[0].wait();
    gpu.launch("use", gpu.current(), {{come[0].data(), kBytes}}, {}, nullptr);
    send.wait();
    axis.send(own.data(), kCount, DataType::float32, peer).wait();
    recv[1].wait();
    gpu.launch("use", gpu.current(), {{come[1].data(), kBytes}}, {}, nullptr);
    EXPECT_TRUE(gpu.happened_before("recv 400", "use"));
    return Result();
  });
}

// Each order left out in turn. No memory needs that of the first receive: nothing has touched its
// memory before.
TEST(GpuMessageMutants, AForgottenOrderIsARace) {
  int orders = 0;
  (void)on_ranks(2, true, kPassOn, -1, nullptr, &orders);
  EXPECT_GT(orders, 10);
  std::string missed;
  for (int left_out = 0; left_out < orders; ++left_out) {
    std::vector<std::string> races;
    (void)on_ranks(2, true, kPassOn, left_out, &races);
    if (races.empty()) missed += " " + std::to_string(left_out);
  }
  EXPECT_EQ(missed, " 0") << "of " << orders;
}

// One end has memory of the GPU for it, and the other has none.
TEST(GpuMessages, OneWithoutDataIsTheSameAtBothEnds) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    MemoryPool pool(MemoryPool::Reuse::no, program->gpu);
    const Buffer buffer = pool.zeros(kBytes);
    Pending message = comm.rank() == 0 ? axis.recv(nullptr, 0, DataType::float32, 1)
                                       : axis.send(buffer.data(), 0, DataType::float32, 0);
    axis.all_reduce(buffer.data(), buffer.data(), kCount, DataType::float32).wait();
    message.wait();
    return Result();
  });
}

// Two engines with an axis each. Nothing but the axes orders what they start.
TEST(GpuMessages, AxesOfOneCommunicatorKeepOneOrder) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    constexpr std::size_t kMany = 20000;
    CheckedGpu& gpu = program->gpu;
    comm.impl().gpus = streamed_gpus();
    CommunicatorAxis axes[] = {CommunicatorAxis(comm), CommunicatorAxis(comm)};
    MemoryPool pool(MemoryPool::Reuse::no, gpu);
    std::vector<Buffer> in, out;
    for (CommunicatorAxis& axis : axes) {
      axis.use(gpu);
      const std::vector<float> values(kMany, static_cast<float>(1 + in.size()));
      in.push_back(pool.zeros(kMany * sizeof(float)));
      out.push_back(pool.zeros(kMany * sizeof(float)));
      gpu.copy(in.back().data(), values.data(), kMany * sizeof(float));
    }
    for (int step = 0; step < 5; ++step) {
      Pending pending[2];
      for (std::size_t i = 0; i < 2; ++i) {
        pending[i] = axes[i].all_reduce(in[i].data(), out[i].data(), kMany, DataType::float32);
      }
      for (std::size_t i = 0; i < 2; ++i) {
        pending[i].wait();
        std::vector<float> sums(kMany);
        gpu.read(sums.data(), out[i].data(), kMany * sizeof(float));
        EXPECT_EQ(sums, std::vector<float>(kMany, static_cast<float>(2 + 2 * i)));
      }
    }
    return Result();
  });
}

// A peer that does not send is an error of a later call, also of one that has nothing to do with
// it.
TEST(GpuMessages, ALatePeerIsATimeOutOfALaterCall) {
  expect_time_out_of_a_later_call(
      kBytes,
      [](CheckedAxis& axis, void* memory) {
        axis.recv(memory, kCount, DataType::float32, 1).wait();
      },
      [](CheckedAxis& axis, void* memory) {
        (void)axis.send(memory, kCount, DataType::float32, 1);
      });
}

// An abort ends receives that wait.
TEST(GpuMessages, AnAbortEndsThem) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    MemoryPool pool(MemoryPool::Reuse::no, gpu);
    const Buffer buffer = pool.zeros(kBytes);
    axis.recv(buffer.data(), kCount, DataType::float32, 1 - comm.rank()).wait();
    comm.barrier();
    if (comm.rank() == 1) axis.abort("the test ends");
    gpu.synchronize(gpu.record(gpu.current()));
    const Error e = error_of(
        [&] { (void)axis.send(buffer.data(), kCount, DataType::float32, 1 - comm.rank()); });
    EXPECT_EQ(e.code(), ErrorCode::aborted) << e.what();
    EXPECT_TRUE(contains(e.what(), "the test ends")) << e.what();
    return Result();
  });
}

}  // namespace
}  // namespace tutti::test
