// What an exception that is no Error says, as one.
#pragma once

#include <exception>

#include "core/error.h"

namespace tutti {

/// `thrown` itself, where it is an Error; of `system`, where it says that there is no memory; and
/// else of `internal`.
Error as_error(const std::exception& thrown);

}  // namespace tutti
