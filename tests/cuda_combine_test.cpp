// The device combine, compiled for the host, against core/combine(): the same bits for every type,
// operator, scaling, alignment and length, and by every protocol's loop.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "collectives/execute/cuda/combine_move.h"
#include "core/combine.h"
#include "tests/core_reference.h"

namespace tutti {
namespace {

using device::MoveArguments;
using device::Scaling;
using device::Target;

constexpr std::size_t kSources = 3;
constexpr std::size_t kDestinations = 2;
constexpr std::uint32_t kThreads = 8;

struct Numbers {
  DataType type;
  ReduceKind kind;
  Prescale prescale;
  bool divide_result;
  std::size_t count;
  std::size_t misalign;  // bytes

  std::string text() const {
    return std::string(name(type)) + " " + std::string(name(kind)) + " prescale " +
           std::to_string(static_cast<int>(prescale)) + " divide " + std::to_string(divide_result) +
           " x " + std::to_string(count) + " off by " + std::to_string(misalign);
  }
};

/// All bit patterns, and often the special ones: zeros of both signs, infinities, NaNs, subnormals.
std::vector<std::byte> random_elements(DataType type, std::size_t count, std::mt19937_64& random) {
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

using Run = void (*)(const MoveArguments&, int loop);

template <DataType type>
void run_loop(const MoveArguments& m, int loop) {
  using E = device::ElementOf<type>;
  const auto never = [](const Target&) { return false; };
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    bool fine = true;
    if (loop == 0) {
      device::move_memory<E>(m, t, kThreads);
    } else if (loop == 1) {
      fine = device::move_ll<E>(m, t, kThreads, never);
    } else {
      fine = device::move_ll128<E>(m, t, kThreads, never);
    }
    EXPECT_TRUE(fine);
  }
}

Run run_of(DataType type) {
  using enum DataType;
  switch (type) {
    case int8:
      return run_loop<int8>;
    case uint8:
      return run_loop<uint8>;
    case int32:
      return run_loop<int32>;
    case uint32:
      return run_loop<uint32>;
    case int64:
      return run_loop<int64>;
    case uint64:
      return run_loop<uint64>;
    case float16:
      return run_loop<float16>;
    case float32:
      return run_loop<float32>;
    case float64:
      return run_loop<float64>;
    case bfloat16:
      return run_loop<bfloat16>;
    case float8_e4m3:
      return run_loop<float8_e4m3>;
    case float8_e5m2:
      return run_loop<float8_e5m2>;
  }
  return nullptr;
}

void compare(const Numbers& n, std::mt19937_64& random) {
  const std::size_t size = size_of(n.type);
  const std::size_t bytes = n.count * size;
  constexpr std::uint32_t kDivisor = 3;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<Source> sources;
  for (std::size_t s = 0; s < kSources; ++s) {
    inputs.push_back(random_elements(n.type, n.count, random));
    inputs.back().insert(inputs.back().begin(), n.misalign, std::byte{0});
    const Prescale prescale = s == 1 ? Prescale::none : n.prescale;
    sources.push_back({inputs.back().data() + n.misalign, prescale, random()});
  }
  std::vector<std::byte> expected(bytes);
  void* const to[] = {expected.data()};
  combine(n.type, n.kind, to, sources, n.count,
          {.divisor = kDivisor, .divide_result = n.divide_result});

  for (int loop = 0; loop < 3; ++loop) {
    std::vector<std::vector<std::byte>> outputs(
        kDestinations, std::vector<std::byte>(bytes + n.misalign + 16, std::byte{0x5A}));
    Target targets[kDestinations + kSources];
    for (std::size_t d = 0; d < kDestinations; ++d) {
      targets[d].pointer = outputs[d].data() + n.misalign;
    }
    for (std::size_t s = 0; s < kSources; ++s) {
      Target& t = targets[kDestinations + s];
      t.pointer = inputs[s].data() + n.misalign;
      t.scaling = static_cast<Scaling>(sources[s].prescale);
      t.scalar = sources[s].scalar;
    }
    MoveArguments m{};
    m.targets = targets;
    m.destinations = kDestinations;
    m.sources = kSources;
    m.bytes = bytes;
    m.reduction.kind = n.kind;
    m.reduction.divisor = kDivisor;
    m.reduction.divide_result = n.divide_result;
    run_of(n.type)(m, loop);
    for (const auto& output : outputs) {
      for (std::size_t i = 0; i < n.count; ++i) {
        const std::uint64_t want = reference::element(n.type, expected.data(), i);
        const std::uint64_t got = reference::element(n.type, output.data() + n.misalign, i);
        ASSERT_TRUE(reference::same(n.type, want, got))
            << n.text() << ", loop " << loop << ", element " << i << std::hex << ": 0x" << got
            << " instead of 0x" << want;
      }
      for (std::size_t i = n.misalign + bytes; i < output.size(); ++i) {
        ASSERT_EQ(output[i], std::byte{0x5A}) << n.text() << ", loop " << loop;
      }
    }
  }
}

TEST(DeviceCombine, HasTheBitsOfTheHosts) {
  std::mt19937_64 random(7);
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::prod, ReduceKind::min, ReduceKind::max}) {
      for (const std::size_t count : {1, 15, 16, 17, 333}) {
        for (const std::size_t misalign : {std::size_t{0}, size_of(type), std::size_t{3}}) {
          compare({type, kind, Prescale::none, false, count, misalign}, random);
        }
      }
    }
    compare({type, ReduceKind::sum, Prescale::multiply, false, 500, 0}, random);
    if (is_float(type)) {
      compare({type, ReduceKind::sum, Prescale::divide, false, 500, 0}, random);
    } else {
      compare({type, ReduceKind::sum, Prescale::none, true, 500, 0}, random);
    }
  }
}

// Every code of the narrow floats, and every rounding boundary of one to the next.
TEST(DeviceCombine, ConvertsAsTheReference) {
  const auto check = [](DataType type, auto element) {
    using E = decltype(element);
    const std::uint32_t codes = 1u << (8 * size_of(type));
    for (std::uint32_t code = 0; code < codes; ++code) {
      const auto storage = static_cast<typename E::Storage>(code);
      const float wide = E::widen(storage);
      const auto want = reference::float_from<float>(type, code);
      EXPECT_TRUE(std::isnan(want) ? std::isnan(wide)
                                   : device::bits_of(wide) == device::bits_of(want))
          << name(type) << " " << code;
      if (std::isnan(want)) continue;
      ASSERT_EQ(E::narrow(wide), storage) << name(type);
      const float next = E::widen(static_cast<typename E::Storage>(code + 1));
      if (!std::isfinite(wide) || !std::isfinite(next)) continue;
      const float middle = wide / 2 + next / 2;
      for (const float x :
           {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)}) {
        ASSERT_EQ(std::uint64_t{E::narrow(x)}, reference::narrow_float(type).round(x)) << x;
      }
    }
    for (const float x :
         {1e30f, -1e30f, INFINITY, -INFINITY, 464.0f, 465.0f, 65519.0f, 65520.0f, 1e-40f}) {
      EXPECT_TRUE(reference::same(type, E::narrow(x), reference::narrow_float(type).round(x))) << x;
    }
  };
  check(DataType::float16, device::ElementOf<DataType::float16>());
  check(DataType::bfloat16, device::ElementOf<DataType::bfloat16>());
  check(DataType::float8_e4m3, device::ElementOf<DataType::float8_e4m3>());
  check(DataType::float8_e5m2, device::ElementOf<DataType::float8_e5m2>());
}

}  // namespace
}  // namespace tutti
