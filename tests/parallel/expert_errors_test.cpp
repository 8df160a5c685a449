// What goes wrong in a layer of experts: every rank is told what, and where, and none waits.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <functional>
#include <span>
#include <stdexcept>

#include "core/error.h"
#include "parallel/expert/expert_parallel.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::expert {
namespace {

using test::error_of;
using test::run_thread_ranks;

constexpr std::size_t kRowWidth = 4, kTokens = 6;
const ExpertShape kShape{
    .name = "moe", .experts = 6, .width = kRowWidth, .type = DataType::float64, .top_k = 1};

const Forward kNothing = [](std::size_t, const void*, std::size_t, void*) {};
const Backward kNothingBack = [](std::size_t, const void*, const void*, std::size_t, void*) {};

struct Batch {
  Routing routing{.top_k = 1, .experts = {}, .weights = std::vector<double>(kTokens, 1)};
  std::vector<double> x = std::vector<double>(kTokens * kRowWidth, 1), y = x;
  Saved saved;

  explicit Batch(std::int64_t step = 1) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      routing.experts.push_back(static_cast<std::int64_t>(t) * step % 6);
    }
  }
  void forward(ExpertParallel& layer, const Forward& experts = kNothing) {
    layer.forward(x.data(), routing, experts, y.data(), saved);
  }
  void backward(ExpertParallel& layer) {
    std::vector<double> dweights(routing.weights.size());
    layer.backward(x.data(), kNothingBack, saved, y.data(), dweights);
  }
};

TEST(ExpertErrors, WrongSettingsAreNamedOnAllRanks) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const auto refused = [&](const char* why, ExpertShape shape, ExpertOptions options = {}) {
      const Error e = error_of([&] { ExpertParallel(axis, shape, options); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_CONTAINS(e, why);
    };
    refused("experts 'moe': 6 experts cannot be divided among 4 ranks", kShape);
    ExpertShape shape = kShape;
    shape.experts = 0;
    refused("experts 'moe': 0 experts", shape);
    shape.experts = 8;
    refused("capacity factor 0", shape, {.capacity_factor = 0.0});
    refused("capacity factor -1.5", shape, {.capacity_factor = -1.5});
    refused("capacity factor nan", shape, {.capacity_factor = std::nan("")});
    shape.top_k = 9;
    refused("top 9 of 8 experts", shape);
    shape.top_k = 0;
    refused("top 0 of 8 experts", shape);
    shape.top_k = 1;
    shape.width = 0;
    refused("rows of 0 elements", shape);
    shape.width = 4;
    shape.type = DataType::int32;
    refused("rows of int32", shape);
    EXPECT_CONTAINS(error_of([] { Router("moe", {.experts = 4, .top_k = 5}); }),
                    "router 'moe': top 5 of 4 experts");
  });
}

TEST(ExpertErrors, RanksThatDifferAreToldSo) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const auto differs = [&](const char* how, ExpertShape shape, ExpertOptions options = {}) {
      const Error e = error_of([&] { ExpertParallel(axis, shape, options); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_EQ(e.rank(), 1);
      EXPECT_CONTAINS(e, "experts 'moe' differs among the ranks");
      EXPECT_CONTAINS(e, how);
    };
    const bool odd = comm.rank() == 1;
    ExpertShape shape = kShape;
    shape.experts = odd ? 9 : 6;
    differs("9 experts", shape);
    shape = kShape;
    shape.width = odd ? 8 : 4;
    differs("width 8", shape);
    shape = kShape;
    shape.top_k = odd ? 2 : 1;
    differs("top 2", shape);
    differs("capacity factor 2", kShape,
            odd ? ExpertOptions{.capacity_factor = 2.0} : ExpertOptions{});
    differs("overlap false", kShape, {.overlap = !odd});
  });
}

TEST(ExpertErrors, AWrongRoutingStopsAllRanksAndNoMore) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer(axis, kShape);
    const auto refused = [&](const char* why, const std::function<void(Routing&)>& spoil) {
      Batch batch;
      if (comm.rank() == 1) spoil(batch.routing);
      const Error e = error_of([&] { batch.forward(layer); });
      EXPECT_EQ(e.code(), comm.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::mismatch);
      EXPECT_CONTAINS(e, why);
      if (comm.rank() != 1) {
        EXPECT_EQ(e.rank(), 1);
        EXPECT_CONTAINS(e, "the routing of rank 1 was refused");
      }
      // Nothing has travelled: the next call is right.
      Batch good;
      good.forward(layer);
      good.backward(layer);
    };
    refused("choice 0 of token 3 is expert 6, but there are experts 0 to 5",
            [](Routing& r) { r.experts[3] = 6; });
    refused("token 0 is expert -1", [](Routing& r) { r.experts[0] = -1; });
    refused("a routing to the top 2, but the layer has top 1", [](Routing& r) { r.top_k = 2; });
    refused("6 experts and 5 weights", [](Routing& r) { r.weights.pop_back(); });
  });
}

TEST(ExpertErrors, BackwardsOfOtherMicroBatchesDoNotMatch) {
  for (const std::int64_t step : {1, 5}) {  // with the same counts, and with others
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ExpertParallel layer(axis, kShape);
      Batch first, second(step == 1 ? 1 : 0);
      first.forward(layer);
      second.forward(layer);
      const Error e =
          error_of([&] { comm.rank() == 1 ? second.backward(layer) : first.backward(layer); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_CONTAINS(e, "experts 'moe'");
    });
  }
}

TEST(ExpertErrors, AnExpertThatThrowsStopsAllRanks) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer(axis, kShape);
    Batch batch;
    const auto run = [&] {
      batch.forward(layer, [&](std::size_t expert, const void*, std::size_t, void*) {
        if (comm.rank() == 2 && expert == 1) throw std::runtime_error("out of paper");
      });
    };
    if (comm.rank() == 2) {
      EXPECT_THROW(run(), std::runtime_error);
    } else {
      const Error e = error_of(run);
      EXPECT_EQ(e.code(), ErrorCode::aborted);
      EXPECT_CONTAINS(e, "rank 2 failed in experts 'moe': out of paper");
    }
  });
}

TEST(ExpertErrors, NullAndTheBackwardOfNoForwardAreRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer(axis, kShape);
    Batch batch;
    const Error null = error_of(
        [&] { layer.forward(nullptr, batch.routing, kNothing, batch.y.data(), batch.saved); });
    EXPECT_EQ(null.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(null, "x is null, but has ");
    Saved none;
    std::vector<double> dweights;
    const Error early = error_of(
        [&] { layer.backward(batch.x.data(), kNothingBack, none, batch.y.data(), dweights); });
    EXPECT_EQ(early.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(early, "the backward of no forward");
  });
}

TEST(ExpertErrors, AnEmptyFunctionIsRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer(axis, kShape);
    Batch batch;
    const Error e = error_of([&] { batch.forward(layer, Forward()); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(e, "experts 'moe': experts is empty");
  });
}

TEST(ExpertErrors, GradientsNeedTheirSpace) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer(axis, kShape);
    Batch batch;
    batch.forward(layer);
    std::vector<double> dweights(5);
    const Error e = error_of([&] {
      layer.backward(batch.x.data(), kNothingBack, batch.saved, batch.y.data(), dweights);
    });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(e, "there are 6 weights, but space for 5 gradients");
  });
}

TEST(ExpertErrors, TheBackwardOfARefusedForwardIsRefused) {
  constexpr int kRanks = 3;
  for (const bool used_before : {false, true}) {
    std::barrier together(kRanks);
    run_thread_ranks(kRanks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ExpertParallel layer(axis, kShape);
      Batch batch;
      if (used_before) {
        batch.forward(layer);
        batch.backward(layer);
      }
      if (comm.rank() == 1) batch.routing.experts[2] = 6;
      EXPECT_NE(error_of([&] { batch.forward(layer); }).code(), ErrorCode{});
      together.arrive_and_wait();  // a backward that is refused aborts the axis
      const Error e = error_of([&] { batch.backward(layer); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << e.what();
      EXPECT_CONTAINS(e, "the backward of no forward");
    });
  }
}

TEST(ExpertErrors, TheBackwardOfAnotherLayersForwardIsRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertShape smaller = kShape;
    smaller.experts = 2;
    ExpertParallel layer(axis, kShape), other(axis, smaller);
    Batch batch;
    batch.forward(layer);
    const Error e = error_of([&] { batch.backward(other); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << e.what();
  });
}

TEST(ExpertErrors, TheBackwardOfARoutingThatNoRouterMadeIsRefused) {
  const Router router("moe", {.experts = 4, .top_k = 2});
  const std::vector<float> logits{1, 2, 3, 4, 4, 3, 2, 1};
  Routed routed;
  router.forward(logits.data(), 2, DataType::float32, routed);
  std::vector<float> dlogits(8);
  std::vector<double> dweights(4);
  const auto refused = [&](const Routed& r, std::size_t gradients) {
    const Error e = error_of([&] {
      router.backward(r, std::span(dweights).first(gradients), {}, dlogits.data(),
                      DataType::float32);
    });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(e, "router 'moe': the backward of");
  };
  router.backward(routed, dweights, {}, dlogits.data(), DataType::float32);
  refused(routed, 3);
  Routed spoilt = routed;
  spoilt.probabilities.clear();
  refused(spoilt, 4);
  spoilt = routed;
  spoilt.top_k = 1;
  refused(spoilt, 4);
}

}  // namespace
}  // namespace tutti::parallel::expert
