// Measures the constants of collectives/model/machine.h on this machine, with ranks of its own.
#pragma once

#include "collectives/model/machine.h"

namespace tutti {

/// One look at every constant, in about a second. Starts processes and waits for them, so it is
/// called while this process has one thread. `known`: cache sizes, and the values of what cannot be
/// measured here (the way to another core, on a machine that has one). Throws Error.
Machine measure_machine(const Machine& known);

}  // namespace tutti
