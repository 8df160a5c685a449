// The canonical order of combine(): any number of sources, for every instruction set that this
// machine has, against a tree that is written as docs/determinism.md defines it.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/combine.h"
#include "tests/core/core_reference.h"
#include "tests/core/core_targets.h"

namespace tutti {
namespace {

constexpr std::size_t kElements = 133;
constexpr std::size_t kSources = 300;

struct Shape {
  ReduceKind kind = ReduceKind::sum;
  std::size_t sources = 1, count = kElements, misalignment = 0;
  bool scaled = false, divided = false;
};

class CombineOrder : public testing::TestWithParam<std::tuple<std::int64_t, DataType>> {
 protected:
  DataType type() const { return std::get<1>(GetParam()); }
  std::size_t size() const { return size_of(type()); }

  void SetUp() override {
    std::mt19937_64 random(7);
    const auto number = [&](double scale) {
      const double v = std::ldexp(static_cast<double>(random() >> 11), -53) * 2 - 1;
      return type() == DataType::float64
                 ? reference::float_to<double>(type(), v * scale)
                 : reference::float_to<float>(type(), static_cast<float>(v * scale));
    };
    for (std::size_t s = 0; s < kSources; ++s) {
      inputs_.emplace_back(kElements * size() + 64);
      for (std::size_t i = 0; i < kElements; ++i) {
        const std::uint64_t bits = number(i % 3 == 0 ? 1.5 : 0.02);
        std::memcpy(inputs_[s].data() + i * size(), &bits, size());
      }
      scalars_.push_back(number(1.9));
    }
  }

  template <class Wide>
  std::vector<std::byte> expected(const Shape& shape) {
    std::vector<std::byte> result(shape.count * size());
    std::vector<Wide> terms(shape.sources);
    for (std::size_t i = 0; i < shape.count; ++i) {
      for (std::size_t s = 0; s < shape.sources; ++s) {
        terms[s] =
            reference::float_from<Wide>(type(), reference::element(type(), inputs_[s].data(), i));
        if (!shape.scaled) continue;
        const Wide product = terms[s] * reference::float_from<Wide>(type(), scalars_[s]);
        terms[s] = reference::float_from<Wide>(type(), reference::float_to<Wide>(type(), product));
      }
      Wide sum = reference::tree<Wide>(shape.kind, terms);
      if (shape.divided) sum /= static_cast<Wide>(shape.sources);
      const std::uint64_t bits = reference::float_to<Wide>(type(), sum);
      std::memcpy(result.data() + i * size(), &bits, size());
    }
    return result;
  }

  std::vector<std::byte> combined(const Shape& shape, bool canonical, std::size_t stream = 0) {
    std::vector<std::vector<std::byte>> shifted;
    std::vector<Source> sources;
    for (std::size_t s = 0; s < shape.sources; ++s) {
      const std::size_t at = shape.misalignment * s % 64;
      auto& copy = shifted.emplace_back(shape.count * size() + 64);
      std::memcpy(copy.data() + at, inputs_[s].data(), shape.count * size());
      sources.push_back({copy.data() + at, shape.scaled ? Prescale::multiply : Prescale::none,
                         shape.scaled ? scalars_[s] : 0});
    }
    std::vector<std::byte> result(shape.count * size()), again(shape.count * size());
    void* const destinations[] = {result.data(), again.data()};
    CombineOptions options;
    options.divisor = static_cast<std::uint32_t>(shape.sources);
    options.divide_result = shape.divided;
    options.canonical = canonical;
    options.stream = stream;
    combine(type(), shape.kind, destinations, sources, shape.count, options);
    EXPECT_EQ(result, again);
    return result;
  }

  bool agrees(const Shape& shape, std::size_t stream = 0) {
    const auto want =
        type() == DataType::float64 ? expected<double>(shape) : expected<float>(shape);
    const auto got = combined(shape, true, stream);
    EXPECT_EQ(got == want, true) << name(shape.kind) << " of " << shape.sources << " sources, "
                                 << shape.count << " elements, misaligned by " << shape.misalignment
                                 << (shape.scaled ? ", scaled" : "")
                                 << (shape.divided ? ", divided" : "");
    return got == want;
  }

  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::uint64_t> scalars_;
};

TEST_P(CombineOrder, IsABalancedTreeOverTheSources) {
  const CombineTarget target(std::get<0>(GetParam()));
  for (std::size_t n = 1; n <= 40; ++n) ASSERT_TRUE(agrees({.sources = n}));
  for (const std::size_t n : {63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 300}) {
    ASSERT_TRUE(agrees({.sources = n}));
  }
  for (const std::size_t n : {2, 5, 9, 21}) {
    ASSERT_TRUE(agrees({.kind = ReduceKind::prod, .sources = n}));
  }
}

TEST_P(CombineOrder, IsTheSameAtEveryPlaceAndAlignment) {
  const CombineTarget target(std::get<0>(GetParam()));
  for (const std::size_t n : {2, 3, 4, 7, 8, 11}) {
    for (std::size_t count = 1; count <= kElements; count += count < 40 ? 1 : 31) {
      ASSERT_TRUE(agrees({.sources = n, .count = count, .misalignment = size()}));
    }
    ASSERT_TRUE(agrees({.sources = n}, 1));
    ASSERT_TRUE(agrees({.sources = n}, 2));
  }
}

TEST_P(CombineOrder, RoundsScaledSourcesAndDividesTheSum) {
  const CombineTarget target(std::get<0>(GetParam()));
  for (const std::size_t n : {1, 2, 3, 4, 5, 7, 8, 13}) {
    ASSERT_TRUE(agrees({.sources = n, .scaled = true}));
    ASSERT_TRUE(agrees({.sources = n, .divided = true}));
    ASSERT_TRUE(agrees({.sources = n, .count = 5, .divided = true}));
  }
}

TEST_P(CombineOrder, DiffersFromTheOrderOfTheSourcesFromFourOn) {
  const CombineTarget target(std::get<0>(GetParam()));
  for (const std::size_t n : {2, 3}) {
    EXPECT_EQ(combined({.sources = n}, true), combined({.sources = n}, false)) << n;
  }
  if (size() < 4) return;  // rounding hides most of it
  EXPECT_NE(combined({.sources = 4}, true), combined({.sources = 4}, false));
}

INSTANTIATE_TEST_SUITE_P(Targets, CombineOrder,
                         testing::Combine(testing::ValuesIn(CombineTarget::all()),
                                          testing::Values(DataType::float16, DataType::bfloat16,
                                                          DataType::float32, DataType::float64,
                                                          DataType::float8_e4m3,
                                                          DataType::float8_e5m2)),
                         [](const auto& test) {
                           return std::string(hwy::TargetName(std::get<0>(test.param))) + "_" +
                                  std::string(name(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace tutti
