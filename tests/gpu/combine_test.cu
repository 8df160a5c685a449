// The device combine on a device, against core/combine() on the host.
#include <cuda_runtime.h>

#include "tests/cuda_combine_cases.h"

namespace tutti::test {
namespace {

using device::MoveArguments;
using device::Target;

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

void compare(const CombineCase& c, const CombineData& data) {
  std::byte* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, (kCombineSources + 2) * kSpace), cudaSuccess);
  Target targets[1 + kCombineSources];
  targets[0].pointer = memory + c.misalign;
  for (std::size_t s = 0; s < kCombineSources; ++s) {
    std::byte* const at = memory + (s + 1) * kSpace + c.misalign;
    ASSERT_EQ(cudaMemcpy(at, data.inputs[s].data(), data.bytes, cudaMemcpyHostToDevice),
              cudaSuccess);
    targets[1 + s] = data.target(s, at);
  }
  std::byte* const on_device = memory + (kCombineSources + 1) * kSpace;
  ASSERT_EQ(cudaMemcpy(on_device, targets, sizeof targets, cudaMemcpyHostToDevice), cudaSuccess);
  kLaunch[static_cast<int>(c.type)](
      data.arguments(c, reinterpret_cast<const Target*>(on_device), 1));
  std::vector<std::byte> got(data.bytes);
  ASSERT_EQ(cudaMemcpy(got.data(), memory + c.misalign, got.size(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  cudaFree(memory);
  data.expect_same(c, got.data());
}

TEST(GpuCombine, HasTheBitsOfTheHosts) { for_each_combine_case({1, 17, 5000}, 5000, compare); }

}  // namespace
}  // namespace tutti::test
