// A peer on a GPU that never comes: an error of a later call, and nobody waits for ever.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "tests/parallel/checked_program.h"
#include "tests/support/contains.h"

namespace tutti::test {

/// A call on `bytes` of memory of the GPU, of rank 0 of two.
using CallAlone = std::function<void(CheckedAxis&, void* memory)>;

/// Makes call `first`, which nobody answers, and expects a time-out of call `later`.
inline void expect_time_out_of_a_later_call(std::size_t bytes, const CallAlone& first,
                                            const CallAlone& later) {
  using namespace std::chrono_literals;
  the_gpu = std::make_shared<StreamedGpu>();
  Options options;
  options.timeout = 300ms;
  std::vector<Communicator> all = Communicator::create_local(2, options);
  {
    CheckedGpu gpu;
    CheckedAxis axis(all[0], gpu);
    parallel::MemoryPool pool(parallel::MemoryPool::Reuse::no, gpu);
    const parallel::Buffer buffer = pool.zeros(bytes);
    first(axis, buffer.data());
    gpu.synchronize(gpu.record(gpu.current()));
    const Error e = error_of([&] { later(axis, buffer.data()); });
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
    EXPECT_TRUE(contains(e.what(), "rank 0 has waited")) << e.what();
  }
  all.clear();
  the_gpu.reset();
}

}  // namespace tutti::test
