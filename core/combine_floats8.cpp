// The loops of combine() for floats of 8 bits; see combine_kernels.cpp.
#include "core/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/combine_floats8.cpp"
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

ReduceFunction find_8_bits_target(DataType type, Reduction reduction) {
  return type == DataType::float8_e4m3 ? of_type<Float8E4M3>(reduction)
                                       : of_type<Float8E5M2>(reduction);
}

}  // namespace HWY_NAMESPACE
}  // namespace tutti::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tutti::detail {

HWY_EXPORT(find_8_bits_target);

ReduceFunction find_reduce_of_8_bits(DataType type, Reduction reduction) {
  return HWY_DYNAMIC_DISPATCH(find_8_bits_target)(type, reduction);
}

}  // namespace tutti::detail
#endif
