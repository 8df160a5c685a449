#include "tests/cuda_host_device.h"

namespace tutti::test {

void HostDevice::run(HostBlock& block, device::BlockShared& shared, const device::Launch& launch,
                     DataType type, std::uint32_t index) {
  const auto as = [&]<DataType t>() {
    device::run_block<device::ElementOf<t>>(block, shared, launch, index);
  };
  using enum DataType;
  switch (type) {
    case int8:
      return as.operator()<int8>();
    case uint8:
      return as.operator()<uint8>();
    case int32:
      return as.operator()<int32>();
    case uint32:
      return as.operator()<uint32>();
    case int64:
      return as.operator()<int64>();
    case uint64:
      return as.operator()<uint64>();
    case float16:
      return as.operator()<float16>();
    case float32:
      return as.operator()<float32>();
    case float64:
      return as.operator()<float64>();
    case bfloat16:
      return as.operator()<bfloat16>();
    case float8_e4m3:
      return as.operator()<float8_e4m3>();
    case float8_e5m2:
      return as.operator()<float8_e5m2>();
  }
}

}  // namespace tutti::test
