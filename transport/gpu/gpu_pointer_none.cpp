// A build without CUDA.
#include "transport/gpu/gpu_pointer.h"

namespace tutti {

int gpu_of(const void*) { return -1; }

}  // namespace tutti
