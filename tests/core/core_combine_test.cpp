// combine() against the reference of core_reference.h, once for every instruction set that this
// machine has: all types and operators in all shapes (sources, destinations, counts, alignments, in
// place, streamed, scaled, divided). core_combine_values_test.cpp looks at single values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "core/combine.h"
#include "core/error.h"
#include "tests/core/core_reference.h"
#include "tests/core/core_targets.h"

namespace tutti {
namespace {

constexpr ReduceKind kKinds[] = {ReduceKind::sum, ReduceKind::prod, ReduceKind::min,
                                 ReduceKind::max};

// Bits that differ by rank and position. Floats: mostly of moderate size, some of any bits at all.
std::uint64_t random_element(DataType type, std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if (!is_float(type) || bits % 8 == 0) return bits >> (64 - 8 * size_of(type));
  const double value = std::ldexp(static_cast<double>(bits >> 11), -53) * 8 - 4;
  if (type == DataType::float64) return std::bit_cast<std::uint64_t>(value);
  if (type == DataType::float32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return reference::narrow_float(type).round(value);
}

void put(DataType type, std::vector<unsigned char>& data, std::size_t i, std::uint64_t bits) {
  std::memcpy(data.data() + i * size_of(type), &bits, size_of(type));
}

constexpr std::size_t kMost = 1037;
constexpr std::size_t kRanks = 5;
constexpr unsigned char kGuard = 0xA5;

class Combine : public testing::TestWithParam<std::tuple<std::int64_t, DataType>> {
 protected:
  void SetUp() override {
    std::mt19937_64 random(static_cast<unsigned>(type()) + 1);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      inputs_[rank].resize(kMost * size_of(type()));
      for (std::size_t i = 0; i < kMost; ++i) {
        put(type(), inputs_[rank], i, random_element(type(), random));
      }
      scalars_[rank] = random_element(type(), random);
    }
  }

  DataType type() const { return std::get<1>(GetParam()); }

  struct Shape {
    ReduceKind kind = ReduceKind::sum;
    std::size_t sources = 1;
    std::size_t destinations = 1;
    std::size_t count = 0;
    std::size_t misalignment = 0;  // bytes
    int in_place = -1;             // which source the first destination is
    Prescale prescale = Prescale::none;
    CombineOptions options = {};
  };

  // The reference's result for the first kMost elements; every count is a prefix of it.
  const std::vector<unsigned char>& expected(const Shape& shape) {
    const auto key = std::tuple(shape.kind, shape.sources, shape.prescale,
                                shape.options.divide_result, shape.options.divisor);
    std::vector<unsigned char>& result = results_[key];
    if (!result.empty()) return result;
    result.resize(kMost * size_of(type()));
    std::vector<reference::Term> terms(shape.sources);
    for (std::size_t i = 0; i < kMost; ++i) {
      for (std::size_t s = 0; s < shape.sources; ++s) {
        terms[s] = {reference::element(type(), inputs_[s].data(), i), shape.prescale, scalars_[s]};
      }
      put(type(), result, i, reference::reduce(type(), shape.kind, terms, shape.options));
    }
    return result;
  }

  // Runs one shape; false (and a failure) if a byte is not what it should be.
  bool check(const Shape& shape) {
    const std::size_t bytes = shape.count * size_of(type());
    const std::vector<unsigned char>& wanted = expected(shape);
    std::array<Source, kRanks> sources;
    std::array<void*, 3> destinations{};
    for (std::size_t s = 0; s < shape.sources; ++s) {
      unsigned char* at = buffers_[s].data() + 64 + (shape.misalignment * (s + 1)) % 64;
      std::memcpy(at, inputs_[s].data(), bytes);
      sources[s] = {at, shape.prescale, scalars_[s]};
    }
    for (std::size_t d = 0; d < shape.destinations; ++d) {
      std::vector<unsigned char>& buffer = buffers_[kRanks + d];
      unsigned char* at = buffer.data() + 64 + (shape.misalignment * (2 * d + 1)) % 64;
      if (d == 0 && shape.in_place >= 0) {
        at = static_cast<unsigned char*>(
            const_cast<void*>(sources[static_cast<std::size_t>(shape.in_place)].data));
      }
      std::fill(at - 64, at, kGuard);
      if (d > 0 || shape.in_place < 0) std::fill(at, at + bytes, kGuard);
      std::fill(at + bytes, at + bytes + 64, kGuard);
      destinations[d] = at;
    }
    combine(type(), shape.kind, {destinations.data(), shape.destinations},
            {sources.data(), shape.sources}, shape.count, shape.options);
    for (std::size_t d = 0; d < shape.destinations; ++d) {
      const auto* at = static_cast<const unsigned char*>(destinations[d]);
      const bool guarded =
          std::all_of(at - 64, at, [](unsigned char c) { return c == kGuard; }) &&
          std::all_of(at + bytes, at + bytes + 64, [](unsigned char c) { return c == kGuard; });
      if (!guarded) {
        ADD_FAILURE() << describe(shape) << ": wrote outside destination " << d;
        return false;
      }
      if (bytes == 0 || std::memcmp(at, wanted.data(), bytes) == 0) continue;
      for (std::size_t i = 0; i < shape.count; ++i) {
        const std::uint64_t got = reference::element(type(), at, i);
        const std::uint64_t want = reference::element(type(), wanted.data(), i);
        if (!reference::same(type(), got, want)) {
          ADD_FAILURE() << describe(shape) << ": destination " << d << " element " << i << " is "
                        << std::hex << got << ", expected " << want;
          return false;
        }
      }
    }
    return true;
  }

  std::string describe(const Shape& s) const {
    const auto text = [](auto number) { return std::to_string(number); };
    return std::string(combine_target()) + " " + std::string(name(type())) + " " +
           std::string(name(s.kind)) + ", " + text(s.sources) + " sources, " +
           text(s.destinations) + " destinations, count " + text(s.count) + ", misalignment " +
           text(s.misalignment) + ", in place " + text(s.in_place) + ", prescale " +
           text(static_cast<int>(s.prescale)) + ", stream " + text(s.options.stream);
  }

  // Every count, alignment, number of destinations and way of writing, for one reduction.
  void check_layouts(Shape shape) {
    for (const std::size_t count : {0, 1, 3, 15, 16, 17, 63, 64, 65, 257, 1000, 1037}) {
      for (const std::size_t misalignment :
           {std::size_t{0}, size_of(type()), std::size_t{16}, std::size_t{13}}) {
        for (const std::size_t destinations : {1, 2, 3}) {
          for (const std::size_t stream : {0, 1, 3}) {
            for (int in_place = -1; in_place < static_cast<int>(shape.sources); ++in_place) {
              if (in_place > 1) break;
              shape.count = count;
              shape.misalignment = misalignment;
              shape.destinations = destinations;
              shape.options.stream = stream;
              shape.in_place = in_place;
              if (!check(shape)) return;
            }
          }
        }
      }
    }
  }

 private:
  std::array<std::vector<unsigned char>, kRanks> inputs_;
  std::array<std::uint64_t, kRanks> scalars_{};
  std::vector<std::vector<unsigned char>> buffers_{
      kRanks + 3, std::vector<unsigned char>(kMost * sizeof(double) + 256)};
  std::map<std::tuple<ReduceKind, std::size_t, Prescale, bool, std::uint32_t>,
           std::vector<unsigned char>>
      results_;
};

TEST_P(Combine, EveryShapeGivesTheReferencesBits) {
  const CombineTarget target(std::get<0>(GetParam()));
  ASSERT_STREQ(combine_target(), hwy::TargetName(std::get<0>(GetParam())));
  for (const ReduceKind kind : kKinds) {
    for (const std::size_t sources : {1, 2, 3, 5}) {
      check_layouts({.kind = kind, .sources = sources});
    }
  }
}

TEST_P(Combine, AFactorIsAppliedBeforeTheSum) {
  const CombineTarget target(std::get<0>(GetParam()));
  for (const std::size_t sources : {1, 2, 5}) {
    check_layouts({.kind = ReduceKind::pre_multiplied_sum,
                   .sources = sources,
                   .prescale = Prescale::multiply});
  }
  for (const ReduceKind kind : {ReduceKind::prod, ReduceKind::min, ReduceKind::max}) {
    Shape shape{.kind = kind, .sources = 3, .prescale = Prescale::multiply};
    for (const std::size_t count : {1, 65, 1037}) {
      shape.count = count;
      ASSERT_TRUE(check(shape));
    }
  }
}

TEST_P(Combine, AveragesAreDividedAsTheReferenceDoes) {
  const CombineTarget target(std::get<0>(GetParam()));
  for (const std::size_t sources : {1, 2, 3}) {
    for (const std::uint32_t divisor : {1u, 3u, 1000u, 4000000000u}) {
      if (divisor > 1000 && is_float(type())) continue;
      Shape shape{.kind = ReduceKind::avg, .sources = sources};
      shape.options.divisor = divisor;
      shape.options.divide_result = !is_float(type());
      if (is_float(type())) shape.prescale = Prescale::divide;
      check_layouts(shape);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Combine,
                         testing::Combine(testing::ValuesIn(CombineTarget::all()),
                                          testing::ValuesIn(all_types())),
                         [](const auto& test) {
                           return std::string(hwy::TargetName(std::get<0>(test.param))) + "_" +
                                  std::string(name(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace tutti
