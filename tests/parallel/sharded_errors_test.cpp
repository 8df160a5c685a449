// What goes wrong in sharded training is said on all ranks, by name: models that differ, ranks that
// give up, gradients that are not finite, events in the wrong order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_steps.h"
#include "tests/support/address_space.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace parallel;
using namespace std::chrono_literals;
using test::error_of;
using test::run_thread_ranks;

// --- Declarations --------------------------------------------------------------------------------

struct Declaration {
  std::vector<Unit> units = three_units();
  Policy policy = Policy::zero3();
};

/// The last but one rank's declaration is changed.
void expect_refused(const std::function<void(Declaration&)>& change, ErrorCode code,
                    const std::string& part, bool on_all = false) {
  for (const int ranks : {2, 3, 5}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Declaration declared;
      const int odd = ranks == 2 ? 1 : ranks - 2;
      if (on_all || comm.rank() == odd) change(declared);
      const Error e =
          error_of([&] { ShardedDataParallel(declared.units, declared.policy, {.shard = &axis}); });
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_CONTAINS(e, part);
      if (!on_all) {
        EXPECT_EQ(e.rank(), odd);
        EXPECT_CONTAINS(e, fmt::format("rank {} has", odd));
      }
      // The communicator is as good as before.
      ShardedDataParallel good(three_units(), Policy::zero3(), {.shard = &axis});
    });
  }
}

TEST(ShardedDeclarations, ThatDifferAreNamedOnAllRanks) {
  const auto mismatch = [](const std::string& part, auto&& change) {
    expect_refused(change, ErrorCode::mismatch, part);
  };
  mismatch("parameter 'b' of unit 'second', 9 elements", [](Declaration& d) {
    d.units[1].parameters[1] = {"b", 9, 9};
  });
  mismatch("64 elements in 16 rows", [](Declaration& d) { d.units[2].parameters[0].rows = 16; });
  mismatch("'other'", [](Declaration& d) { d.units[0].parameters[0].name = "other"; });
  mismatch("parameter 'more' of unit 'third'", [](Declaration& d) {
    d.units[2].parameters.push_back({"more", 1, 1});
  });
  mismatch("the end of the declaration", [](Declaration& d) { d.units.pop_back(); });
  mismatch("unit 'last'",
           [](Declaration& d) { d.units.push_back({.name = "last", .parameters = {}}); });
  mismatch("compute bfloat16", [](Declaration& d) { d.policy.precision = Precision::mixed(); });
  mismatch("stage 2 (gradients), reshard yes, layout flat",
           [](Declaration& d) { d.policy.stage = Stage::gradients; });
  mismatch("reshard no, layout",
           [](Declaration& d) { d.policy.reshard_after_forward = Reshard::no; });
  mismatch("layout by_parameter", [](Declaration& d) { d.policy.layout = Layout::by_parameter; });
  mismatch("reshard no\" where", [](Declaration& d) { d.units[2].reshard = Reshard::no; });
  mismatch("where rank 0 has \"unit 'third', reshard as the policy has it\"",
           [](Declaration& d) { d.units[2].reshard = Reshard::no; });
  mismatch("8 elements in 3 rows", [](Declaration& d) { d.units[1].parameters[1].rows = 3; });
}

TEST(ShardedDeclarations, ThatCannotBeAreRefusedOnAllRanks) {
  const auto invalid = [](const std::string& part, auto&& change) {
    expect_refused(change, ErrorCode::invalid_argument, part, true);
  };
  invalid("which do not divide them", [](Declaration& d) { d.units[1].parameters[1].rows = 3; });
  invalid("int32", [](Declaration& d) { d.policy.precision.reduce = DataType::int32; });
  invalid("float64 does not go with a master of type float32",
          [](Declaration& d) { d.policy.precision.compute = DataType::float64; });
  invalid("not bfloat16", [](Declaration& d) { d.policy.precision.master = DataType::bfloat16; });
  invalid("ShardedAxes::group", [](Declaration& d) { d.units[2].reshard = Reshard::to_group; });
  invalid("alignment", [](Declaration& d) { d.policy.alignment = 0; });
  invalid("alignment", [](Declaration& d) { d.policy.alignment = ~std::size_t{0}; });
  invalid("than there can be", [](Declaration& d) {
    d.units[1].parameters[0] = {"w", ~std::size_t{0}, 1};
  });
  const Error e = error_of([] { ShardedDataParallel({}, Policy::zero3(), {}); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
}

// Each rank would keep a third of 12 TB, of parameters and as much of gradients.
TEST(ShardedDeclarations, ThatNoMemoryHoldsAreRefusedOnAllRanks) {
  const test::AddressSpace limit(std::size_t{2} << 30);
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const bool offload : {false, true}) {
      Policy policy = Policy::zero3();
      policy.offload_state = offload;
      const Error e = error_of([&] {
        ShardedDataParallel({{"huge", {{"w", std::size_t{3} << 40, 3}}}}, policy, {.shard = &axis});
      });
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find(
                    "sharded data parallel (parameters and gradients) needs 24 TiB on the "
                    "host of ranks 0 to 2 (3 ranks), where "),
                std::string::npos)
          << e.what();
    }
  });
}

// --- A rank that gives up ------------------------------------------------------------------------

TEST(ShardedRanks, ThatGiveUpEndTheStepOfTheOthers) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    std::barrier together(3);
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(three_units(), policy, {.shard = &axis});
      model.share_parameters();
      good_step(model);
      together.arrive_and_wait();
      const Error e = error_of([&] {
        if (comm.rank() == 1) return comm.abort("the test stops here");
        good_step(model);
      });
      if (comm.rank() == 1) return;
      EXPECT_EQ(e.code(), ErrorCode::aborted) << e.what();
      EXPECT_CONTAINS(e, "unit");
      EXPECT_CONTAINS(e, "the test stops here");
    });
  }
}

/// Forward and backward of all units, in which `change` gets the gradient of the second one's b.
void backward_that(ShardedDataParallel& model, const std::function<void(void*)>& change) {
  for (std::size_t u = 0; u < 3; ++u) forward(model, u);
  for (std::size_t u = 3; u-- > 0;) {
    model.before_backward(u);
    if (u == 1) change(model.gradient({u, 1}));
    model.after_backward(u);
  }
}

// --- Gradients that are not finite ---------------------------------------------------------------

TEST(ShardedGradients, ThatAreNotFiniteAreNamedOnRequest) {
  for (Policy policy : {Policy::zero1(), Policy::zero2(Precision::mixed()), Policy::zero3(),
                        Policy::fsdp(Precision::mixed(DataType::float16))}) {
    policy.check_finite = true;
    for (const bool checked : {true, false}) {
      policy.check_finite = checked;
      run_thread_ranks(3, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        ShardedDataParallel model(three_units(), policy, {.shard = &axis});
        model.share_parameters();
        backward_that(model, [&](void* b) {
          if (comm.rank() != 2) return;
          const std::size_t size = size_of(policy.precision.gradient);
          std::memset(static_cast<std::byte*>(b) + 3 * size, 0xFF, size);  // a NaN in each type
        });
        if (checked) {
          const Error e = error_of([&] { model.finish_backward(); });
          EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
          EXPECT_EQ(e.rank(), 2);
          EXPECT_CONTAINS(e, "parameter 'b' of unit 'second' is not finite on rank 2");
        } else {
          model.finish_backward();
          EXPECT_TRUE(std::isnan(model.clip_gradients(1)));
        }
        model.discard_gradients();  // as mixed precision does, to go on with a smaller scale
        good_step(model);
        model.before_forward(1);
        EXPECT_EQ(model.steps(), 1U);
        const auto* bytes = static_cast<const std::byte*>(model.parameter({1, 1}));
        EXPECT_EQ(bytes[3 * size_of(policy.precision.compute)], std::byte{0});
        model.after_forward(1);
      });
    }
  }
}

// What is finite is not refused because its square is not.
TEST(ShardedGradients, ThatAreLargeAreFinite) {
  Policy policy = Policy::zero3(Precision::of(DataType::float64));
  policy.check_finite = true;
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel model(three_units(), policy, {.shard = &axis});
    model.share_parameters();
    backward_that(model, [](void* b) { *static_cast<double*>(b) = 1e300; });
    model.finish_backward();
    EXPECT_EQ(model.gradient_norm(), std::numeric_limits<double>::infinity());  // as it says
    model.discard_gradients();
  });
}

// Options that would make all parameters NaN, or turn gradients around, change nothing.
TEST(ShardedOptimizers, RefuseNumbersThatAreNone) {
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel model(three_units(), Policy::zero2(), {.shard = &axis});
    model.share_parameters();
    for (std::size_t u = 0; u < 3; ++u) forward(model, u);
    for (std::size_t u = 3; u-- > 0;) backward(model, u);
    model.finish_backward();
    for (const double norm : {-1.0, std::nan("")}) {
      EXPECT_EQ(error_of([&] { model.clip_gradients(norm); }).code(), ErrorCode::invalid_usage);
    }
    for (const AdamW::Options& o : {AdamW::Options{.learning_rate = std::nan("")},
                                    {.learning_rate = -1},
                                    {.beta1 = 1},
                                    {.beta2 = 1.5},
                                    {.epsilon = -1},
                                    {.weight_decay = std::nan("")}}) {
      EXPECT_EQ(error_of([&] { model.step(AdamW(o)); }).code(), ErrorCode::invalid_argument);
    }
    EXPECT_CONTAINS(error_of([&] { model.step(Sgd({.momentum = -1})); }), "the momentum is -1");
    EXPECT_EQ(model.steps(), 0U);
    model.step(AdamW());
  });
}

// --- Events in the wrong order -------------------------------------------------------------------

TEST(ShardedUse, InTheWrongOrderIsRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const auto refused = [](const std::string& part, const std::function<void()>& call) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << e.what();
      EXPECT_CONTAINS(e, part);
    };
    ShardedDataParallel model(three_units(), Policy::zero1(), {.shard = &axis});
    refused("before share_parameters()", [&] { model.before_forward(0); });
    const Error null = error_of([&] { model.load({0, 0}, nullptr); });
    EXPECT_EQ(null.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(null, "is null");
    model.share_parameters();
    refused("there are 3 units", [&] { model.before_forward(3); });
    refused("after_forward of unit 'first', which is not in use", [&] { model.after_forward(0); });
    refused("outside of the unit's forward", [&] { model.parameter({0, 0}); });
    refused("no parameter 2 of unit 0", [&] { model.parameter({0, 2}); });
    refused("before finish_backward()", [&] { model.step(Sgd()); });
    refused("before finish_backward()", [&] { model.clip_gradients(1); });
    model.before_forward(0);
    EXPECT_NE(model.parameter({0, 0}), nullptr);
    refused("outside of the unit's backward", [&] { model.gradient({0, 0}); });
    refused("in its forward", [&] { model.before_forward(0); });
    refused("while unit 'first' is in use", [&] { model.finish_backward(); });
    refused("while unit 'first' is in use", [&] { model.share_parameters(); });
    refused("while unit 'first' is in use", [&] { model.step(Sgd()); });
    model.after_forward(0);
    model.synchronise(false);
    backward(model, 0);
    model.synchronise(true);
    backward(model, 1);
    model.finish_backward();
    refused("gradients of unit 'first' were not reduced", [&] { model.step(Sgd()); });
    model.discard_gradients();
    good_step(model);
    for (std::size_t u = 0; u < 3; ++u) forward(model, u);
    for (std::size_t u = 3; u-- > 0;) backward(model, u);
    model.finish_backward();
    refused("AdamW keeps 2 numbers", [&] { model.step(AdamW()); });
  });
}

}  // namespace
}  // namespace tutti
