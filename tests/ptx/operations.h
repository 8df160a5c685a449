// What computes, of a thread's registers alone: each instruction as a loop over the 32 lanes of a
// warp. A register is 64 bits wide; what is narrower has zeros above it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::ptx {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kWholeWarp = 0xFFFFFFFF;

/// Registers of a warp: 32 numbers each. Those with a negative index are constants.
struct Registers {
  std::uint64_t* values;
  const std::uint64_t* constants;

  const std::uint64_t* operator[](std::int32_t index) const {
    return index >= 0 ? values + std::size_t{kLanes} * static_cast<std::uint32_t>(index)
                      : constants + std::size_t{kLanes} * static_cast<std::uint32_t>(~index);
  }
  std::uint64_t* to(std::int32_t index) const {
    return values + std::size_t{kLanes} * static_cast<std::uint32_t>(index);
  }
};

/// `operand`: the destination, then the sources.
using Compute = void (*)(const Registers& registers, const std::int32_t* operand,
                         std::uint32_t lanes);
struct Operation {
  Compute compute = nullptr;
  std::uint32_t sources = 0;
};

/// None: it is not one of these.
const Operation* find_operation(const std::string& op);

}  // namespace tutti::ptx
