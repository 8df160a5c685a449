// Attention over a sequence that ranks share is the attention of one rank by torch, forward and
// backward: in each way, with each mask, and with heads that share key heads. Ranks are threads.
#include "bindings/torch/attention.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "parallel/mesh.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::sequence::AttentionOptions;
using parallel::sequence::AttentionShape;
using parallel::sequence::KeysTravel;
using parallel::sequence::SequenceOrder;

struct Case {
  int heads_ranks, keys_ranks;
  AttentionOptions options{};
  bool causal = true;
  std::size_t kv_heads = 4;
  DataType type = DataType::float64;
};

/// The whole sequence, on every rank: q, k, v, and the gradient of the output.
struct Whole {
  explicit Whole(const Case& c) {
    at::Generator random = at::globalContext().defaultGenerator(at::kCPU).clone();
    random.set_current_seed(7);
    const auto tensor = [&](std::int64_t heads) {
      return at::empty({24, 2, heads, 5}, at::kDouble)
          .normal_(0, 1, random)
          .to(scalar_type(c.type));
    };
    const auto key_heads = static_cast<std::int64_t>(c.kv_heads);
    q = tensor(4), k = tensor(key_heads), v = tensor(key_heads), dout = tensor(4);
  }
  Tensor q, k, v, dout;
};

struct Result {
  Tensor out, dq, dk, dv;
};

/// In float64, as torch's own formula has it.
Result by_torch(const Case& c) {
  const Whole whole(c);
  std::vector<Tensor> leaves;
  for (const Tensor& t : {whole.q, whole.k, whole.v}) {
    leaves.push_back(t.to(at::kDouble, false, true).requires_grad_());
  }
  const auto heads = [&](const Tensor& t) {  // [batch, heads, rows, dim], of all query heads
    return t.repeat_interleave(4 / t.size(2), 2).permute({1, 2, 0, 3});
  };
  Tensor scores = heads(leaves[0]).matmul(heads(leaves[1]).transpose(2, 3)) / std::sqrt(5.0);
  if (c.causal) scores = scores.masked_fill(at::ones({24, 24}, at::kBool).triu(1), -INFINITY);
  const Tensor out = scores.softmax(-1).matmul(heads(leaves[2])).permute({2, 0, 1, 3});
  out.backward(whole.dout.to(at::kDouble));
  return {out.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

Result by_rank(parallel::Mesh& mesh, const Case& c) {
  const Whole whole(c);
  ContextParallelAttention attention(
      {.heads = c.heads_ranks > 1 ? &mesh.axis("heads") : nullptr, .keys = &mesh.axis("keys")},
      {.name = "attention",
       .sequence = 24,
       .batch = 2,
       .heads = 4,
       .kv_heads = c.kv_heads,
       .dim = 5,
       .type = c.type,
       .causal = c.causal},
      c.options);
  std::vector<Tensor> leaves;
  for (const Tensor& t : {whole.q, whole.k, whole.v}) {
    leaves.push_back(t.index_select(0, attention.positions()).requires_grad_());
  }
  const Tensor out = attention.forward(leaves[0], leaves[1], leaves[2]);
  out.backward(whole.dout.index_select(0, attention.positions()));
  return {out.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

void expect_equals_one_rank(const Case& c, double tolerance) {
  SCOPED_TRACE(fmt::format("heads {} x keys {}, {} order, {}, {}, {} key heads, {}", c.heads_ranks,
                           c.keys_ranks,
                           c.options.order == SequenceOrder::zigzag ? "zigzag" : "contiguous",
                           c.options.keys == KeysTravel::ring ? "ring" : "all_gather",
                           c.causal ? "causal" : "all", c.kv_heads, name(c.type)));
  const Result expected = by_torch(c);
  const int ranks = c.heads_ranks * c.keys_ranks;
  std::vector<double> errors(static_cast<std::size_t>(ranks));
  test::run_thread_ranks(ranks, [&](Communicator& world) {
    parallel::Mesh mesh(world, {{"keys", c.keys_ranks}, {"heads", c.heads_ranks}});
    const Result own = by_rank(mesh, c);
    parallel::sequence::SequenceLayout layout{.order = c.options.order,
                                              .causal = c.causal,
                                              .rows = 24 / static_cast<std::size_t>(c.keys_ranks),
                                              .rank = mesh.coordinate("keys"),
                                              .ranks = c.keys_ranks};
    std::vector<std::int64_t> places;
    const std::size_t rows = layout.rows / static_cast<std::size_t>(c.heads_ranks);
    for (std::size_t row = 0; row < rows; ++row) {
      places.push_back(static_cast<std::int64_t>(layout.position(
          layout.rank, static_cast<std::size_t>(mesh.coordinate("heads")) * rows + row)));
    }
    const Tensor of_rank = at::tensor(places);
    double& error = errors[static_cast<std::size_t>(world.rank())];
    const auto compare = [&](const Tensor& got, const Tensor& whole) {
      const Tensor wanted = whole.index_select(0, of_rank);
      ASSERT_EQ(got.sizes(), wanted.sizes());
      error = std::max(error, (got.to(at::kDouble) - wanted).abs().max().item<double>());
    };
    compare(own.out, expected.out);
    compare(own.dq, expected.dq);
    compare(own.dk, expected.dk);
    compare(own.dv, expected.dv);
  });
  for (const double error : errors) EXPECT_LE(error, tolerance);
}

TEST(TorchAttention, EqualsOneRankInEachWayAndWithEachMask) {
  constexpr SequenceOrder zigzag = SequenceOrder::zigzag;
  for (const bool causal : {true, false}) {
    expect_equals_one_rank({1, 3, {}, causal}, 1e-12);
    expect_equals_one_rank({1, 3, {.order = zigzag}, causal}, 1e-12);
    expect_equals_one_rank({1, 2, {.keys = KeysTravel::all_gather, .order = zigzag}, causal},
                           1e-12);
    expect_equals_one_rank({1, 2, {.keys = KeysTravel::all_gather}, causal}, 1e-12);
    expect_equals_one_rank({4, 1, {}, causal}, 1e-12);
    expect_equals_one_rank({2, 2, {.order = zigzag}, causal}, 1e-12);
  }
}

TEST(TorchAttention, SharesKeyHeadsAmongQueryHeads) {
  for (const std::size_t kv_heads : {1, 2}) {
    expect_equals_one_rank({1, 3, {.order = SequenceOrder::zigzag}, true, kv_heads}, 1e-12);
    expect_equals_one_rank({2, 2, {}, true, kv_heads}, 1e-12);
    expect_equals_one_rank({4, 1, {}, false, kv_heads}, 1e-12);
  }
}

TEST(TorchAttention, ComputesInNarrowTypes) {
  expect_equals_one_rank({1, 3, {.order = SequenceOrder::zigzag}, true, 2, DataType::float32},
                         1e-5);
  expect_equals_one_rank({2, 2, {}, true, 2, DataType::bfloat16}, 0.1);
}

TEST(TorchAttention, RefusesTensorsOfAnotherShape) {
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    ContextParallelAttention attention(
        {.keys = &axis}, {.name = "a", .sequence = 8, .heads = 2, .kv_heads = 1, .dim = 4});
    const Tensor q = at::zeros({4, 1, 2, 4}), k = at::zeros({4, 1, 1, 4});
    const Error error = test::error_of([&] { attention.forward(q, q, k); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "attention 'a' takes k as float32 [4, 1, 1, 4], on the CPU, not float32 "
                 "[4, 1, 2, 4]");
    EXPECT_EQ(attention.forward(q, k, k).sizes(), q.sizes());  // nothing has begun
  });
}

// Where the engine refers to the caller's tensors, and another forward's memory has come meanwhile.
TEST(TorchAttention, KeepsWhatItsBackwardNeedsForManyMicroBatches) {
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    ContextParallelAttention attention(
        {.keys = &axis},
        {.name = "a", .sequence = 8, .heads = 2, .dim = 4, .type = DataType::float64});
    std::vector<Tensor> leaves, outs, alone;
    const auto input = [&](int m) {
      return (at::arange(32, at::kDouble) * (1 + m + world.rank())).sin().view({4, 1, 2, 4});
    };
    for (int m = 0; m < 3; ++m) {
      const Tensor x = input(m).requires_grad_();
      attention.forward(x * 1, x * 2, x * 3).square().sum().backward();
      alone.push_back(x.grad());
    }
    for (int m = 0; m < 3; ++m) {
      leaves.push_back(input(m).requires_grad_());
      const Tensor& x = leaves.back();
      outs.push_back(attention.forward(x * 1, x * 2, x * 3).square().sum());
    }
    for (int m = 0; m < 3; ++m) {
      outs[static_cast<std::size_t>(m)].backward();
      EXPECT_TRUE(
          leaves[static_cast<std::size_t>(m)].grad().equal(alone[static_cast<std::size_t>(m)]));
    }
  });
}

}  // namespace
}  // namespace tutti::libtorch
