// Layers on blocks of a field are torch's layers on the whole, forward and backward. Ranks are
// threads.
#include "bindings/torch/domain.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/data_parallel.h"
#include "parallel/mesh.h"
#include "parallel/throttled_axis.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::domain::Box;
using parallel::domain::Dimension;
using parallel::domain::Edge;
using parallel::domain::HaloShape;
using parallel::domain::Stencil;

constexpr std::int64_t kSamples = 2;

/// A number for each place, by its index.
Tensor numbers(at::IntArrayRef sizes, double by) {
  std::int64_t count = 1;
  for (const std::int64_t n : sizes) count *= n;
  return (at::arange(count, at::kDouble) * by + 1).sin().view(sizes);
}

Tensor part_of(Tensor whole, const Box& box) {
  for (std::size_t d = 0; d < box.size(); ++d) {
    whole = whole.narrow(static_cast<std::int64_t>(d) + 2, box[d].begin, box[d].size());
  }
  return whole;
}

double error_of(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() ? (a - b).abs().max().item<double>() : 1e9;
}

HaloShape shape_of(const std::vector<Dimension>& dimensions, const std::vector<Stencil>& stencils,
                   std::int64_t channels) {
  return {.name = "layer",
          .dimensions = dimensions,
          .stencils = stencils,
          .outer = static_cast<std::size_t>(kSamples * channels),
          .type = DataType::float64};
}

std::vector<std::int64_t> sizes_of(const std::vector<Dimension>& dimensions,
                                   std::int64_t channels) {
  std::vector<std::int64_t> sizes{kSamples, channels};
  for (const Dimension& d : dimensions) sizes.push_back(d.cells);
  return sizes;
}

int ranks_of(const std::vector<Dimension>& dimensions) {
  int ranks = 1;
  for (const Dimension& d : dimensions) ranks *= d.ranks;
  return ranks;
}

/// Whether a layer makes of blocks of x what `whole` makes of x, with these gradients.
/// `make(axis)` returns the layer's forward, its halo, and its module (or null).
struct Made {
  std::function<Tensor(const Tensor&)> forward;
  Box own, output;
  torch::nn::Module* module = nullptr;
};
void expect_equals(const std::vector<Dimension>& dimensions, std::int64_t channels,
                   const std::function<Tensor(const Tensor&, std::vector<Tensor>&)>& whole,
                   const std::function<Made(parallel::Axis&, std::shared_ptr<void>&)>& make) {
  const Tensor x = numbers(sizes_of(dimensions, channels), 0.7).requires_grad_();
  std::vector<Tensor> weights;
  const Tensor y = whole(x, weights);
  const Tensor dy = numbers(y.sizes(), 1.3);
  (y * dy).sum().backward();
  const int ranks = ranks_of(dimensions);
  test::run_thread_ranks(ranks, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    std::shared_ptr<void> layer;
    const Made made = make(axis, layer);
    if (made.module != nullptr) {
      const at::NoGradGuard no_grad;
      const std::vector<Tensor> own = made.module->parameters();
      ASSERT_EQ(own.size(), weights.size());
      for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(weights[i]);
    }
    const Tensor block = part_of(x.detach(), made.own).clone().requires_grad_();
    const Tensor out = made.forward(block);
    EXPECT_LE(error_of(out, part_of(y, made.output)), 1e-12);
    const Tensor loss = (out * part_of(dy, made.output)).sum() * ranks;
    if (made.module == nullptr) {
      loss.backward();
    } else {
      DataParallel engine(axis, *made.module);
      engine.backward(loss);
      const std::vector<Tensor> own = made.module->parameters();
      for (std::size_t i = 0; i < own.size(); ++i) {
        EXPECT_LE(error_of(own[i].grad(), weights[i].grad()), 1e-11) << i;
      }
    }
    EXPECT_LE(error_of(block.grad() / ranks, part_of(x.grad(), made.own)), 1e-12);
  });
}

void expect_convolution(const std::vector<Dimension>& dimensions,
                        const std::vector<Stencil>& stencils, bool overlap = false) {
  SCOPED_TRACE(fmt::format("{} dimensions, {} ranks, kernel {}, stride {}, overlap {}",
                           dimensions.size(), ranks_of(dimensions), stencils[0].kernel,
                           stencils[0].stride, overlap));
  if (!overlap) expect_convolution(dimensions, stencils, true);
  std::vector<std::int64_t> kernel{4, 3}, stride, dilation, padding, around, none;
  for (const Stencil& s : stencils) {
    kernel.push_back(s.kernel);
    stride.push_back(s.stride);
    dilation.push_back(s.dilation);
    padding.push_back(s.padding);
    none.push_back(0);
    around.insert(around.end(), {s.padding, s.padding});
  }
  const bool periodic = dimensions[0].edge == Edge::periodic;
  expect_equals(
      dimensions, 3,
      [&](const Tensor& x, std::vector<Tensor>& weights) {
        weights = {numbers(kernel, 0.3).requires_grad_(), numbers({4}, 2).requires_grad_()};
        return at::convolution(periodic ? at::pad(x, around, "circular") : x, weights[0],
                               weights[1], stride, periodic ? none : padding, dilation, false, none,
                               1);
      },
      [&](parallel::Axis& axis, std::shared_ptr<void>& keep) {
        const auto conv = std::make_shared<DomainConvolution>(
            axis, shape_of(dimensions, stencils, 3), 3, 4, true, overlap);
        keep = conv;
        const auto& halo = *conv->halo().engine();
        return Made{[conv](const Tensor& x) { return conv->forward(x); }, halo.own(), halo.output(),
                    conv.get()};
      });
}

TEST(TorchDomain, ConvolvesAsOnTheWholeField) {
  const Stencil three{.kernel = 3, .padding = 1};
  expect_convolution({{"x", 11, 3}}, {three});
  expect_convolution({{"y", 9, 2}, {"x", 10, 2}}, {three, three});
  expect_convolution({{"y", 9, 2}, {"x", 10, 2}},
                     {{.kernel = 3, .stride = 2, .padding = 1}, {.kernel = 5, .padding = 2}});
  expect_convolution({{"y", 12, 3}, {"x", 7, 1}},
                     {{.kernel = 3, .stride = 2, .dilation = 2, .padding = 2}, three});
  expect_convolution({{"z", 5, 2}, {"y", 6, 1}, {"x", 6, 2}}, {three, three, three});
  expect_convolution({{"y", 9, 2, Edge::periodic}, {"x", 8, 2, Edge::periodic}}, {three, three});
}

void expect_pooling(DomainPooling::Kind kind, const std::vector<Dimension>& dimensions,
                    const Stencil& s) {
  SCOPED_TRACE(fmt::format("{} of {} dimensions, kernel {}",
                           kind == DomainPooling::Kind::max ? "max" : "mean", dimensions.size(),
                           s.kernel));
  const std::vector<std::int64_t> kernel(dimensions.size(), s.kernel),
      stride(dimensions.size(), s.stride), padding(dimensions.size(), s.padding);
  const bool max = kind == DomainPooling::Kind::max;
  expect_equals(
      dimensions, 3,
      [&](const Tensor& x, std::vector<Tensor>&) {
        const Tensor y = x - 2;  // a maximum of padding would be one of zeros
        if (dimensions.size() == 1) {
          return max ? at::max_pool1d(y, kernel, stride, padding)
                     : at::avg_pool1d(y, kernel, stride, padding);
        }
        if (dimensions.size() == 2) {
          return max ? at::max_pool2d(y, kernel, stride, padding)
                     : at::avg_pool2d(y, kernel, stride, padding);
        }
        return max ? at::max_pool3d(y, kernel, stride, padding)
                   : at::avg_pool3d(y, kernel, stride, padding);
      },
      [&](parallel::Axis& axis, std::shared_ptr<void>& keep) {
        const auto pool = std::make_shared<DomainPooling>(
            axis, shape_of(dimensions, std::vector<Stencil>(dimensions.size(), s), 3), kind);
        keep = pool;
        const auto& halo = *pool->halo().engine();
        return Made{[pool](const Tensor& x) { return pool->forward(x - 2); }, halo.own(),
                    halo.output()};
      });
}

TEST(TorchDomain, PoolsAsOnTheWholeField) {
  for (const auto kind : {DomainPooling::Kind::max, DomainPooling::Kind::mean}) {
    expect_pooling(kind, {{"x", 11, 3}}, {.kernel = 3, .stride = 2, .padding = 1});
    expect_pooling(kind, {{"y", 9, 2}, {"x", 10, 2}}, {.kernel = 2, .stride = 2});
    expect_pooling(kind, {{"y", 9, 2}, {"x", 10, 2}}, {.kernel = 3, .stride = 2, .padding = 1});
    expect_pooling(kind, {{"z", 5, 2}, {"y", 6, 1}, {"x", 6, 2}},
                   {.kernel = 3, .stride = 1, .padding = 1});
  }
}

TEST(TorchDomain, NormsOverTheCellsOfAllRanks) {
  const std::vector<Dimension> dimensions{{"y", 9, 2}, {"x", 7, 2}};
  Tensor mean = at::zeros({3}, at::kDouble), variance = at::ones({3}, at::kDouble);
  expect_equals(
      dimensions, 3,
      [&](const Tensor& x, std::vector<Tensor>& weights) {
        weights = {numbers({3}, 0.3).requires_grad_(), numbers({3}, 2).requires_grad_()};
        return at::batch_norm(x, weights[0], weights[1], mean, variance, true, 0.1, 1e-5, false);
      },
      [&](parallel::Axis& axis, std::shared_ptr<void>& keep) {
        const auto norm = std::make_shared<DomainBatchNorm>(axis, "norm", 3, at::kDouble);
        keep = norm;
        const Box own = parallel::domain::Blocks(axis.size(), dimensions).box(axis.rank());
        return Made{[=](const Tensor& x) {
                      const Tensor y = norm->forward(x);
                      EXPECT_LE(error_of(norm->running_mean, mean), 1e-14);
                      EXPECT_LE(error_of(norm->running_var, variance), 1e-14);
                      return y;
                    },
                    own, own, norm.get()};
      });
}

/// On a link that takes half as long as the forward computes.
TEST(TorchDomain, AConvolutionHidesItsHalo) {
  using namespace std::chrono_literals;
  using Clock = std::chrono::steady_clock;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Stencil three{.kernel = 3, .padding = 1};
  const HaloShape shape =
      shape_of({{"y", 512, 2}, {"x", 128, 1, Edge::periodic}}, {three, three}, 8);
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis beneath(world);
    std::chrono::nanoseconds works = 0ns, waits[2][2]{{1h, 1h}, {1h, 1h}};
    for (int attempt = 0; attempt < 9; ++attempt) {
      // The first attempt measures the work.
      parallel::ThrottledAxis link(beneath, {.bytes_per_second = 1e15, .latency = works / 2});
      const DomainConvolution convolution(link, shape, 8, 8, true, true);
      const DomainHalo halo(link, shape);
      for (const bool hides : {false, true}) {
        const Tensor x = at::ones({kSamples, 8, 256, 128}, at::kDouble).requires_grad_();
        const auto begin = Clock::now();
        link.reset_traffic();
        const Tensor y = hides ? convolution.forward(x) : halo.forward(x);
        auto& [forward, backward] = waits[hides ? 1 : 0];
        if (works > 0ns) forward = std::min(forward, link.traffic().waited);
        if (hides && works == 0ns) {
          double mine = std::chrono::duration<double>(Clock::now() - begin).count(), all = 0;
          beneath.run(parallel::call_of(Collective::all_reduce, &mine, &all, 1, DataType::float64,
                                        ReduceKind::min));
          works = std::chrono::nanoseconds(static_cast<std::int64_t>(all * 1e9));
          break;
        }
        link.reset_traffic();
        y.sum().backward();
        if (works > 0ns) backward = std::min(backward, link.traffic().waited);
      }
    }
    for (const int way : {0, 1}) {
      EXPECT_GE(waits[0][way], works / 4) << way;
      EXPECT_LE(waits[1][way], waits[0][way] / 2) << way;
    }
  });
  at::set_num_threads(threads);
}

TEST(TorchDomain, SaysWhatDoesNotFit) {
  test::run_thread_ranks(2, [&](Communicator& world) {
    parallel::CommunicatorAxis axis(world);
    const DomainHalo halo(axis, shape_of({{"x", 6, 2}}, {{.kernel = 3, .padding = 1}}, 3));
    const Error error = test::error_of([&] { halo.forward(at::zeros({2, 3, 4}, at::kDouble)); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "halo 'layer' takes float64 [samples, channels, 3] with 6 samples x channels, on "
                 "the CPU, not float64 [2, 3, 4]");
    const Error none = test::error_of([&] {
      DomainHalo(axis, shape_of({{"x", 6, 2}}, {{.kernel = 6}}, 3));
    });
    EXPECT_EQ(none.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(none.what()).find("has no cells of the output"), std::string::npos)
        << none.what();
  });
}

}  // namespace
}  // namespace tutti::libtorch
