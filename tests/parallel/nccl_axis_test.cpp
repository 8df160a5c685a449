// An axis over a library with NCCL's interface, which is Tutti's own here: the engines' calls
// arrive, and give what a communicator gives.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bench/nccl/axis.h"
#include "parallel/data_parallel/data_parallel.h"
#include "tests/support/thread_ranks.h"

namespace tutti::bench {
namespace {

using parallel::CommunicatorAxis;
using parallel::Pending;
using test::error_of;
using test::run_thread_ranks;

const NcclFunctions& library() {
  static const NcclFunctions functions(LIBNCCL, nccl_axis_collectives());
  return functions;
}

double value(int rank, std::size_t i) { return 1000.0 * rank + static_cast<double>(i); }

std::vector<double> values(int rank, std::size_t count) {
  std::vector<double> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, i);
  return v;
}

void expect_collectives(NcclAxis& axis) {
  constexpr std::size_t kCount = 1000;
  const int size = axis.size();
  const auto p = static_cast<std::size_t>(size);
  const auto mine = values(axis.rank(), kCount * p);
  std::vector<double> sum(kCount), gathered(kCount * p), part(kCount), said = mine;
  std::vector<double> exchanged(kCount * p);
  // All under way at once.
  Pending pending[] = {
      axis.all_reduce(mine.data(), sum.data(), kCount, DataType::float64),
      axis.all_gather(mine.data(), gathered.data(), kCount, DataType::float64),
      axis.reduce_scatter(mine.data(), part.data(), kCount, DataType::float64),
      axis.broadcast(said.data(), said.data(), kCount, DataType::float64, size - 1),
      axis.all_to_all(mine.data(), exchanged.data(), kCount, DataType::float64)};
  axis.run(parallel::call_of(Collective::barrier, nullptr, nullptr, 0, DataType::uint8));
  for (Pending& one : pending) one.wait();
  const double ranks = 1000.0 * size * (size - 1) / 2;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto me = static_cast<std::size_t>(axis.rank());
    ASSERT_EQ(sum[i], ranks + size * static_cast<double>(i));
    ASSERT_EQ(part[i], ranks + size * static_cast<double>(me * kCount + i));
    ASSERT_EQ(said[i], value(size - 1, i));
    for (std::size_t r = 0; r < p; ++r) {
      ASSERT_EQ(gathered[r * kCount + i], value(static_cast<int>(r), i));
      ASSERT_EQ(exchanged[r * kCount + i], value(static_cast<int>(r), me * kCount + i));
    }
  }
  EXPECT_EQ(axis.traffic().total().calls, 6U);
}

TEST(NcclAxis, CarriesCollectivesThatAreStartedTogether) {
  for (const int size : {1, 2, 3, 4}) {
    run_thread_ranks(size, {}, [](Communicator& comm) {
      CommunicatorAxis meeting(comm);
      NcclAxis axis(library(), meeting);
      expect_collectives(axis);
    });
  }
}

TEST(NcclAxis, CarriesMessagesBetweenNeighboursWhicheverWayIsFirst) {
  for (const int size : {2, 3, 4}) {
    run_thread_ranks(size, {}, [](Communicator& comm) {
      CommunicatorAxis meeting(comm);
      NcclAxis axis(library(), meeting, NcclAxis::Messages::between_neighbours);
      constexpr std::size_t kCount = 70'000;
      const int next = (axis.rank() + 1) % axis.size();
      const int before = (axis.rank() + axis.size() - 1) % axis.size();
      const auto mine = values(axis.rank(), kCount);
      std::vector<double> from_before(kCount), from_next(kCount);
      // Receives first on all ranks, as a pipeline posts them.
      Pending a = axis.recv(from_before.data(), kCount, DataType::float64, before);
      Pending b = axis.recv(from_next.data(), kCount, DataType::float64, next);
      Pending c = axis.send(mine.data(), kCount, DataType::float64, next);
      Pending d = axis.send(mine.data(), kCount, DataType::float64, before);
      for (Pending* p : {&a, &b, &c, &d}) p->wait();
      EXPECT_EQ(from_before, values(before, kCount));
      EXPECT_EQ(from_next, values(next, kCount));
    });
  }
}

TEST(NcclAxis, RefusesWhatItCannotCarry) {
  run_thread_ranks(2, {}, [](Communicator& comm) {
    CommunicatorAxis meeting(comm);
    NcclAxis axis(library(), meeting);
    double x = 0;
    const Error error =
        error_of([&] { axis.send(&x, 1, DataType::float64, 1 - axis.rank()).wait(); });
    EXPECT_NE(std::string(error.what()).find("carries no messages from rank"), std::string::npos);
  });
  const Error error = error_of([] { NcclFunctions("/no/libnccl.so.2", nccl_axis_collectives()); });
  EXPECT_NE(std::string(error.what()).find("/no/libnccl.so.2"), std::string::npos);
}

TEST(NcclAxis, ServesAnEngine) {
  run_thread_ranks(3, {}, [](Communicator& comm) {
    CommunicatorAxis plain(comm);
    NcclAxis over_nccl(library(), plain);
    std::vector<std::vector<float>> results;
    for (parallel::Axis* axis :
         {static_cast<parallel::Axis*>(&plain), static_cast<parallel::Axis*>(&over_nccl)}) {
      parallel::DataParallelPolicy policy;
      policy.bucket_bytes = policy.first_bucket_bytes = 4000;
      parallel::DataParallel engine(*axis, std::vector<parallel::Parameter>(10, {"w", {500}}),
                                    policy);
      for (int step = 0; step < 3; ++step) {
        for (std::size_t i = engine.size(); i-- > 0;) {
          auto* const gradient = static_cast<float*>(engine.gradient(i));
          for (std::size_t k = 0; k < 500; ++k) {
            gradient[k] = static_cast<float>(axis->rank() + 1) / static_cast<float>(i + k + 3);
          }
          engine.ready(i);
        }
        (void)engine.finish();
      }
      std::vector<float> all;
      for (std::size_t i = 0; i < engine.size(); ++i) {
        const auto* const gradient = static_cast<const float*>(engine.gradient(i));
        all.insert(all.end(), gradient, gradient + 500);
      }
      results.push_back(all);
    }
    EXPECT_EQ(results[0], results[1]);
  });
}

}  // namespace
}  // namespace tutti::bench
