// The file of a machine's constants, as `tutti calibrate` writes it. A communicator only reads it
// (machine.h), so this is no part of the library.
#pragma once

#include <string>

#include "collectives/model/machine.h"

namespace tutti {

/// A constant's value for people: four digits after the first, sizes in full.
std::string constant_text(double value);
/// What machine_from_text() reads.
std::string machine_to_text(const MachineRecord& record);
/// Creates the folders. Throws Error(system).
void write_machine(const std::string& path, const MachineRecord& record);

}  // namespace tutti
