#include "transport/gpu/gpu_driver.h"

#include <dlfcn.h>

#include <array>

#include "transport/gpu/gpu_driver_abi.h"

namespace tutti {
namespace {

using namespace gpu_driver_abi;

struct Functions {
  PointerGetAttributes* attributes = nullptr;
  CtxGetCurrent* context = nullptr;
  CtxGetDevice* device = nullptr;
  DevicePrimaryCtxGetState* primary = nullptr;
  DeviceGetPCIBusId* address = nullptr;

  Functions() {
    if (gpu_driver() == nullptr) return;
    find(attributes, "cuPointerGetAttributes");
    find(context, "cuCtxGetCurrent");
    find(device, "cuCtxGetDevice");
    find(primary, "cuDevicePrimaryCtxGetState");
    find(address, "cuDeviceGetPCIBusId");
  }

 private:
  template <class F>
  static void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(gpu_driver(), name));
  }
};

const Functions& functions() {
  static const Functions found;
  return found;
}

/// What CUDA knows of a pointer.
struct Known {
  unsigned type = 0;  // 0: nothing
  unsigned managed = 0;
  int ordinal = -1;
};

Known known_of(const void* pointer) {
  const auto get = functions().attributes;
  Known known;
  if (get == nullptr || pointer == nullptr) return known;
  int wanted[] = {kMemoryType, kIsManaged, kDeviceOrdinal};
  void* values[] = {&known.type, &known.managed, &known.ordinal};
  // All at once, because then a pointer that CUDA does not know is no error. One is that the driver
  // was not started.
  if (get(3, wanted, values, reinterpret_cast<Pointer>(pointer)) != kSuccess) return {};
  return known;
}

}  // namespace

void* gpu_driver() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library;
}

int gpu_of(const void* pointer) {
  const Known known = known_of(pointer);
  return known.type == kOfDevice || known.managed != 0 ? known.ordinal : -1;
}

bool is_pinned(const void* pointer) { return known_of(pointer).type == kOfHost; }

int gpu_of_thread() {
  const Functions& driver = functions();
  void* context = nullptr;
  int device = -1;
  const bool has_one = driver.context != nullptr && driver.device != nullptr &&
                       driver.context(&context) == kSuccess && context != nullptr &&
                       driver.device(&device) == kSuccess;
  return has_one ? device : -1;
}

int current_gpu() {
  const int own = gpu_of_thread();
  if (own >= 0) return own;
  // A thread that has not said which uses GPU 0, if other threads do.
  const Functions& driver = functions();
  unsigned flags = 0;
  int active = 0;
  return driver.primary != nullptr && driver.primary(0, &flags, &active) == kSuccess && active != 0
             ? 0
             : -1;
}

std::string gpu_address(int ordinal) {
  std::array<char, 32> text{};
  const auto function = functions().address;
  if (function == nullptr ||
      function(text.data(), static_cast<int>(text.size()) - 1, ordinal) != kSuccess) {
    return "";
  }
  return text.data();
}

}  // namespace tutti
