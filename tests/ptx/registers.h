// Slots for the registers of a function. PTX names thousands of registers; a hundred of them live
// at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::ptx {

/// What an instruction means to the registers, and which ones may follow it.
struct Flow {
  std::vector<int> reads, writes;
  std::vector<std::uint32_t> next;
};

struct Slots {
  std::vector<std::int32_t> slot;  // of each register
  std::uint32_t count = 0;
  std::vector<int> unwritten;  // registers that may be read before they are written
};

/// `given`: registers that have a value at the beginning.
Slots assign_slots(const std::vector<Flow>& flow, std::size_t registers,
                   const std::vector<int>& given);

}  // namespace tutti::ptx
