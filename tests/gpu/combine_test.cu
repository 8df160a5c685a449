// The device combine on a device, against core/combine() on the host.
#include <cuda_runtime.h>

#include "execute/cuda/kernel.cuh"
#include "tests/collectives/cuda/cuda_combine_cases.h"

namespace tutti::test {
namespace {

using device::MoveArguments;
using device::Target;

constexpr std::size_t kSpace = 1 << 16;  // of each operand
constexpr std::size_t kSources = 17;     // at most

template <class E>
__global__ void run(MoveArguments m, device::Way way, bool* fine) {
#if TUTTI_ON_DEVICE
  device::DeviceBlock block;
  if (!device::move<E>(block, m, way, NoWait{})) *fine = false;
#endif
}

/// A case's operands on the device: a destination, the sources, and what the kernel says.
struct OnDevice {
  OnDevice() { EXPECT_EQ(cudaMalloc(&memory, (kSources + 2) * kSpace), cudaSuccess); }
  ~OnDevice() { cudaFree(memory); }
  std::byte* operand(std::size_t i) const { return memory + i * kSpace; }
  void put(std::size_t i, const void* from, std::size_t bytes, std::size_t offset = 0) const {
    EXPECT_EQ(cudaMemcpy(operand(i) + offset, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }

  std::byte* memory = nullptr;
};

template <DataType type>
auto kernel_of(bool canonical) {
  using E = device::ElementOf<type>;
  if constexpr (std::is_floating_point_v<typename E::Wide>) {
    if (canonical) return &run<device::InCanonicalOrder<E>>;
  }
  return &run<E>;
}

template <DataType type>
void move(const CombineCase& c, const CombineData& data, device::Way way, const OnDevice& on) {
  Target targets[1 + kSources];
  targets[0].pointer = on.operand(0) + c.misalign;
  for (std::size_t s = 0; s < c.sources; ++s) {
    targets[1 + s] = data.target<device::ElementOf<type>>(s, on.operand(s + 1) + c.misalign);
  }
  const bool fine = true;
  on.put(kSources + 1, targets, sizeof targets);
  on.put(kSources + 1, &fine, sizeof fine, sizeof targets);
  std::byte* const last = on.operand(kSources + 1);
  kernel_of<type>(c.canonical)<<<1, device::kThreads>>>(
      data.arguments(c, reinterpret_cast<const Target*>(last), 1), way,
      reinterpret_cast<bool*>(last + sizeof targets));
}

using Move = void (*)(const CombineCase&, const CombineData&, device::Way, const OnDevice&);
constexpr Move kMove[] = {
    move<DataType::int8>,     move<DataType::uint8>,       move<DataType::int32>,
    move<DataType::uint32>,   move<DataType::int64>,       move<DataType::uint64>,
    move<DataType::float16>,  move<DataType::float32>,     move<DataType::float64>,
    move<DataType::bfloat16>, move<DataType::float8_e4m3>, move<DataType::float8_e5m2>};

void compare(const CombineCase& c, const CombineData& data) {
  const OnDevice on;
  for (std::size_t s = 0; s < c.sources; ++s) {
    on.put(s + 1, data.inputs[s].data(), data.bytes, c.misalign);
  }
  for (const device::Way way : ways_of(c)) {
    SCOPED_TRACE(static_cast<int>(way));
    ASSERT_EQ(cudaMemset(on.operand(0), 0x5A, kSpace), cudaSuccess);
    kMove[static_cast<int>(c.type)](c, data, way, on);
    std::vector<std::byte> got(data.bytes);
    ASSERT_EQ(
        cudaMemcpy(got.data(), on.operand(0) + c.misalign, got.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    data.expect_same(c, got.data());
  }
}

TEST(GpuCombine, HasTheBitsOfTheHosts) { for_each_combine_case({1, 17, 5000}, 5000, compare); }
TEST(GpuCombine, HasTheCanonicalOrderOfTheHosts) {
  for_each_canonical_case({2, 3, 4, 5, 6, 7, 8, 9, 13, 16, kSources}, 5000, compare);
}

}  // namespace
}  // namespace tutti::test
