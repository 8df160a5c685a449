// What the engine's calls throw when they come at the wrong time, or ask for what there is not.
#pragma once

#include <string>

#include "core/error.h"

namespace tutti::parallel {

[[noreturn]] inline void misused(const std::string& why) {
  throw Error(ErrorCode::invalid_usage, why);
}

}  // namespace tutti::parallel
