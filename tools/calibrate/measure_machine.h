// Measures the constants of collectives/model/machine.h on this machine, with ranks of its own.
#pragma once

#include "collectives/model/machine.h"

namespace tutti {

/// One look at every constant, in about a second. Starts processes and waits for them, so call it
/// while this process has one thread. `known`: cache sizes, and the constants that this machine
/// cannot measure (the way to another core, on a machine with one core). Throws Error.
Machine measure_machine(const Machine& known);

}  // namespace tutti
