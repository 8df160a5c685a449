// tutti.Communicator and tutti.Future, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace tutti::python {

void bind_communicator(nanobind::module_& module);

}  // namespace tutti::python
