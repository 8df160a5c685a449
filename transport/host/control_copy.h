// What a rank says of itself, on its way to a rank of another host: a ControlBlock as bytes, as far
// as others read it. Times are ages, because clocks of hosts differ.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/host/control_block.h"

namespace tutti {

std::vector<std::byte> control_to_bytes(const ControlBlock& from);
/// False: these are no such bytes, and nothing was changed.
bool control_from_bytes(std::span<const std::byte> bytes, ControlBlock& to);

}  // namespace tutti
