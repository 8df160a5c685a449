// The device combine, compiled for the host, against core/combine(): the same bits for every type,
// operator, scaling, alignment and length, and by every protocol's loop.

#include "tests/collectives/cuda/cuda_combine_cases.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace tutti::test {
namespace {

using device::MoveArguments;
using device::Target;

constexpr std::size_t kDestinations = 2;
constexpr std::uint32_t kCombineThreads = 32;

/// One way to move a case; `targets` has the destinations, and room for the sources.
using Run = void (*)(const CombineCase& c, const CombineData& data, device::Way way,
                     const std::vector<std::byte*>& sources, Target* targets);

template <class E>
void run_way(const CombineCase& c, const CombineData& data, device::Way way,
             const std::vector<std::byte*>& sources, Target* targets) {
  for (std::size_t s = 0; s < c.sources; ++s) {
    targets[kDestinations + s] = data.target<E>(s, sources[s]);
  }
  const MoveArguments m = data.arguments(c, targets, kDestinations);
  HostBlock::run({kCombineThreads, 16}, m.bytes, [&](HostBlock& block, device::BlockShared&) {
    EXPECT_TRUE(device::move<E>(block, m, way, NoWait{}));
  });
}

template <DataType type>
Run run_of(bool canonical) {
  using E = device::ElementOf<type>;
  if constexpr (std::is_floating_point_v<typename E::Wide>) {
    if (canonical) return run_way<device::InCanonicalOrder<E>>;
  }
  return run_way<E>;
}

Run run_of(DataType type, bool canonical) {
  using enum DataType;
  switch (type) {
    case int8:
      return run_of<int8>(canonical);
    case uint8:
      return run_of<uint8>(canonical);
    case int32:
      return run_of<int32>(canonical);
    case uint32:
      return run_of<uint32>(canonical);
    case int64:
      return run_of<int64>(canonical);
    case uint64:
      return run_of<uint64>(canonical);
    case float16:
      return run_of<float16>(canonical);
    case float32:
      return run_of<float32>(canonical);
    case float64:
      return run_of<float64>(canonical);
    case bfloat16:
      return run_of<bfloat16>(canonical);
    case float8_e4m3:
      return run_of<float8_e4m3>(canonical);
    case float8_e5m2:
      return run_of<float8_e5m2>(canonical);
  }
  return nullptr;
}

void compare(const CombineCase& c, const CombineData& data) {
  for (const device::Way way : ways_of(c)) {
    SCOPED_TRACE(static_cast<int>(way));
    std::vector<std::vector<std::byte>> outputs(
        kDestinations, std::vector<std::byte>(data.bytes + c.misalign + 16, std::byte{0x5A}));
    auto inputs = data.inputs;
    std::vector<std::byte*> sources(c.sources);
    std::vector<Target> targets(kDestinations + c.sources);
    for (std::size_t d = 0; d < kDestinations; ++d) {
      targets[d].pointer = outputs[d].data() + c.misalign;
    }
    for (std::size_t s = 0; s < c.sources; ++s) {
      inputs[s].insert(inputs[s].begin(), c.misalign, std::byte{0});
      sources[s] = inputs[s].data() + c.misalign;
    }
    run_of(c.type, c.canonical)(c, data, way, sources, targets.data());
    for (const auto& output : outputs) {
      data.expect_same(c, output.data() + c.misalign);
      for (std::size_t i = c.misalign + data.bytes; i < output.size(); ++i) {
        ASSERT_EQ(output[i], std::byte{0x5A}) << c.text();
      }
    }
  }
}

TEST(DeviceCombine, HasTheBitsOfTheHosts) {
  for_each_combine_case({1, 15, 16, 17, 333}, 500, compare);
}

TEST(DeviceCombine, HasTheCanonicalOrderOfTheHosts) {
  for_each_canonical_case({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}, 100,
                          compare);
  for_each_canonical_case({31, 64, 65, 128, 255, kMostCombineSources}, 20, compare);
}

// An average of floats is divided once, to the nearest: as the host's own division, of subnormal
// numbers and of those half-way between two as well.
TEST(DeviceCombine, DividesAsTheHost) {
  std::mt19937_64 random(11);
  for (std::uint32_t divisor = 1; divisor < 70; ++divisor) {
    device::Reduction r;
    r.divisor = divisor;
    r.reciprocal = 1.0 / divisor;
    for (int i = 0; i < 20'000; ++i) {
      auto bits = static_cast<std::uint32_t>(random());
      if (i % 4 == 0) bits &= 0x80FFFFFFu;               // the smallest exponents
      if (i % 4 == 1) bits &= ~(bits >> 8 & 0x7FFFFFu);  // few digits
      const float x = device::float_of(bits);
      const float want = x / static_cast<float>(divisor);
      const float got = device::quotient_of(x, r);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : device::bits_of(want) == device::bits_of(got))
          << x << " / " << divisor << ": " << got << " instead of " << want;
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
}  // namespace tutti::test
