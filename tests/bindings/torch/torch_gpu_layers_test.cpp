// Layers that ranks share on a TorchGpu, for which threads stand in (gpu_of_cpu_tensors.h): the
// results are close to those of the host. Part of torch_gpu_test.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/attention.h"
#include "bindings/torch/domain.h"
#include "bindings/torch/experts.h"
#include "bindings/torch/linear.h"
#include "bindings/torch/pipeline.h"
#include "bindings/torch/tensor_parallel.h"
#include "bindings/torch/torch_gpu.h"
#include "parallel/pipeline/generate.h"
#include "tests/bindings/torch/as_on_the_host.h"
#include "tests/bindings/torch/gpu_of_cpu_tensors.h"
#include "tests/bindings/torch/whole_numbers.h"
#include "tests/support/contains.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::LayerMath;
using test::whole_numbers;

using Result = test::Tensors;
using Body = test::WorkOfARank;

/// What each rank ends with, on the host and on the GPU.
void expect_as_on_the_host(int ranks, const Body& body, double tolerance = 1e-5) {
  test::TensorsOfTheGpu::use();
  test::expect_as_on_the_host(ranks, body,
                              {.tolerance = tolerance, .more_than = 2, .launches = ranks > 1});
}

void set(Tensor& parameter, int seed) {
  const at::NoGradGuard no_grad;
  parameter.copy_(whole_numbers(parameter.sizes(), seed) / 4);
}

/// A network from tokens to their loss.
Body network(bool sequence) {
  return [=](CommunicatorAxis& axis) {
    VocabParallelEmbedding tokens(axis, "tokens", 10, 8, at::kFloat, {.sequence = sequence});
    ColumnParallelLinear up(axis, "up", 8, 16, at::kFloat, {.sequence = sequence});
    RowParallelLinear down(axis, "down", 16, 8, at::kFloat, {.sequence = sequence});
    ColumnParallelLinear head(axis, "head", 8, 12, at::kFloat, {.sequence = sequence});
    VocabParallelCrossEntropy loss(axis, "loss", 12);
    const std::vector<Tensor*> parameters{&tokens.weight, &up.weight,   &up.bias,  &down.weight,
                                          &down.bias,     &head.weight, &head.bias};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const int rank = parameters[i] == &down.bias ? 0 : axis.rank();
      set(*parameters[i], static_cast<int>(10 * i) + rank);
    }
    const Tensor ids = at::arange(12) * 7 % 10, targets = (at::arange(12) * 5 % 12).clone();
    targets[3] = -100;
    const Tensor y = down.forward(up.forward(tokens.forward(ids)).tanh());
    const Tensor value = loss.forward(head.forward(y), targets);
    value.backward();
    Result result{value.detach()};
    for (const Tensor* p : parameters) result.push_back(p->grad().clone());
    return result;
  };
}

TEST(TorchGpuLayers, TensorParallel) {
  for (const int ranks : {1, 2}) {
    expect_as_on_the_host(ranks, network(false));
    expect_as_on_the_host(ranks, network(true));
  }
}

Body attention(bool by_heads, parallel::sequence::AttentionOptions options,
               at::ScalarType type = at::kFloat) {
  return [=](CommunicatorAxis& axis) {
    const parallel::sequence::AttentionAxes axes{by_heads ? &axis : nullptr,
                                                 by_heads ? nullptr : &axis};
    ContextParallelAttention layer(axes,
                                   {.name = "a",
                                    .sequence = 16,
                                    .batch = 2,
                                    .heads = 4,
                                    .kv_heads = by_heads ? 1u : 2u,
                                    .dim = 8,
                                    .type = data_type(type, "a")},
                                   options);
    const std::int64_t rows = layer.positions().size(0), keys = by_heads ? 1 : 2;
    const auto made = [&](std::int64_t heads, int seed) {
      return (whole_numbers({rows, 2, heads, 8}, seed + 10 * axis.rank()) / 4)
          .to(type)
          .requires_grad_();
    };
    const Tensor q = made(4, 1), k = made(keys, 2), v = made(keys, 3);
    const Tensor out = layer.forward(q, k, v);
    out.backward(whole_numbers(out.sizes(), 4).to(type));
    return Result{out.detach(), q.grad(), k.grad(), v.grad()};
  };
}

// By two kernels: torch's flash attention, and matrix products.
TEST(TorchGpuLayers, Attention) {
  using parallel::sequence::KeysTravel;
  using parallel::sequence::SequenceOrder;
  for (const auto order : {SequenceOrder::contiguous, SequenceOrder::zigzag}) {
    for (const auto keys : {KeysTravel::ring, KeysTravel::all_gather}) {
      for (const int ranks : {1, 2}) {
        expect_as_on_the_host(ranks, attention(false, {keys, order}));
      }
    }
  }
  expect_as_on_the_host(2, attention(true, {}));
  expect_as_on_the_host(2, attention(true, {}, at::kBFloat16), 0.05);
  expect_as_on_the_host(2, attention(false, {}, at::kBFloat16), 0.05);
}

TEST(TorchGpuLayers, Pipeline) {
  expect_as_on_the_host(2, [](CommunicatorAxis& axis) {
    Linear layer(4, 4);
    set(layer.weight, axis.rank());
    set(layer.bias, 5 + axis.rank());
    const auto schedule =
        parallel::pipeline::generate(*parallel::pipeline::find_generator("1f1b"), {2, 3});
    Pipeline::Functions functions;
    functions.forward = [&](int stage, int m, const Tensor& input) {
      const Tensor x = stage == 0 ? whole_numbers({3, 4}, m) : input;
      const Tensor y = layer.forward(x);
      return stage == 0 ? y : y.square().sum();
    };
    Pipeline pipeline(axis, schedule, {.shape = {3, 4}}, functions);
    const double loss = pipeline.step() + pipeline.step();
    return Result{at::full({}, loss), layer.weight.grad().clone(), layer.bias.grad().clone()};
  });
}

TEST(TorchGpuLayers, Experts) {
  for (const int ranks : {1, 2}) {
    expect_as_on_the_host(ranks, [](CommunicatorAxis& axis) {
      MixtureOfExperts moe(axis, {.name = "m", .experts = 4, .width = 4, .top_k = 2},
                           feed_forward(4, 8), {.balance = 0.5});
      int seed = 1;
      for (Tensor& p : moe.router->parameters()) set(p, seed++);
      for (Tensor& p : moe.experts->parameters()) set(p, seed++ + axis.rank());
      const Tensor x = (whole_numbers({9, 4}, 3 + axis.rank()) / 4).requires_grad_();
      const Tensor y = moe.forward(x);
      (y * whole_numbers({9, 4}, 7)).sum().backward();
      Result result{y.detach(), x.grad(), moe.router->weight.grad().clone()};
      for (const Tensor& p : moe.experts->parameters()) result.push_back(p.grad().clone());
      return result;
    });
  }
}

TEST(TorchGpuLayers, Domains) {
  for (const bool overlap : {false, true}) {
    expect_as_on_the_host(
        2,
        [=](CommunicatorAxis& axis) {
          const parallel::domain::HaloShape shape{
              .name = "conv",
              .dimensions = {{.name = "y", .cells = 8, .ranks = 2}, {.name = "x", .cells = 6}},
              .stencils = {{.kernel = 3, .padding = 1}, {.kernel = 3, .padding = 1}},
              .outer = 4};
          DomainConvolution conv(axis, shape, 2, 3, true, overlap);
          DomainBatchNorm norm(axis, "norm", 3);
          set(conv.weight, 1);
          set(conv.bias, 2);
          const Tensor x = whole_numbers({2, 2, 4, 6}, 5 + axis.rank()).requires_grad_();
          const Tensor y = norm.forward(conv.forward(x));
          (y * whole_numbers({2, 3, 4, 6}, 3)).sum().backward();
          return Result{y.detach(), x.grad(), conv.weight.grad().clone(), conv.bias.grad().clone()};
        },
        1e-4);
  }
}

/// On random numbers, a list of results.
using Math = std::function<Result(LayerMath&)>;

TEST(TorchGpuLayers, ArithmeticIsCloseToTheHosts) {
  const auto compare = [](const char* what, const Math& math, double tolerance) {
    TorchLayerMath torchs(c10::kCPU);
    const Result host = math(parallel::host_layer_math()), gpu = math(torchs);
    for (std::size_t i = 0; i < host.size(); ++i) {
      EXPECT_TRUE(at::allclose(host[i], gpu[i], tolerance, tolerance, /*equal_nan=*/true))
          << what << ", " << i << "\n"
          << host[i] << "\n"
          << gpu[i];
    }
  };
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const DataType ours = data_type(type, "");
    const double close = type == at::kBFloat16 ? 0.02 : 1e-5;
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    const Tensor a = at::rand({6, 5}).to(type), b = at::rand({6, 5}).to(type),
                 row = at::rand({5}).to(type);
    const std::vector<std::int64_t> which{7, 2, 9, 4, 7, 3};  // of rows 3 to 8
    const auto data = [](const Tensor& t) { return t.mutable_data_ptr(); };
    compare(
        "rows",
        [&](LayerMath& math) {
          const Tensor x = a.clone(), sum = row.clone(), taken = a.clone(), added = b.clone();
          math.add_to_rows({ours, 6, 5}, data(row), data(x));
          math.add_rows({ours, 6, 5}, data(a), data(sum));
          math.take_rows({ours, 5, which, 3, 6}, data(b), data(taken));
          math.add_to_chosen({ours, 5, which, 3, 6}, data(a), data(added));
          const std::vector<std::int64_t> rows{5, 3, 8, 4, 5, 3}, top{5, 2, 8, 3, 1, 2};
          const std::vector<double> factors{1, 0.5, 0.25, 2, 1, 3};
          const Tensor scaled = at::empty_like(a), products = at::empty({6}, at::kDouble),
                       summed = at::empty({3, 5}, type), plain = at::empty({3, 5}, type);
          math.scale_rows({ours, 5, rows, 3, 6}, factors, data(b), data(scaled), data(a),
                          products.mutable_data_ptr<double>());
          math.sum_chosen({ours, 5, top, 3, 6}, 2, factors, data(b), data(summed));
          math.sum_chosen({ours, 5, top, 3, 6}, 2, {}, data(b), data(plain));
          return Result{x, sum, taken, added, scaled, products, summed, plain};
        },
        close);
    compare(
        "cross entropy",
        [&](LayerMath& math) {
          const LayerMath::Logits logits{ours, data(a), 5, 4, which, 3};
          std::vector<double> most(6), sums(6), targets(6), factors{1, 2, 0, 1, 0.5, 1};
          math.largest(logits, most);
          math.exponentials(logits, most, sums, targets);
          const Tensor gradient = at::empty_like(a);
          math.cross_entropy_gradient(logits, sums, factors, data(gradient));
          return Result{at::tensor(most), at::tensor(sums), at::tensor(targets), gradient};
        },
        close);
    compare(
        "attention",
        [&](LayerMath& math) {
          const double least = -std::numeric_limits<double>::infinity();
          const Tensor lse = at::tensor({0.5, least, 1.0, least, 2.0, 0.0}).to(wide),
                       part_lse = at::tensor({1.0, 0.5, least, least, 1.0, 0.0}).to(wide);
          const Tensor out = b.to(wide).clone(), sum = b.to(wide).clone(),
                       delta = at::empty({6}, wide), heads = at::empty({2, 2, 5}, type);
          math.merge(ours, 6, 5, data(a), data(part_lse), data(out), data(lse));
          math.add_part(ours, 30, data(a), data(sum));
          math.dot_rows(ours, 6, 5, data(a), data(b), data(delta));
          const std::size_t head_of[] = {0, 1, 0};
          math.sum_heads(ours, 2, 5, 2, head_of, data(a), data(heads));
          return Result{out, lse, sum, delta, heads};
        },
        close);
  }
}

}  // namespace
}  // namespace tutti::libtorch
