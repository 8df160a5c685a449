// A build without CUDA.
#include "core/error.h"
#include "parallel/gpu_kernels.h"

namespace tutti::parallel::gpu_kernels {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "a kernel of an engine in a build without CUDA");
}

}  // namespace

bool exist() { return false; }
void load() { refuse(); }
void convert(DataType, const void*, DataType, void*, std::size_t, Device::Stream) { refuse(); }
void add(DataType, void*, const void*, unsigned, const void*, std::size_t, Device::Stream) {
  refuse();
}
void copy_rows(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t,
               Device::Stream) {
  refuse();
}
void add_squares(DataType, const void*, std::size_t, double*, Device::Stream) { refuse(); }
void adamw(const Optimizer::Slice&, const kernels::AdamWConstants&, Device::Stream) { refuse(); }
void sgd(const Optimizer::Slice&, const kernels::SgdConstants&, Device::Stream) { refuse(); }

}  // namespace tutti::parallel::gpu_kernels
