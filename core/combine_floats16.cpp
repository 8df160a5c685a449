// The loops of combine() for floats of 16 bits; see combine_kernels.cpp.
#include "core/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/combine_floats16.cpp"
#include "hwy/foreach_target.h"
// The order matters: what follows is included once per target.
#include "core/combine_kernels.h"
#include "core/combine_loops-inl.h"
#include "core/combine_vectors-inl.h"
#include "core/supported_targets.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::detail {
namespace HWY_NAMESPACE {

ReduceFunction find_16_bits_target(DataType type, Reduction reduction) {
  return type == DataType::float16 ? of_type<Float16>(reduction) : of_type<BFloat16>(reduction);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tutti::detail {

HWY_EXPORT(find_16_bits_target);

ReduceFunction find_reduce_of_16_bits(DataType type, Reduction reduction) {
  return HWY_DYNAMIC_DISPATCH(find_16_bits_target)(type, reduction);
}

}  // namespace tutti::detail
#endif
