// The kernels of an engine's arithmetic on a GPU, against the host's. (Their elements are compared
// without a GPU in gpu_elements_test.)
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/convert.h"
#include "parallel/gpu.h"

namespace tutti::test {
namespace {

using namespace parallel;

constexpr std::size_t kCount = 100'003;

/// Memory of a device with so many bytes in it.
class Memory {
 public:
  Memory(Device& device, const std::vector<std::byte>& bytes)
      : device_(device), data_(device.allocate(bytes.size())), bytes_(bytes.size()) {
    device_.copy(data_, bytes.data(), bytes_);
  }
  ~Memory() { device_.release(data_, device_.record(device_.current())); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(bytes_);
    device_.read(bytes.data(), data_, bytes_);
    return bytes;
  }

 private:
  Device& device_;
  std::byte* const data_;
  const std::size_t bytes_;
};

std::vector<std::byte> values(DataType type, int seed) {
  std::vector<float> wide(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    wide[i] = std::sin(static_cast<float>(i * 7 + static_cast<std::size_t>(seed))) *
              std::exp2(static_cast<float>(i % 20) - 10);
  }
  std::vector<std::byte> bytes(kCount * size_of(type));
  convert(wide.data(), DataType::float32, bytes.data(), type, kCount);
  return bytes;
}

class GpuArithmetic : public ::testing::Test {
 protected:
  GpuArithmetic() : gpu(0), stream_(gpu.make_stream()) { gpu.use(stream_.get()); }
  /// `body(device)` gives the same on both.
  template <class Body>
  void expect_as_on_the_host(const Body& body) {
    EXPECT_TRUE(body(static_cast<Device&>(gpu)) == body(host_device()));
  }
  Gpu gpu;

 private:
  std::shared_ptr<void> stream_;
};

TEST_F(GpuArithmetic, ConvertsAndAdds) {
  const DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float16};
  for (const DataType from : types) {
    for (const DataType to : types) {
      expect_as_on_the_host([&](Device& device) {
        const Memory in(device, values(from, 1)), out(device, values(to, 2));
        device.convert(from, in.data(), to, out.data(), kCount);
        device.add(to, out.data(), out.data(), 3, nullptr, kCount);
        device.add(to, out.data(), out.data(), 1, out.data(), kCount);
        return out.read();
      });
    }
  }
}

TEST_F(GpuArithmetic, Updates) {
  const AdamW adamw{{.learning_rate = 0.1}};
  const Sgd sgd{{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}};
  for (const Optimizer* optimizer :
       {static_cast<const Optimizer*>(&adamw), static_cast<const Optimizer*>(&sgd)}) {
    expect_as_on_the_host([&](Device& device) {
      constexpr DataType kWide = DataType::float32, kNarrow = DataType::bfloat16;
      const std::vector<std::byte> zeros(kCount * sizeof(float));
      const Memory master(device, values(kWide, 3)), gradient(device, values(kNarrow, 4)),
          first(device, zeros), second(device, zeros), compute(device, values(kNarrow, 5));
      for (std::uint64_t step = 1; step <= 3; ++step) {
        device.update(*optimizer, {.type = kWide,
                                   .master = master.data(),
                                   .state = {first.data(), second.data()},
                                   .gradient_type = kNarrow,
                                   .gradient = gradient.data(),
                                   .compute_type = kNarrow,
                                   .compute = compute.data(),
                                   .count = kCount,
                                   .gradient_scale = 0.5,
                                   .step = step});
      }
      auto all = master.read();
      for (const Memory* m : {&first, &second, &compute}) {
        const auto more = m->read();
        all.insert(all.end(), more.begin(), more.end());
      }
      return all;
    });
  }
}

TEST_F(GpuArithmetic, NormsAreTheHostsButForTheOrder) {
  const auto norm = [](Device& device) {
    const Memory a(device, values(DataType::float32, 6)), b(device, values(DataType::float32, 7));
    const Device::Values both[] = {{a.data(), kCount}, {b.data(), 1000}};
    return device.sum_of_squares(DataType::float32, both);
  };
  const double host = norm(host_device()), on_gpu = norm(gpu);
  EXPECT_NEAR(on_gpu, host, 1e-12 * host);
  EXPECT_EQ(norm(gpu), on_gpu) << "in each run";
}

}  // namespace
}  // namespace tutti::test
