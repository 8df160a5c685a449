// A build without CUDA.
#include "core/error.h"
#include "transport/gpu/gpu_memory.h"

namespace tutti {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::system,
              "GPU memory needs a build of Tutti with CUDA (docs/building.md), and this is one "
              "without");
}

}  // namespace

int current_gpu() { return -1; }
int gpu_of_thread() { return -1; }
std::string gpu_address(int) { return ""; }
int gpu_count(std::string* why) {
  if (why != nullptr) *why = "this is a build without CUDA";
  return 0;
}
void* allocate_on_gpu(std::size_t) { refuse(); }
void free_on_gpu(void*) noexcept {}
void* duplicate_on_gpu(const void*, std::size_t, void*) { refuse(); }
void free_duplicate(void*, void*) noexcept {}
void read_from_gpu(void*, const void*, std::size_t, void*) { refuse(); }

}  // namespace tutti
