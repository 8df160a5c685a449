// The device combine, compiled for the host, against core/combine(): the same bits for every type,
// operator, scaling, alignment and length, and by every protocol's loop.
#include "tests/cuda_combine_cases.h"
#include "tests/cuda_host_device.h"

namespace tutti::test {
namespace {

using device::MoveArguments;
using device::Target;

constexpr std::size_t kDestinations = 2;
constexpr std::uint32_t kThreads = 32;

using Run = void (*)(const MoveArguments&, int loop);

template <DataType type>
void run_loop(const MoveArguments& m, int loop) {
  using E = device::ElementOf<type>;
  const auto never = [](const Target&) { return false; };
  HostBlock::run({kThreads, 16}, m.bytes, [&](HostBlock& block, device::BlockShared&) {
    bool fine = true;
    if (loop == 0) {
      device::move_memory<E>(m, block.thread(), block.threads());
    } else if (loop == 1) {
      fine = device::move_ll<E>(block, m, never);
    } else {
      fine = device::move_ll128<E>(block, m, never);
    }
    EXPECT_TRUE(fine);
  });
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

void compare(const CombineCase& c, const CombineData& data) {
  for (int loop = 0; loop < 3; ++loop) {
    SCOPED_TRACE(loop);
    // LL128 is not used otherwise.
    const bool sums = c.kind == ReduceKind::sum && !c.divide_result;
    if (loop == 2 && (!sums || c.prescale == Prescale::divide)) continue;
    std::vector<std::vector<std::byte>> outputs(
        kDestinations, std::vector<std::byte>(data.bytes + c.misalign + 16, std::byte{0x5A}));
    auto inputs = data.inputs;
    Target targets[kDestinations + kCombineSources];
    for (std::size_t d = 0; d < kDestinations; ++d) {
      targets[d].pointer = outputs[d].data() + c.misalign;
    }
    for (std::size_t s = 0; s < kCombineSources; ++s) {
      inputs[s].insert(inputs[s].begin(), c.misalign, std::byte{0});
      targets[kDestinations + s] = data.target(s, inputs[s].data() + c.misalign);
    }
    run_of(c.type)(data.arguments(c, targets, kDestinations), loop);
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
