// A layer of experts that ranks share gives the same as torch on one rank by a loop over experts,
// forward and backward, and so do the averages of its gradients. Ranks are threads.
#include "bindings/torch/experts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "bindings/torch/checkpoint.h"
#include "bindings/torch/data_parallel.h"
#include "parallel/mesh.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

constexpr std::int64_t kExperts = 8, kWidth = 6, kHidden = 10;
constexpr double kBalance = 0.3;

struct Case {
  int edp, ep;
  std::int64_t top_k;
  std::int64_t tokens;  // of each rank
  bool renormalizes = false;
  bool recompute = false;
};

Tensor numbers(std::int64_t rows, std::int64_t seed) {
  return (at::arange(seed, seed + rows * kWidth, at::kDouble) * 1.7).sin().view({rows, kWidth});
}

/// Ranks are threads, which draw from one generator: so weights are those of their places.
void set_weights(torch::nn::Module& module, std::int64_t seed) {
  const at::NoGradGuard no_grad;
  for (const Tensor& p : module.parameters()) {
    p.copy_((at::arange(p.numel(), at::kDouble) * (0.9 + 0.01 * double(seed)) + double(p.dim()))
                .cos()
                .view(p.sizes()) /
            2);
  }
}
Expert known_expert(std::int64_t number) {
  Expert expert = feed_forward(kWidth, kHidden, at::kDouble)(number);
  set_weights(*expert.module, number);
  return expert;
}

/// By name; experts' by their numbers among all.
using Gradients = std::map<std::string, Tensor>;

struct Result {
  Tensor y, dx;  // of all tokens
  double balance = 0;
  Gradients gradients;
};

Result by_torch(const Case& c) {
  const std::int64_t all = c.edp * c.ep * c.tokens;
  Linear router(kWidth, kExperts, at::kDouble, false);
  set_weights(router, 100);
  std::vector<Expert> experts;
  for (std::int64_t e = 0; e < kExperts; ++e) experts.push_back(known_expert(e));
  const Tensor x = numbers(all, 1).requires_grad_();
  const Tensor p = at::linear(x, router.weight).softmax(-1);
  auto [weights, chosen] = p.topk(c.top_k, -1);
  if (c.renormalizes) weights = weights / weights.sum(-1, true);
  Tensor y = at::zeros_like(x), share = at::zeros({kExperts}, at::kDouble);
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const Tensor is_chosen = (chosen == e).to(at::kDouble);
    share[e] = is_chosen.sum() / double(all * c.top_k);
    y = y + experts[std::size_t(e)].forward(x) * (weights * is_chosen).sum(-1, true);
  }
  const Tensor balance = kExperts * (share.detach() * p.mean(0)).sum();
  const Tensor loss = (y * numbers(all, 500)).sum(-1).mean() + kBalance * balance;
  loss.backward();
  Result result{y.detach(), x.grad(), balance.item<double>(), {{"router", router.weight.grad()}}};
  for (std::int64_t e = 0; e < kExperts; ++e) {
    for (const auto& p_of : experts[std::size_t(e)].module->named_parameters()) {
      result.gradients[fmt::format("{}.{}", e, p_of.key())] = p_of.value().grad();
    }
  }
  return result;
}

/// Compares with what `expected` has of the rank.
void expect_is_part(Communicator& world, const Case& c, const Result& expected) {
  const int ranks = world.size();
  parallel::Mesh mesh(world, {{"edp", c.edp}, {"ep", c.ep}}, {{"edp", "ep"}});
  auto& all = mesh.axis({"edp", "ep"});
  MixtureOfExperts moe(mesh.axis("ep"),
                       {.name = "moe",
                        .experts = kExperts,
                        .width = kWidth,
                        .type = DataType::float64,
                        .top_k = static_cast<std::size_t>(c.top_k)},
                       known_expert,
                       {.renormalizes = c.renormalizes, .balance = kBalance, .balance_axis = &all});
  set_weights(*moe.router, 100);
  DataParallel rest(all, moe), experts(mesh.axis("edp"), *moe.experts);
  const auto part = [&](const Tensor& whole) {
    return whole.narrow(0, world.rank() * c.tokens, c.tokens);
  };
  const Tensor x = part(numbers(ranks * c.tokens, 1)).clone().requires_grad_();
  const Layer body = [&](const Tensor& t) { return moe.forward(t); };
  const Tensor y = c.recompute ? checkpoint(body, x) : body(x);
  const Tensor loss = (y * part(numbers(ranks * c.tokens, 500))).sum(-1).mean();
  loss.backward();
  rest.finish();
  experts.finish();
  const auto error = [](const Tensor& a, const Tensor& b) {
    return (a - b).abs().max().item<double>();
  };
  EXPECT_LE(error(y, part(expected.y)), 1e-13);
  EXPECT_NEAR(moe.balance_loss(), expected.balance, 1e-13);
  // The mean over ranks divides the gradient of a rank's own loss.
  EXPECT_LE(error(x.grad() / ranks, part(expected.dx)), 1e-13);
  EXPECT_LE(error(moe.router->weight.grad(), expected.gradients.at("router")), 1e-13);
  std::size_t compared = 0;
  for (const auto& p : moe.experts->named_parameters()) {
    EXPECT_LE(error(p.value().grad(), expected.gradients.at(p.key())), 1e-13) << p.key();
    ++compared;
  }
  EXPECT_EQ(compared, 4u * kExperts / unsigned(c.ep));
  EXPECT_EQ(moe.parameters().size(), 1u);  // the router's: experts have other ranks
}

void expect_equals_one_rank(const Case& c) {
  SCOPED_TRACE(fmt::format("edp {} x ep {}, top {}, {} tokens{}{}", c.edp, c.ep, c.top_k, c.tokens,
                           c.renormalizes ? ", renormalizes" : "",
                           c.recompute ? ", recomputes" : ""));
  const Result expected = by_torch(c);
  test::run_thread_ranks(c.edp * c.ep,
                         [&](Communicator& world) { expect_is_part(world, c, expected); });
}

TEST(TorchExperts, EqualOneRank) {
  expect_equals_one_rank({1, 1, 2, 20});
  expect_equals_one_rank({1, 2, 1, 10});
  expect_equals_one_rank({1, 4, 2, 5, true});
  expect_equals_one_rank({2, 2, 3, 5});
  expect_equals_one_rank({2, 2, 2, 5, true, true});
}

// Two tokens of each rank go to two experts at most: the others have gradients of zeros.
TEST(TorchExperts, GetGradientsIfNoTokenChoosesThem) {
  expect_equals_one_rank({1, 2, 1, 1});
  expect_equals_one_rank({2, 2, 1, 1, false, true});
}

TEST(TorchExperts, MayBeGivenModules) {
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    std::vector<std::int64_t> made;
    MixtureOfExperts moe(
        axis, {.name = "m", .experts = 4, .width = 2, .top_k = 1}, [&](std::int64_t number) {
          made.push_back(number);
          return Expert{std::make_shared<Linear>(2, 2),
                        [number](const Tensor& x) { return x * double(number + 1); }};
        });
    EXPECT_EQ(made, (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_TRUE(moe.experts->named_children().contains(world.rank() == 0 ? "1" : "3"));
    const at::NoGradGuard no_grad;
    moe.router->weight.zero_();
    moe.router->weight[2][0] = 100;  // all tokens go to expert 2, with weight 1
    const Tensor x = at::ones({3, 2}) * (world.rank() + 1);
    EXPECT_TRUE(moe.forward(x).equal(x * 3));
    EXPECT_EQ(moe.received()[0], world.rank() == 1 ? 6u : 0u);
    EXPECT_EQ(moe.dropped(), 0u);
    EXPECT_EQ(moe.balance_loss(), 0);
  });
}

TEST(TorchExperts, RefuseRowsOfAnotherWidthAndASecondBackward) {
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    MixtureOfExperts moe(axis, {.name = "m", .experts = 2, .width = 2, .top_k = 2},
                         feed_forward(2, 4));
    const Error error = test::error_of([&] { moe.forward(at::zeros({3, 4})); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "experts 'm' take float32 [..., 2], on the CPU, not float32 [3, 4]");
    const Tensor loss = moe.forward(at::ones({3, 2})).sum();
    loss.backward({}, /*retain_graph=*/true);
    const Error second = test::error_of([&] { loss.backward(); });
    // One of the two says why; it has aborted the other.
    EXPECT_TRUE(second.code() == ErrorCode::invalid_usage || second.code() == ErrorCode::aborted);
    EXPECT_NE(std::string(second.what()).find("a second backward of one forward"),
              std::string::npos)
        << second.what();
  });
}

TEST(TorchExperts, AnExceptionOfOneEndsTheCallOnAllRanks) {
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    MixtureOfExperts moe(
        axis, {.name = "m", .experts = 2, .width = 2, .top_k = 2}, [](std::int64_t number) {
          return Expert{std::make_shared<Linear>(2, 2),
                        [number](const Tensor& x) { return number == 1 ? x.sum(0) : x; }};
        });
    const Error error = test::error_of([&] { moe.forward(at::ones({3, 2})); });
    EXPECT_EQ(error.code(), world.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::aborted);
    EXPECT_NE(std::string(error.what())
                  .find("experts 'm': expert 1 has made float32 [2] of float32 [6, 2]"),
              std::string::npos)
        << error.what();
  });
}

}  // namespace
}  // namespace tutti::libtorch
