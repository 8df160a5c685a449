// Ranks that take different ways through the units of a sharded model are told so, by name, on all
// ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_steps.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace parallel;
using namespace std::chrono_literals;
using test::error_of;
using test::run_thread_ranks;

using Way = std::function<void(ShardedDataParallel&)>;

/// After `before` good steps rank `odd` goes one way, the others another one; units are of equal
/// size, so that their calls alone would not show it.
void expect_way_error(const Policy& policy, int before, const Way& way, const Way& odd_way,
                      const std::vector<std::string>& parts) {
  for (const int ranks : {2, 3}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} steps before, {}", ranks, before, policy.describe()));
    Options options;
    options.timeout = 20s;
    run_thread_ranks(ranks, options, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(three_units(), policy, {.shard = &axis});
      model.share_parameters();
      for (int i = 0; i < before; ++i) good_step(model);
      const bool odd = comm.rank() == ranks - 1;
      const Error e = error_of([&] { (odd ? odd_way : way)(model); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << comm.rank() << ": " << e.what();
      for (const std::string& part : parts) EXPECT_CONTAINS(e, part);
      EXPECT_NE(error_of([&] { forward(model, 0); }).code(), ErrorCode{}) << "stays failed";
    });
  }
}

TEST(ShardedOrder, ThatDiffersInTheFirstStepIsNamed) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    expect_way_error(
        policy, 0, good_step,
        [](ShardedDataParallel& m) {
          forward(m, 0);
          forward(m, 2);  // not the second
          good_step(m);
        },
        {"came to the forward of unit 'third'", "to the forward of unit 'second' (event 2"});
    expect_way_error(policy, 0, good_step,
                     [](ShardedDataParallel& m) {
                       for (std::size_t u = 0; u < 3; ++u) forward(m, u);
                       backward(m, 2);
                       backward(m, 1);
                       m.finish_backward();  // without the first
                     },
                     {"came to finish_backward()", "to the backward of unit 'first'"});
  }
}

TEST(ShardedOrder, ThatDiffersLaterIsNamed) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    // Where nobody has gone before: this rank's question meets the others' parameters or gradients.
    expect_way_error(policy, 2, good_step,
                     [](ShardedDataParallel& m) {
                       forward(m, 0);
                       forward(m, 2);
                       good_step(m);
                     },
                     {"unit '", "rank"});
  }
}

// A way that all have gone before, at another time: known, so it shows at the end. Stage 1 has no
// calls in the forward that could fail to match.
TEST(ShardedOrder, OfKnownWaysIsComparedAtTheEnd) {
  const auto evaluate_and_train = [](ShardedDataParallel& m) {
    for (std::size_t u = 0; u < 3; ++u) forward(m, u);
    good_step(m);
  };
  expect_way_error(
      Policy::zero1(), 1,
      [&](ShardedDataParallel& m) {
        evaluate_and_train(m);
        good_step(m);
        good_step(m);
      },
      [&](ShardedDataParallel& m) {
        evaluate_and_train(m);
        good_step(m);
        evaluate_and_train(m);
      },
      {"came to the forward of unit 'first'", "to the backward of unit 'third' (event 4"});
}

// Two forwards of a unit in one step, and a unit that has no backward, are no errors.
TEST(ShardedOrder, OfAllRanksMayChange) {
  for (const Policy& policy : {Policy::zero2(), Policy::zero3()}) {
    run_thread_ranks(4, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(three_units(), policy, {.shard = &axis});
      const std::vector<float> ones(64, 1.0f);
      for (std::size_t u = 0; u < 3; ++u) model.load({u, 0}, ones.data());
      model.share_parameters();
      const Sgd sgd({.learning_rate = 1});
      for (int i = 0; i < 6; ++i) {
        if (i % 2 == 0) forward(model, 1);
        for (std::size_t u = 0; u < 3; ++u) forward(model, u);
        for (std::size_t u = i % 3 == 0 ? 3 : 2; u-- > 0;) {
          model.before_backward(u);
          static_cast<float*>(model.gradient({u, 0}))[5] += 0.125f;
          model.after_backward(u);
          if (u == 1) {  // used twice: reduced twice, and added
            model.before_backward(u);
            EXPECT_EQ(static_cast<float*>(model.gradient({u, 0}))[5], 0.0f);
            static_cast<float*>(model.gradient({u, 0}))[5] += 0.25f;
            model.after_backward(u);
          }
        }
        model.finish_backward();
        model.step(sgd);
      }
      const float expected[] = {1 - 6 * 0.125f, 1 - 6 * 0.375f, 1 - 2 * 0.125f};
      for (std::size_t u = 0; u < 3; ++u) {
        model.before_forward(u);
        EXPECT_EQ(static_cast<const float*>(model.parameter({u, 0}))[5], expected[u]);
        EXPECT_EQ(static_cast<const float*>(model.parameter({u, 0}))[6], 1.0f);
        model.after_forward(u);
      }
    });
  }
}

}  // namespace
}  // namespace tutti
