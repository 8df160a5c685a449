// The device combine on a device, against core/combine() on the host: every type, operator and
// alignment, on random bits with many special values.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collectives/execute/cuda/combine_move.h"
#include "core/combine.h"

namespace tutti {
namespace {

using device::MoveArguments;
using device::Scaling;
using device::Target;

constexpr std::size_t kSources = 3;
constexpr std::size_t kSpace = 1 << 16;  // of each operand

template <DataType type>
__global__ void move(MoveArguments m) {
  device::move_memory<device::ElementOf<type>>(m, threadIdx.x, blockDim.x);
}

template <DataType type>
void launch(const MoveArguments& m) {
  move<type><<<1, 64>>>(m);
}

using Launch = void (*)(const MoveArguments&);
constexpr Launch kLaunch[] = {
    launch<DataType::int8>,     launch<DataType::uint8>,       launch<DataType::int32>,
    launch<DataType::uint32>,   launch<DataType::int64>,       launch<DataType::uint64>,
    launch<DataType::float16>,  launch<DataType::float32>,     launch<DataType::float64>,
    launch<DataType::bfloat16>, launch<DataType::float8_e4m3>, launch<DataType::float8_e5m2>};

bool is_nan(DataType type, std::uint64_t bits) {
  switch (type) {
    case DataType::float16:
      return (bits & 0x7FFF) > 0x7C00;
    case DataType::bfloat16:
      return (bits & 0x7FFF) > 0x7F80;
    case DataType::float8_e4m3:
      return (bits & 0x7F) == 0x7F;
    case DataType::float8_e5m2:
      return (bits & 0x7F) > 0x7C;
    case DataType::float32:
      return (bits & 0x7FFFFFFF) > 0x7F800000;
    case DataType::float64:
      return (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000;
    default:
      return false;
  }
}

void compare(DataType type, ReduceKind kind, Prescale prescale, bool divide, std::size_t count,
             std::size_t misalign, std::mt19937_64& random) {
  const std::size_t size = size_of(type);
  std::vector<std::vector<std::byte>> inputs(kSources, std::vector<std::byte>(count * size));
  std::vector<Source> sources;
  for (auto& input : inputs) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t top = std::uint64_t{1} << (8 * size - 1);
      std::uint64_t bits = random();
      const std::uint64_t special = random() % 8;
      if (special == 0) bits &= top;
      if (special == 1) bits &= top | 3;
      if (special == 2) bits = (top - 1 - bits % 4) | (bits & top);
      std::memcpy(input.data() + i * size, &bits, size);
    }
    sources.push_back({input.data(), prescale, random()});
  }
  std::vector<std::byte> expected(count * size);
  void* const to[] = {expected.data()};
  combine(type, kind, to, sources, count, {.divisor = 3, .divide_result = divide});

  std::byte* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, (kSources + 2) * kSpace), cudaSuccess);
  Target targets[kSources + 1];
  targets[0].pointer = memory + misalign;
  for (std::size_t s = 0; s < kSources; ++s) {
    std::byte* const at = memory + (s + 1) * kSpace + misalign;
    ASSERT_EQ(cudaMemcpy(at, inputs[s].data(), count * size, cudaMemcpyHostToDevice), cudaSuccess);
    targets[s + 1].pointer = at;
    targets[s + 1].scaling = static_cast<Scaling>(prescale);
    targets[s + 1].scalar = sources[s].scalar;
  }
  std::byte* const on_device = memory + (kSources + 1) * kSpace;
  ASSERT_EQ(cudaMemcpy(on_device, targets, sizeof targets, cudaMemcpyHostToDevice), cudaSuccess);
  MoveArguments m{};
  m.targets = reinterpret_cast<const Target*>(on_device);
  m.destinations = 1;
  m.sources = kSources;
  m.bytes = count * size;
  m.reduction.kind = kind;
  m.reduction.divisor = 3;
  m.reduction.divide_result = divide;
  kLaunch[static_cast<int>(type)](m);
  std::vector<std::byte> got(count * size);
  ASSERT_EQ(cudaMemcpy(got.data(), memory + misalign, got.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  cudaFree(memory);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::memcpy(&a, expected.data() + i * size, size);
    std::memcpy(&b, got.data() + i * size, size);
    ASSERT_TRUE(a == b || (is_nan(type, a) && is_nan(type, b)))
        << name(type) << " " << name(kind) << " prescale " << static_cast<int>(prescale) << " x "
        << count << " off by " << misalign << ", element " << i << std::hex << ": 0x" << b
        << " instead of 0x" << a;
  }
}

TEST(GpuCombine, HasTheBitsOfTheHosts) {
  std::mt19937_64 random(7);
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceKind kind :
         {ReduceKind::sum, ReduceKind::prod, ReduceKind::min, ReduceKind::max}) {
      for (const std::size_t count : {1, 17, 5000}) {
        for (const std::size_t misalign : {std::size_t{0}, size_of(type), std::size_t{3}}) {
          compare(type, kind, Prescale::none, false, count, misalign, random);
        }
      }
    }
    compare(type, ReduceKind::sum, Prescale::multiply, false, 5000, 0, random);
    if (is_float(type)) {
      compare(type, ReduceKind::sum, Prescale::divide, false, 5000, 0, random);
    } else {
      compare(type, ReduceKind::sum, Prescale::none, true, 5000, 0, random);
    }
  }
}

}  // namespace
}  // namespace tutti
