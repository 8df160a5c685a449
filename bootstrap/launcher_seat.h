// PMI and PMIx speak with one process of a rank. Where a launch starts several programs at once,
// the first that asks has the seat, and the others are told so: their words would get mixed up.
#pragma once

#include "bootstrap/launcher.h"

namespace tutti {

/// Takes the seat for this process, until it ends. Waits a moment for one that is about to end.
/// Throws Error(invalid_usage), which names the process that has it.
void take_seat(const Launcher& launcher);

}  // namespace tutti
