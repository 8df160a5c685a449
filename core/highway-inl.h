// The two functions that Highway's headers declare and libhwy.so has: for one source file of each
// library that has loops on vectors, outside of all namespaces; supported_targets.h says why. They
// are hidden, so a program may use libhwy.so beside it.
#pragma once

#include "core/supported_targets.h"
#include "hwy/targets.h"

namespace hwy {

[[gnu::visibility("hidden")]] std::int64_t SupportedTargets() {
  return tutti::detail::supported_targets();
}

[[gnu::visibility("hidden")]] ChosenTarget& GetChosenTarget() {
  return tutti::detail::chosen_target();
}

}  // namespace hwy
