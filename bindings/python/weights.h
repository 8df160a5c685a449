// Weights that move from one layout to another, and from one job to another (docs/reshard.md,
// docs/weights.md).
#pragma once

#include <nanobind/nanobind.h>

namespace tutti::python {

/// The classes that tutti/weights.py wraps.
void bind_weights(nanobind::module_& module);

}  // namespace tutti::python
