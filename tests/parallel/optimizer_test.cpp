// The optimizers, and the conversions and sums beneath them, with each instruction set of this
// machine: against scalar arithmetic written out here, bit for bit, and however an array is cut.
#include "parallel/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/float_types.h"
#include "tests/core/core_targets.h"
#include "tests/support/wide_floats.h"

namespace tutti::parallel {
namespace {

constexpr std::size_t kMost = 2311;  // more than two pieces, and no whole number of vectors

template <class T>
struct Arrays {
  std::vector<T> p, g, a, b;
  explicit Arrays(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < kMost; ++i) {
      p.push_back(static_cast<T>(normal(random)));
      // Of very different sizes, and zeros.
      g.push_back(i % 17 == 0
                      ? T{0}
                      : static_cast<T>(std::ldexp(normal(random), static_cast<int>(i % 40) - 30)));
      a.push_back(static_cast<T>(normal(random) * 0.1));
      b.push_back(static_cast<T>(std::abs(normal(random)) * 0.01));
    }
  }
};

template <class T>
constexpr DataType kTypeOf = sizeof(T) == 8 ? DataType::float64 : DataType::float32;

template <class T>
void scalar_adamw(const AdamW::Options& o, double scale, double decay, unsigned step,
                  Arrays<T>& x) {
  const T keep = static_cast<T>(1 - o.learning_rate * o.weight_decay * decay);
  const T rate = static_cast<T>(o.learning_rate / (1 - std::pow(o.beta1, step)));
  const T root = static_cast<T>(1 / std::sqrt(1 - std::pow(o.beta2, step)));
  const T beta1 = static_cast<T>(o.beta1), other1 = static_cast<T>(1 - o.beta1);
  const T beta2 = static_cast<T>(o.beta2), other2 = static_cast<T>(1 - o.beta2);
  for (std::size_t i = 0; i < kMost; ++i) {
    const T g = x.g[i] * static_cast<T>(scale);
    x.a[i] = beta1 * x.a[i] + other1 * g;
    x.b[i] = beta2 * x.b[i] + other2 * (g * g);
    x.p[i] =
        x.p[i] * keep - rate * (x.a[i] / (std::sqrt(x.b[i]) * root + static_cast<T>(o.epsilon)));
  }
}

template <class T>
void scalar_sgd(const Sgd::Options& o, double scale, double decay, Arrays<T>& x) {
  const T momentum = static_cast<T>(o.momentum), rate = static_cast<T>(o.learning_rate);
  for (std::size_t i = 0; i < kMost; ++i) {
    T g = x.g[i] * static_cast<T>(scale) + x.p[i] * static_cast<T>(o.weight_decay * decay);
    if (o.momentum != 0) {
      x.a[i] = momentum * x.a[i] + g;
      g = o.nesterov ? g + momentum * x.a[i] : x.a[i];
    }
    x.p[i] = x.p[i] - rate * g;
  }
}

/// Updates pieces of `cut` elements, and what is left.
template <class T>
void update(const Optimizer& optimizer, Arrays<T>& x, std::size_t cut, Optimizer::Slice slice) {
  for (std::size_t at = 0; at < kMost; at += cut) {
    slice.type = slice.gradient_type = kTypeOf<T>;
    slice.master = &x.p[at];
    slice.gradient = &x.g[at];
    slice.state[0] = optimizer.states() > 0 ? &x.a[at] : nullptr;
    slice.state[1] = optimizer.states() > 1 ? &x.b[at] : nullptr;
    slice.count = std::min(cut, kMost - at);
    optimizer.update(slice);
  }
}

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

class Optimizers : public testing::TestWithParam<std::int64_t> {
 protected:
  CombineTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Targets, Optimizers, testing::ValuesIn(CombineTarget::all()));

template <class T>
void expect_adamw_bits() {
  const AdamW::Options options{.learning_rate = 3e-3, .weight_decay = 0.05};
  for (const std::size_t cut : {kMost, std::size_t{1}, std::size_t{37}, std::size_t{1024}}) {
    Arrays<T> expected(5), got(5);
    for (unsigned step = 1; step <= 3; ++step) {
      scalar_adamw(options, 0.7, 0.5, step, expected);
      update(AdamW(options), got, cut, {.gradient_scale = 0.7, .decay_scale = 0.5, .step = step});
    }
    EXPECT_TRUE(same_bits(got.p, expected.p)) << cut;
    EXPECT_TRUE(same_bits(got.a, expected.a)) << cut;
    EXPECT_TRUE(same_bits(got.b, expected.b)) << cut;
  }
}

TEST_P(Optimizers, AdamWHasTheBitsOfScalarArithmetic) {
  expect_adamw_bits<float>();
  expect_adamw_bits<double>();
}

template <class T>
void expect_sgd_bits() {
  for (const Sgd::Options& options :
       {Sgd::Options{.learning_rate = 0.1}, Sgd::Options{.momentum = 0.9, .weight_decay = 0.1},
        Sgd::Options{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    for (const std::size_t cut : {kMost, std::size_t{1}, std::size_t{37}}) {
      Arrays<T> expected(6), got(6);
      for (unsigned step = 1; step <= 3; ++step) {
        scalar_sgd(options, 1.0, 1.0, expected);
        update(Sgd(options), got, cut, {.step = step});
      }
      EXPECT_TRUE(same_bits(got.p, expected.p)) << cut;
      if (options.momentum != 0) {
        EXPECT_TRUE(same_bits(got.a, expected.a)) << cut;
      }
    }
  }
}

TEST_P(Optimizers, SgdHasTheBitsOfScalarArithmetic) {
  expect_sgd_bits<float>();
  expect_sgd_bits<double>();
}

// Narrow gradients are widened exactly; the narrow copy is the rounded master.
TEST_P(Optimizers, NarrowGradientsAreWidenedAndCopiesRounded) {
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    const bool brain = type == DataType::bfloat16;
    Arrays<float> wide(7);
    std::vector<std::uint16_t> narrow, copy(kMost);
    for (float& g : wide.g) {
      narrow.push_back(brain ? to_bfloat16(g) : to_float16(g));
      g = brain ? from_bfloat16(narrow.back()) : from_float16(narrow.back());
    }
    Arrays<float> got = wide;
    scalar_adamw(AdamW::Options{}, 1, 1, 1, wide);
    AdamW().update({.master = got.p.data(),
                    .state = {got.a.data(), got.b.data()},
                    .gradient_type = type,
                    .gradient = narrow.data(),
                    .compute_type = type,
                    .compute = copy.data(),
                    .count = kMost});
    EXPECT_TRUE(same_bits(got.p, wide.p));
    for (std::size_t i = 0; i < kMost; ++i) {
      ASSERT_EQ(copy[i], brain ? to_bfloat16(wide.p[i]) : to_float16(wide.p[i])) << i;
    }
  }
}

TEST_P(Optimizers, ConversionsRoundAsTheScalarOnes) {
  std::vector<float> values;
  std::mt19937 random(3);
  for (int i = 0; i < 20'011; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (int e = -30; e < 20; ++e) {
    for (int m = 0; m < 40; ++m) values.push_back(std::ldexp(1 + m / 2048.0f / 16, e));
  }
  for (const float special : {0.0f, -0.0f, std::numeric_limits<float>::infinity(), 65519.9f,
                              65520.0f, std::numeric_limits<float>::quiet_NaN()}) {
    values.push_back(special);
  }
  std::vector<std::uint16_t> codes(values.size()), every(65536);
  std::vector<float> widened(every.size());
  for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<std::uint16_t>(i);
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    const bool brain = type == DataType::bfloat16;
    kernels::convert(DataType::float32, values.data(), type, codes.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto expected = brain ? to_bfloat16(values[i]) : to_float16(values[i]);
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(brain ? from_bfloat16(codes[i]) : from_float16(codes[i])));
      } else {
        ASSERT_EQ(codes[i], expected) << values[i];
      }
    }
    kernels::convert(type, every.data(), DataType::float32, widened.data(), every.size());
    for (std::size_t i = 0; i < every.size(); ++i) {
      const float expected = brain ? from_bfloat16(every[i]) : from_float16(every[i]);
      if (!std::isnan(expected)) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(expected));
      } else {
        ASSERT_TRUE(std::isnan(widened[i]));
      }
    }
  }
}

TEST_P(Optimizers, SumsOfSquaresHaveTheSameBits) {
  const Arrays<float> x(9);
  const Arrays<double> y(9);
  const auto expected = [](const auto& data, std::size_t count) {
    double parts[8] = {};
    for (std::size_t i = 0; i < count; ++i) {
      const double value = data[i];
      parts[i % 8] += value * value;
    }
    double sum = 0;
    for (const double p : parts) sum += p;
    return sum;
  };
  std::vector<std::uint16_t> narrow;
  std::vector<float> rounded;
  for (const float p : x.p) {
    narrow.push_back(to_bfloat16(p));
    rounded.push_back(from_bfloat16(narrow.back()));
  }
  for (const std::size_t count : {std::size_t{0}, std::size_t{5}, std::size_t{1030}, kMost}) {
    EXPECT_EQ(kernels::sum_of_squares(DataType::float32, x.p.data(), count), expected(x.p, count));
    EXPECT_EQ(kernels::sum_of_squares(DataType::float64, y.p.data(), count), expected(y.p, count));
    EXPECT_EQ(kernels::sum_of_squares(DataType::bfloat16, narrow.data(), count),
              expected(rounded, count));
  }
}

}  // namespace
}  // namespace tutti::parallel
