// combine() value by value, for every instruction set that this machine has: every pair of 8-bit
// codes, every 16-bit code, rounding boundaries, NaNs and signed zeros, and calls that are wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/combine.h"
#include "core/error.h"
#include "core/float_types.h"
#include "tests/core/core_reference.h"
#include "tests/core/core_targets.h"

namespace tutti {
namespace {

class CombineValues : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { detail::support_only(GetParam()); }
  void TearDown() override { detail::support_only(0); }
};

template <class T>
std::vector<T> combined(DataType type, ReduceKind kind, const std::vector<T>& a,
                        const std::vector<T>& b) {
  std::vector<T> result(a.size());
  const Source sources[] = {{a.data()}, {b.data()}};
  void* const destination = result.data();
  combine(type, kind, {&destination, 1}, sources, a.size());
  return result;
}

template <class T>
void expect_pairs(DataType type, ReduceKind kind, const std::vector<T>& a,
                  const std::vector<T>& b) {
  const std::vector<T> result = combined(type, kind, a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint64_t wanted = reference::reduce(type, kind, {{a[i]}, {b[i]}});
    ASSERT_TRUE(reference::same(type, result[i], wanted))
        << name(type) << " " << name(kind) << " of " << std::hex << +a[i] << " and " << +b[i]
        << " is " << +result[i] << ", expected " << wanted;
  }
}

constexpr ReduceKind kKindsOfPairs[] = {ReduceKind::sum, ReduceKind::prod, ReduceKind::min,
                                        ReduceKind::max};

TEST_P(CombineValues, EveryPairOf8BitCodesIsReducedExactly) {
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  for (int i = 0; i < 65536; ++i) {
    a.push_back(static_cast<std::uint8_t>(i));
    b.push_back(static_cast<std::uint8_t>(i >> 8));
  }
  for (const DataType type :
       {DataType::int8, DataType::uint8, DataType::float8_e4m3, DataType::float8_e5m2}) {
    for (const ReduceKind kind : kKindsOfPairs) expect_pairs(type, kind, a, b);
  }
}

// Against the neutral element, so that the conversions show alone; against 1.5 ulp-ish neighbours,
// so that rounding does; and against a shuffled copy.
TEST_P(CombineValues, Every16BitCodeIsReducedExactly) {
  std::vector<std::uint16_t> codes(65536);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  for (const DataType type : {DataType::float16, DataType::bfloat16}) {
    const auto constant = [&](double value) {
      return std::vector<std::uint16_t>(
          codes.size(), static_cast<std::uint16_t>(reference::narrow_float(type).round(value)));
    };
    expect_pairs(type, ReduceKind::sum, codes, constant(-0.0));
    expect_pairs(type, ReduceKind::prod, codes, constant(1.0));
    expect_pairs(type, ReduceKind::prod, codes, constant(0.9));
    expect_pairs(type, ReduceKind::prod, codes, constant(0.5));
    expect_pairs(type, ReduceKind::sum, codes, constant(1.0));
    std::vector<std::uint16_t> other = codes;
    std::shuffle(other.begin(), other.end(), std::mt19937(7));
    for (const ReduceKind kind : kKindsOfPairs) expect_pairs(type, kind, codes, other);
  }
}

// A float32 product or sum that lies on, just below and just above the middle of two neighbours.
TEST_P(CombineValues, RoundsToNearestEvenAtBoundaries) {
  for (const DataType type : {DataType::float16, DataType::bfloat16}) {
    const auto& format = reference::narrow_float(type);
    std::vector<std::uint16_t> a;
    std::vector<std::uint16_t> b;
    // x + half a step of x (a tie), and the two values around that half step.
    for (std::uint32_t code = 0; code + 1 <= format.largest(); code += 3) {
      const double step = format.magnitudes()[code + 1] - format.magnitudes()[code];
      const auto half = static_cast<std::int64_t>(format.round(step / 2));
      for (std::int64_t near = half - 1; near <= half + 1; ++near) {
        if (near < 0) continue;
        a.push_back(static_cast<std::uint16_t>(code));
        b.push_back(static_cast<std::uint16_t>(near));
        a.push_back(static_cast<std::uint16_t>(code | format.sign()));
        b.push_back(static_cast<std::uint16_t>(near | static_cast<std::int64_t>(format.sign())));
      }
    }
    expect_pairs(type, ReduceKind::sum, a, b);
  }
}

// The codes that matter for min and max: NaNs (quiet, signalling, negative), zeros, infinities.
std::vector<std::uint64_t> special_codes(DataType type) {
  switch (type) {
    case DataType::float64:
      return {0x7FF8000000000000, 0x7FF0000000000001,
              0xFFF8000000000001, 0x7FF0000000000000,
              0xFFF0000000000000, 0x3FF0000000000000,
              0xBFF0000000000000, 0,
              0x8000000000000000, 1,
              0x8000000000000001};
    case DataType::float32:
      return {0x7FC00000, 0x7F800001, 0xFFC00001, 0x7F800000, 0xFF800000, 0x3F800000,
              0xBF800000, 0,          0x80000000, 1,          0x80000001};
    case DataType::float16:
      return {0x7E00, 0x7C01, 0xFE01, 0x7C00, 0xFC00, 0x3C00, 0xBC00, 0, 0x8000, 1, 0x8001};
    case DataType::bfloat16:
      return {0x7FC0, 0x7F81, 0xFFC1, 0x7F80, 0xFF80, 0x3F80, 0xBF80, 0, 0x8000, 1, 0x8001};
    case DataType::float8_e5m2:
      return {0x7E, 0x7D, 0xFF, 0x7C, 0xFC, 0x3C, 0xBC, 0, 0x80, 1, 0x81};
    default:
      return {0x7F, 0xFF, 0x7E, 0xFE, 0x38, 0xB8, 0, 0x80, 1, 0x81};
  }
}

bool is_quiet(DataType type, std::uint64_t bits) {
  switch (type) {
    case DataType::float64:
      return (bits & 0x8000000000000) != 0;
    case DataType::float32:
      return (bits & 0x400000) != 0;
    case DataType::float16:
      return (bits & 0x200) != 0;
    case DataType::bfloat16:
      return (bits & 0x40) != 0;
    case DataType::float8_e5m2:
      return (bits & 0x02) != 0;
    default:
      return true;
  }
}

TEST_P(CombineValues, MinAndMaxOfNansAndSignedZerosAreTheSameInAnyOrder) {
  for (const DataType type : all_types()) {
    if (!is_float(type)) continue;
    const std::size_t size = size_of(type);
    const std::vector<std::uint64_t> codes = special_codes(type);
    for (const ReduceKind kind : {ReduceKind::min, ReduceKind::max}) {
      // All triples, as three arrays, reduced in two orders.
      std::vector<unsigned char> in[3];
      std::vector<std::vector<reference::Term>> terms;
      for (const std::uint64_t a : codes) {
        for (const std::uint64_t b : codes) {
          for (const std::uint64_t c : codes) {
            terms.push_back({{a}, {b}, {c}});
            for (int j = 0; j < 3; ++j) {
              const auto* bytes = reinterpret_cast<const unsigned char*>(&terms.back()[j].bits);
              in[j].insert(in[j].end(), bytes, bytes + size);
            }
          }
        }
      }
      std::vector<unsigned char> out[2] = {in[0], in[0]};
      const Source forwards[] = {{in[0].data()}, {in[1].data()}, {in[2].data()}};
      const Source backwards[] = {{in[2].data()}, {in[1].data()}, {in[0].data()}};
      void* to = out[0].data();
      combine(type, kind, {&to, 1}, forwards, terms.size());
      to = out[1].data();
      combine(type, kind, {&to, 1}, backwards, terms.size());
      EXPECT_EQ(out[0], out[1]) << name(type) << " " << name(kind) << ": the order shows";
      for (std::size_t i = 0; i < terms.size(); ++i) {
        const std::uint64_t got = reference::element(type, out[0].data(), i);
        const std::uint64_t wanted = reference::reduce(type, kind, terms[i]);
        ASSERT_TRUE(reference::same(type, got, wanted))
            << name(type) << " " << name(kind) << " of " << std::hex << terms[i][0].bits << ", "
            << terms[i][1].bits << ", " << terms[i][2].bits << " is " << got;
        if (reference::is_nan(type, got)) {
          ASSERT_TRUE(is_quiet(type, got)) << name(type);
        }
      }
    }
  }
}

// a * s + b with one rounding (a fused multiply-add) differs from two roundings.
TEST_P(CombineValues, ProductsAreRoundedBeforeTheyAreSummed) {
  const float s = 1.0f + 0x1p-12f;
  std::vector<float> a(100, s);
  std::vector<float> b(100, -(1.0f + 0x1p-11f));  // s * s rounded to float32
  std::vector<float> out(100, 1.0f);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(s);
  const std::uint32_t one = std::bit_cast<std::uint32_t>(1.0f);
  const Source sources[] = {{a.data(), Prescale::multiply, bits},
                            {b.data(), Prescale::multiply, one}};
  void* to = out.data();
  combine(DataType::float32, ReduceKind::pre_multiplied_sum, {&to, 1}, sources, out.size());
  EXPECT_EQ(out, std::vector<float>(100, 0.0f));
}

TEST_P(CombineValues, ACopyKeepsEveryBit) {
  std::vector<std::uint32_t> from(1000);
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = 0x7F800001u + static_cast<std::uint32_t>(i);  // signalling NaNs
  }
  for (const std::size_t stream : {0, 1}) {
    std::vector<std::uint32_t> to(from.size());
    void* destination = to.data();
    const Source source{from.data()};
    combine(DataType::float32, ReduceKind::min, {&destination, 1}, {&source, 1}, from.size(),
            {.stream = stream});
    EXPECT_EQ(to, from);
  }
}

TEST_P(CombineValues, StreamingStoresWriteEveryElement) {
  constexpr std::size_t kCount = (1 << 20) + 3;
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i % 1000);
    b[i] = static_cast<float>(3 * (i % 777));
  }
  std::vector<float> out(kCount + 1);
  void* to = out.data() + 1;
  const Source sources[] = {{a.data()}, {b.data()}};
  combine(DataType::float32, ReduceKind::sum, {&to, 1}, sources, kCount, {.stream = 1});
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(out[i + 1], static_cast<float>(i % 1000 + 3 * (i % 777))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CombineValues, testing::ValuesIn(CombineTarget::all()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

TEST(CombineCalls, WithoutSourcesDestinationsOrElementsWriteNothing) {
  int value = 5;
  int other = 7;
  void* to = &value;
  const Source source{&other};
  combine(DataType::int32, ReduceKind::sum, {&to, 1}, {}, 1);
  combine(DataType::int32, ReduceKind::sum, {}, {&source, 1}, 1);
  combine(DataType::int32, ReduceKind::sum, {&to, 1}, {&source, 1}, 0);
  EXPECT_EQ(value, 5);
}

TEST(CombineCalls, ThatAreWrongAreErrors) {
  int value = 5;
  void* to = &value;
  const std::span<void* const> destinations(&to, 1);
  const Source plain[] = {{&value}};
  const Source divided[] = {{&value, Prescale::divide}};
  const auto type = DataType::int32;
  const auto kind = ReduceKind::sum;
  EXPECT_THROW(combine(static_cast<DataType>(99), kind, destinations, plain, 1), Error);
  EXPECT_THROW(combine(type, static_cast<ReduceKind>(99), destinations, plain, 1), Error);
  EXPECT_THROW(combine(type, kind, destinations, divided, 1), Error);
  EXPECT_THROW(combine(type, kind, destinations, plain, 1, {.divisor = 0}), Error);
  EXPECT_EQ(value, 5);
}

}  // namespace
}  // namespace tutti
