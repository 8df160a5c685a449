// Where training meets the rules of collectives (docs/semantics.md, Training): experts that data
// choose, gradients that come in another order on each rank, and averages.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_steps.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;

constexpr std::size_t kRouter = 0, kExperts[] = {1, 2};

/// A step in which the data send tokens to expert `first` (0 or 1) and then to the other one. The
/// gradients of expert e are 1 + e, so that a mixture would show.
void step_by_data(ShardedDataParallel& model, std::size_t first) {
  const std::size_t a = kExperts[first], b = kExperts[1 - first];
  for (const std::size_t u : {kRouter, a, b}) forward(model, u);
  for (const std::size_t u : {b, a, kRouter}) {
    model.before_backward(u);
    auto* const gradient = static_cast<float*>(model.gradient({u, 0}));
    for (std::size_t i = 0; i < 64; ++i) gradient[i] += static_cast<float>(1 + u);
    model.after_backward(u);
  }
  model.finish_backward();
  model.step(Sgd({.learning_rate = 1}));
}

std::vector<float> masters(const ShardedDataParallel& model, std::size_t unit) {
  const auto shard = model.shard({unit, 0});
  const auto* const begin = static_cast<const float*>(shard.master);
  return {begin, begin + shard.count};
}

// Units of equal size: a reduction of one beside one of the other would fit.
// semantics.md: E1
TEST(SemanticsTraining, ExpertsThatDataChooseAreNeverMixed) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    SCOPED_TRACE(policy.describe());
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(three_units(), policy, {.shard = &axis});
      model.share_parameters();
      for (const std::size_t first : {0, 1, 0, 1}) step_by_data(model, first);  // both are known
      for (std::size_t u = 0; u < 3; ++u) {
        for (const float x : masters(model, u)) EXPECT_EQ(x, -4 * static_cast<float>(1 + u));
      }
      const Error e = error_of([&] { step_by_data(model, static_cast<std::size_t>(comm.rank())); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      EXPECT_CONTAINS(e, "unit '");  // where this rank was
      for (std::size_t u = 0; u < 3; ++u) {
        for (const float x : masters(model, u)) EXPECT_EQ(x, -4 * static_cast<float>(1 + u));
      }
      EXPECT_NE(error_of([&] { model.step(Sgd({.learning_rate = 1})); }).code(), ErrorCode{});
    });
  }
}

// semantics.md: E1
TEST(SemanticsTraining, AnExpertThatOneRankLeavesOutIsNoticed) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero3()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(three_units(), policy, {.shard = &axis});
      model.share_parameters();
      good_step(model);
      const Error e = error_of([&] {
        for (const std::size_t u : {0, 1, 2}) {
          if (u != 1 || comm.rank() == 0) forward(model, u);
        }
        for (const std::size_t u : {2, 1, 0}) {
          if (u != 1 || comm.rank() == 0) backward(model, u);
        }
        model.finish_backward();
        model.step(Sgd());
      });
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      EXPECT_CONTAINS(e, "unit '");
    });
  }
}

// semantics.md: E2
TEST(SemanticsTraining, GradientsComeInAnyOrderAndTheirAverageDividesByAllRanks) {
  for (const bool overlap : {false, true}) {
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      std::vector<Parameter> parameters;
      for (int i = 0; i < 6; ++i) parameters.push_back({"p" + std::to_string(i), {100}});
      DataParallelPolicy policy;
      policy.bucket_bytes = policy.first_bucket_bytes = 400;  // one gradient each
      policy.overlap = overlap;
      DataParallel engine(axis, parameters, policy);
      for (int step = 0; step < 3; ++step) {
        engine.zero();
        for (std::size_t k = 0; k < 6; ++k) {
          // Each rank begins elsewhere, and every other one goes backwards.
          const auto rank = static_cast<std::size_t>(comm.rank());
          const std::size_t i = (rank % 2 == 0 ? k + 2 * rank : 11 - k) % 6;
          auto* const gradient = static_cast<float*>(engine.gradient(i));
          for (std::size_t e = 0; e < 100; ++e) {
            gradient[e] = 3 * static_cast<float>(100 * i + e + 1000 * rank);
          }
          engine.ready(i);
        }
        (void)engine.finish();
        for (std::size_t i = 0; i < 6; ++i) {
          const auto* const average = static_cast<const float*>(engine.gradient(i));
          for (std::size_t e = 0; e < 100; ++e) {
            ASSERT_EQ(average[e], 3 * static_cast<float>(100 * i + e + 1000)) << i << ", " << e;
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti::test
