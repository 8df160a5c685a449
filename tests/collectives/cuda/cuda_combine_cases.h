// What the device combine is compared with core/combine() on, on the host (cuda_combine_test) and
// on a GPU (tests/gpu/combine_test.cu): every type, operator, scaling and alignment.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "core/combine.h"
#include "execute/cuda/combine_links.h"
#include "tests/core/core_reference.h"

namespace tutti::test {

inline constexpr std::size_t kMostCombineSources = 257;

struct CombineCase {
  DataType type;
  ReduceKind kind;
  Prescale prescale;
  bool divide_result;
  std::size_t count;
  std::size_t misalign;  // bytes
  std::size_t sources = 3;
  bool canonical = false;

  std::uint32_t divisor() const { return static_cast<std::uint32_t>(sources); }
  std::string text() const {
    return std::string(name(type)) + " " + std::string(name(kind)) + " prescale " +
           std::to_string(static_cast<int>(prescale)) + " divide " + std::to_string(divide_result) +
           " x " + std::to_string(count) + " off by " + std::to_string(misalign) + ", " +
           std::to_string(sources) + " sources" + (canonical ? ", canonical" : "");
  }
};

/// All bit patterns, and often the special ones: zeros of both signs, infinities, NaNs, subnormals.
inline std::vector<std::byte> random_elements(DataType type, std::size_t count,
                                              std::mt19937_64& random) {
  const std::size_t size = size_of(type);
  std::vector<std::byte> data(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    const std::uint64_t top = std::uint64_t{1} << (8 * size - 1);
    switch (random() % 8) {
      case 0:
        bits = bits & top;  // zeros
        break;
      case 1:
        bits = (bits & top) | (bits & 3);  // the smallest
        break;
      case 2:
        bits = (top - 1 - (bits % 4)) | (bits & top);  // the largest, NaNs
        break;
      default:
        break;
    }
    std::memcpy(data.data() + i * size, &bits, size);
  }
  return data;
}

/// A case's inputs, and what core/combine() makes of them.
struct CombineData {
  CombineData(const CombineCase& c, std::mt19937_64& random)
      : bytes(c.count * size_of(c.type)), expected(bytes) {
    for (std::size_t s = 0; s < c.sources; ++s) {
      inputs.push_back(c.canonical ? ordered_elements(c, random)
                                   : random_elements(c.type, c.count, random));
      const Prescale prescale = s == 1 ? Prescale::none : c.prescale;  // sources differ in it
      const double factor = 0.6 + 0.1 * static_cast<double>(s % 7);
      sources.push_back(
          {inputs.back().data(), prescale, c.canonical ? bits_of(c.type, factor) : random()});
    }
    void* const to[] = {expected.data()};
    CombineOptions options{.divisor = c.divisor(), .divide_result = c.divide_result};
    options.canonical = c.canonical;
    combine(c.type, c.kind, to, sources, c.count, options);
    if (!c.canonical) return;
    in_turn.resize(bytes);
    void* const there[] = {in_turn.data()};
    options.canonical = false;
    combine(c.type, c.kind, there, sources, c.count, options);
  }

  static std::uint64_t bits_of(DataType type, double value) {
    return type == DataType::float64 ? reference::float_to<double>(type, value)
                                     : reference::float_to<float>(type, static_cast<float>(value));
  }
  /// Numbers of no regular size, whose sums and products depend on their order.
  static std::vector<std::byte> ordered_elements(const CombineCase& c, std::mt19937_64& random) {
    std::vector<std::byte> data(c.count * size_of(c.type));
    for (std::size_t i = 0; i < c.count; ++i) {
      const double v = std::ldexp(static_cast<double>(random() >> 11), -52) - 1;
      const double factor = c.kind == ReduceKind::prod ? 1 : random() % 3 == 0 ? 1.5 : 0.03;
      const double shift = c.kind == ReduceKind::prod ? std::copysign(0.6, v) : 0;
      const std::uint64_t bits = bits_of(c.type, v * factor + shift);
      std::memcpy(data.data() + i * size_of(c.type), &bits, size_of(c.type));
    }
    return data;
  }

  /// Source `s` as the device sees it, its elements at `memory`.
  template <class E>
  device::Target target(std::size_t s, std::byte* memory) const {
    device::Target t{};
    t.pointer = memory;
    t.template leave<E>();
    if (sources[s].prescale == Prescale::multiply) t.template multiply<E>(sources[s].scalar);
    if constexpr (std::is_floating_point_v<typename E::Wide>) {
      if (sources[s].prescale == Prescale::divide) {
        t.template divide<E>(static_cast<std::uint32_t>(sources.size()));
      }
    }
    return t;
  }
  /// Destinations first, then the sources.
  device::MoveArguments arguments(const CombineCase& c, const device::Target* targets,
                                  std::uint32_t destinations) const {
    device::MoveArguments m{};
    m.targets = targets;
    m.destinations = destinations;
    m.sources = c.divisor();
    m.bytes = bytes;
    m.reduction.kind = c.kind;
    m.reduction.is_signed = is_signed_integer(c.type);
    m.reduction.divisor = c.divisor();
    m.reduction.reciprocal = 1.0 / c.divisor();
    m.reduction.divide_result = c.divide_result;
    return m;
  }
  void expect_same(const CombineCase& c, const std::byte* result) const {
    for (std::size_t i = 0; i < c.count; ++i) {
      const std::uint64_t want = reference::element(c.type, expected.data(), i);
      const std::uint64_t got = reference::element(c.type, result, i);
      ASSERT_TRUE(reference::same(c.type, want, got))
          << c.text() << ", element " << i << std::hex << ": 0x" << got << " instead of 0x" << want;
    }
  }

  std::size_t bytes;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<Source> sources;
  std::vector<std::byte> expected;
  std::vector<std::byte> in_turn;  // of the canonical order: what the other order would give
};

/// Memory alone, which nobody waits for.
struct NoWait {
  TUTTI_HD int begin() const { return 0; }
  TUTTI_HD bool again(int, const device::Target&) const { return false; }
};

/// The ways that a case can be moved: LL128 is taken for sums in turn alone, with factors at most.
inline std::vector<device::Way> ways_of(const CombineCase& c) {
  using enum device::Way;
  std::vector<device::Way> ways{memory, words};
  if (c.kind == ReduceKind::sum && !c.divide_result && c.prescale != Prescale::divide &&
      !c.canonical) {
    ways.push_back(lines);
  }
  return ways;
}

/// `compare(case, data)` for every type, operator and scaling; `counts` and alignments vary where
/// nothing is scaled, and `many` elements are scaled.
template <class Compare>
void for_each_combine_case(std::initializer_list<std::size_t> counts, std::size_t many,
                           const Compare& compare) {
  std::mt19937_64 random(7);
  const auto test = [&](const CombineCase& c) { compare(c, CombineData(c, random)); };
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::prod, ReduceKind::min, ReduceKind::max}) {
      for (const std::size_t count : counts) {
        for (const std::size_t misalign : {std::size_t{0}, size_of(type), std::size_t{3}}) {
          test({type, kind, Prescale::none, false, count, misalign});
        }
      }
    }
    test({type, ReduceKind::sum, Prescale::multiply, false, many, 0});
    if (is_float(type)) {
      test({type, ReduceKind::sum, Prescale::divide, false, many, 0});
    } else {
      test({type, ReduceKind::sum, Prescale::none, true, many, 0});
    }
  }
}

/// The canonical order: `compare(case, data)` for any number of sources of each float type, sums,
/// products, averages and factors, and checks that the order is one that can be told.
template <class Compare>
void for_each_canonical_case(std::initializer_list<std::size_t> sources, std::size_t count,
                             const Compare& compare) {
  std::mt19937_64 random(5);
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    if (!is_float(type)) continue;
    for (const std::size_t n : sources) {
      bool told = n < 4;
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::prod}) {
        for (const Prescale prescale : {Prescale::none, Prescale::multiply}) {
          for (const bool divides : {false, true}) {
            if (kind == ReduceKind::prod && (divides || prescale != Prescale::none)) continue;
            const CombineCase c{
                type, kind, prescale, divides, count, n % 4 == 1 ? size_of(type) : 0, n, true};
            const CombineData data(c, random);
            told = told || data.in_turn != data.expected;
            compare(c, data);
          }
        }
      }
      EXPECT_TRUE(told) << name(type) << " of " << n << " sources";
    }
  }
}

}  // namespace tutti::test
