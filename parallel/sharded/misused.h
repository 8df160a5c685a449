// The errors of engine calls that come at the wrong time, or ask for something that does not exist.
#pragma once

#include <string>

#include "core/error.h"

namespace tutti::parallel {

[[noreturn]] inline void misused(const std::string& why) {
  throw Error(ErrorCode::invalid_usage, why);
}

}  // namespace tutti::parallel
