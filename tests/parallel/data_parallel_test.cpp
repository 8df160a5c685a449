// The data-parallel engine: averages are exact in whatever order gradients become ready, traffic
// and memory are those of theory, and communication overlaps with backward.
#include "parallel/data_parallel/data_parallel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/throttled_axis.h"
#include "parallel_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using namespace std::chrono_literals;
using test::backward;
using test::error_of;
using test::kAllTypes;
using test::kFloat32;
using test::parameters_of;
using test::run_thread_ranks;
using test::shuffled;
using test::small_buckets;
using test::values_at;
using test::wrong_average;

using Policy = DataParallelPolicy;

std::uint64_t bytes_of(const DataParallel& engine) { return engine.statistics().gradient_bytes; }

TEST(DataParallel, AveragesExactlyWhateverTheOrder) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const bool overlap : {true, false}) {
      run_thread_ranks(ranks, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        Policy policy = small_buckets();
        policy.overlap = overlap;
        DataParallel engine(axis, parameters_of(60, kAllTypes), policy);
        EXPECT_GT(engine.layout().buckets.size(), 8u);
        for (std::uint64_t step = 0; step < 5; ++step) {
          engine.zero();
          backward(engine, comm.rank(), ranks, step);
          EXPECT_EQ(engine.finish(), step == 0);
          EXPECT_EQ(wrong_average(engine, ranks, {step}), "")
              << fmt::format("{} ranks, step {}", ranks, step);
        }
      });
    }
  }
}

TEST(DataParallel, LaysBucketsOutInTheOrderOfRankZero) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, parameters_of(40, kFloat32), small_buckets());
    backward(engine, comm.rank(), kRanks, 0);
    void* const before = engine.gradient(0);
    EXPECT_TRUE(engine.finish());
    EXPECT_NE(engine.gradient(0), before);
    std::vector<std::size_t> order;
    for (const Bucket& b : engine.layout().buckets) {
      order.insert(order.end(), b.gradients.begin(), b.gradients.end());
    }
    EXPECT_EQ(order, shuffled(40, 0));  // rank 0's in step 0
    // 4 bytes for each of 40 parameters, once.
    EXPECT_EQ(engine.traffic()[Collective::broadcast].calls, 1u);
    EXPECT_EQ(engine.traffic()[Collective::broadcast].sent, comm.rank() == 0 ? 160u : 0u);
    backward(engine, comm.rank(), kRanks, 1);
    EXPECT_FALSE(engine.finish());
    EXPECT_EQ(engine.traffic()[Collective::broadcast].calls, 1u);
  });
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = small_buckets();
    policy.learn_order = false;
    DataParallel engine(axis, parameters_of(40, kFloat32), policy);
    void* const before = engine.gradient(7);
    backward(engine, comm.rank(), 2, 0);
    EXPECT_FALSE(engine.finish());
    EXPECT_EQ(engine.gradient(7), before);
    EXPECT_EQ(engine.layout().buckets.front().gradients.front(), 39u);
    EXPECT_EQ(engine.traffic()[Collective::broadcast].calls, 0u);
  });
}

/// Bytes and calls of all-reduces in one step, after the order is known.
Traffic::Count count_step(int ranks, const std::vector<Parameter>& parameters, const Policy& policy,
                          int micro_batches, std::uint64_t* gradient_bytes = nullptr,
                          std::size_t* buckets = nullptr) {
  Traffic::Count count;
  run_thread_ranks(ranks, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, parameters, policy);
    backward(engine, comm.rank(), ranks, 0);
    (void)engine.finish();
    axis.reset_traffic();
    for (int m = 0; m + 1 < micro_batches; ++m) {
      const auto no_sync = engine.no_sync();
      backward(engine, comm.rank(), ranks, static_cast<std::uint64_t>(m), m == 0);
      EXPECT_FALSE(engine.finish());
    }
    EXPECT_EQ(axis.traffic().total().calls, 0u);
    backward(engine, comm.rank(), ranks, 1, micro_batches == 1);
    EXPECT_FALSE(engine.finish());
    const Traffic::Count all = axis.traffic()[Collective::all_reduce];
    // Nothing else, but a number of each rank, by which they see that they add up as many.
    Traffic::Count total = all;
    if (micro_batches > 1) {
      const std::uint64_t of_others = 8 * (static_cast<std::uint64_t>(ranks) - 1);
      total += {1, of_others, of_others};
    }
    EXPECT_EQ(axis.traffic().total(), total);
    if (comm.rank() != 0) return;
    count = all;
    if (gradient_bytes != nullptr) *gradient_bytes = bytes_of(engine);
    if (buckets != nullptr) *buckets = engine.layout().buckets.size();
  });
  return count;
}

TEST(DataParallel, CarriesWhatTheTableSays) {
  // 4,800 elements in 8 parameters of 600: buckets of 2,400 bytes take one each.
  std::vector<Parameter> parameters;
  for (int i = 0; i < 8; ++i) parameters.push_back({fmt::format("w{}", i), {20, 30}});
  constexpr std::uint64_t kPhi = 4800;
  for (const std::uint64_t ranks : {2u, 3u, 4u, 5u, 8u}) {
    const int n = static_cast<int>(ranks);
    Policy policy;
    policy.bucket_bytes = policy.first_bucket_bytes = 4800;  // two parameters
    std::uint64_t bytes = 0;
    std::size_t buckets = 0;
    const std::uint64_t step = 2 * (ranks - 1) * kPhi * 4 / ranks;
    // DDP step: as many all-reduces as buckets, 2 (P - 1) / P Phi.
    EXPECT_EQ(count_step(n, parameters, policy, 1, &bytes, &buckets),
              (Traffic::Count{4, step, step}));
    EXPECT_EQ(buckets, 4u);
    EXPECT_EQ(bytes, kPhi * 4);
    // no_sync over 3 micro-batches: the same.
    EXPECT_EQ(count_step(n, parameters, policy, 3), (Traffic::Count{4, step, step}));
    // In 2 bytes: half.
    for (const DataType narrow : {DataType::float16, DataType::bfloat16}) {
      Policy half = policy;
      half.reduce_type = narrow;
      EXPECT_EQ(count_step(n, parameters, half, 1), (Traffic::Count{4, step / 2, step / 2}));
    }
    // In 8 bits: 17 of 64 bytes, rounded up to a whole block in each of 4 buckets of 1,200
    // elements.
    for (const bool feedback : {false, true}) {
      Policy eight = policy;
      eight.eight_bits = EightBits{.error_feedback = feedback};
      const std::uint64_t each = 2 * (ranks - 1) * (1200 + 75) / ranks;
      EXPECT_EQ(count_step(n, parameters, eight, 1), (Traffic::Count{4, 4 * each, 4 * each}));
    }
    // PowerSGD of rank 2: (20 + 30) * 2 instead of 600, in two all-reduces for each bucket.
    Policy low_rank = policy;
    low_rank.power_sgd = PowerSgd{.rank = 2};
    Traffic::Count expected{8, 0, 0};
    for (const std::uint64_t side : {20u, 30u}) {
      expected.sent += 4 * (2 * (ranks - 1) * 2 * side * 2 * 4 / ranks);
    }
    expected.received = expected.sent;
    EXPECT_EQ(count_step(n, parameters, low_rank, 1), expected);
    EXPECT_NEAR(static_cast<double>(expected.sent) / static_cast<double>(step), 100.0 / 600, 0.001);
  }
}

TEST(DataParallel, HoldsTheGradientsAndNothingElse) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    std::vector<Parameter> parameters(16, {"w", {32, 32}});
    Policy policy;
    policy.bucket_bytes = policy.first_bucket_bytes = 2 * 4096;
    policy.learn_order = false;
    DataParallel plain(axis, parameters, policy);
    backward(plain, comm.rank(), 2, 0);
    (void)plain.finish();
    EXPECT_EQ(plain.statistics().memory.bytes, 16u * 4096);
    EXPECT_EQ(plain.statistics().memory.peak, 16u * 4096);
    EXPECT_EQ(plain.statistics().buckets, 8u);
    EXPECT_EQ(plain.statistics().steps, 1u);
    policy.reduce_type = DataType::bfloat16;
    DataParallel converted(axis, parameters, policy);
    EXPECT_EQ(converted.statistics().memory.peak, 16u * 4096 * 3 / 2);
    policy.reduce_type.reset();
    for (const bool feedback : {false, true}) {
      policy.eight_bits = EightBits{.error_feedback = feedback};
      DataParallel eight(axis, parameters, policy);
      EXPECT_EQ(eight.statistics().memory.peak, 16u * 4096 * (feedback ? 2 : 1));
    }
  });
}

TEST(DataParallel, AddsMicroBatchesUp) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, parameters_of(30, kAllTypes), small_buckets());
    for (std::uint64_t step = 0; step < 3; ++step) {
      engine.zero();
      for (std::uint64_t m = 0; m < 2; ++m) {
        const auto no_sync = engine.no_sync();
        backward(engine, comm.rank(), kRanks, 3 * step + m, m == 0);
        EXPECT_FALSE(engine.finish());
      }
      backward(engine, comm.rank(), kRanks, 3 * step + 2, false);
      EXPECT_EQ(engine.finish(), step == 0);
      EXPECT_EQ(wrong_average(engine, kRanks, {3 * step, 3 * step + 1, 3 * step + 2}), "")
          << "micro-batches";
    }
    EXPECT_EQ(engine.statistics().steps, 3u);
    EXPECT_EQ(engine.statistics().unsynchronised, 6u);
  });
}

TEST(DataParallel, ReducesInAnotherType) {
  for (const DataType type :
       {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64}) {
    run_thread_ranks(4, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Policy policy = small_buckets();
      policy.reduce_type = type;
      DataParallel engine(axis, parameters_of(40, kAllTypes), policy);
      for (std::uint64_t step = 0; step < 3; ++step) {
        backward(engine, comm.rank(), 4, step);
        (void)engine.finish();
        EXPECT_EQ(wrong_average(engine, 4, {step}), "") << std::string(name(type));
      }
    });
  }
  // Gradients that each addition would round in bfloat16, but not in float32: 256 + 1 + 1 + 1.
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy;
    policy.reduce_type = DataType::float32;
    DataParallel engine(axis, {{"w", {1}, DataType::bfloat16}}, policy);
    const float own = comm.rank() == 0 ? 1024 : 8;
    convert(&own, DataType::float32, engine.gradient(0), DataType::bfloat16, 1);
    engine.ready(0);
    (void)engine.finish();
    EXPECT_EQ(values_at(engine.parameter(0), engine.gradient(0)), std::vector<float>{262});
  });
}

TEST(DataParallel, MakesParametersRankZeros) {
  constexpr int kRanks = 3;
  for (const int root : {0, 2}) {
    run_thread_ranks(kRanks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      std::vector<Parameter> parameters = parameters_of(50, kAllTypes);
      parameters.push_back({"large", {1000, 300}});
      parameters.push_back({"last", {3}});
      DataParallel engine(axis, parameters);
      const auto value = [](int rank, std::size_t i, std::size_t k) {
        return static_cast<std::byte>((static_cast<std::size_t>(rank) * 97 + i * 31 + k * 7) % 251);
      };
      std::vector<std::vector<std::byte>> memory;
      std::vector<void*> pointers;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        memory.emplace_back(parameters[i].count() * size_of(parameters[i].type));
        for (std::size_t k = 0; k < memory[i].size(); ++k) {
          memory[i][k] = value(comm.rank(), i, k);
        }
      }
      for (auto& m : memory) pointers.push_back(m.data());
      engine.broadcast_parameters(pointers, root);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        for (std::size_t k = 0; k < memory[i].size(); ++k) {
          ASSERT_EQ(memory[i][k], value(root, i, k)) << i << ", " << k;
        }
      }
      // 50 small ones and the last together, the large one by itself: it comes first.
      EXPECT_EQ(engine.traffic()[Collective::broadcast].calls, 2u);
      pointers.pop_back();
      EXPECT_EQ(error_of([&] { engine.broadcast_parameters(pointers, root); }).code(),
                ErrorCode::invalid_argument);
    });
  }
}

TEST(DataParallel, OverlapsWithBackward) {
  constexpr int kRanks = 2;
  std::vector<std::shared_ptr<Trace>> traces(kRanks);
  std::vector<double> hidden(kRanks);
  run_thread_ranks(kRanks, [&](Communicator& comm) {
    CommunicatorAxis beneath(comm);
    // Each of ten buckets takes 10 ms to compute and 10 ms to send.
    ThrottledAxis axis(beneath, {.bytes_per_second = 4e5});
    const auto self = static_cast<std::size_t>(comm.rank());
    std::vector<Parameter> parameters(10, {"w", {1000}});
    Policy policy;
    policy.bucket_bytes = policy.first_bucket_bytes = 4000;
    policy.learn_order = false;
    DataParallel engine(axis, parameters, policy);
    traces[self] = std::make_shared<Trace>(comm.rank());
    axis.trace(traces[self], "dp");
    const Call barrier = call_of(Collective::barrier, nullptr, nullptr, 0, DataType::uint8);
    for (int step = 0; step < 6; ++step) {  // the best one counts, as the machine may be busy
      axis.run(barrier);
      traces[self]->clear();
      for (std::size_t i = engine.size(); i-- > 0;) {
        std::this_thread::sleep_for(10ms);
        engine.ready(i);
      }
      EXPECT_FALSE(engine.finish());
      axis.run(barrier);
      const std::chrono::duration<double> exposed = engine.statistics().last_exposed;
      hidden[self] = std::max(hidden[self], 1 - exposed / 100ms);
    }
  });
  for (std::size_t r = 0; r < kRanks; ++r) {
    EXPECT_GT(hidden[r], 0.5);  // 0.9 is the most possible
    const auto events = traces[r]->events();
    Trace::Clock::time_point first_start = Trace::Clock::time_point::max(), last_ready{};
    std::size_t buckets = 0, ready = 0, waits = 0;
    for (const Trace::Event& e : events) {
      if (e.track == "dp" && e.kind == Trace::Kind::flight && e.name.starts_with("bucket")) {
        first_start = std::min(first_start, e.from);
        EXPECT_GE(e.to - e.from, 9ms) << e.name;
        ++buckets;
      }
      if (e.track == "gradients") {
        last_ready = std::max(last_ready, e.from);
        ++ready;
      }
      if (e.track == "dp waits") ++waits;
    }
    EXPECT_EQ(buckets, 10u);
    EXPECT_EQ(ready, 10u);
    EXPECT_GE(waits, 10u);
    EXPECT_LT(first_start, last_ready);
  }
}

}  // namespace
}  // namespace tutti::parallel
