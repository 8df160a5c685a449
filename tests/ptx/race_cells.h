// Races on plain data: every 8 bytes remember their last accesses, four at most, each with the time
// of the thread that made it. An access that conflicts with one which did not happen before it is a
// race, unless both are strong, of the same word, and in scopes that include each other (PTX ISA,
// "Data races", "Morally strong operations").
#pragma once

#include <cstdint>

#include "tests/ptx/clock.h"

namespace tutti::ptx {

/// One access, in a word: thread 17 bits, time 34, bytes 8, scope 2, write 1; bit 63: there is one.
struct Cell {
  std::uint64_t bits = 0;

  static Cell of(const Moment& m, std::uint32_t mask, std::uint32_t scope, bool write) {
    return {std::uint64_t{1} << 63 | std::uint64_t{m.thread} << 45 | m.time << 11 | mask << 3 |
            scope << 1 | (write ? 1u : 0u)};
  }
  bool is_empty() const { return bits == 0; }
  Moment moment() const { return {thread(), bits >> 11 & ((std::uint64_t{1} << 34) - 1)}; }
  std::uint32_t thread() const { return static_cast<std::uint32_t>(bits >> 45 & 0x1FFFF); }
  std::uint32_t mask() const { return static_cast<std::uint32_t>(bits >> 3 & 0xFF); }
  std::uint32_t scope() const { return static_cast<std::uint32_t>(bits >> 1 & 3); }
  bool is_write() const { return (bits & 1) != 0; }
};

inline constexpr int kCells = 4;
inline constexpr std::uint64_t kMostTime = std::uint64_t{1} << 34;

/// 8 bytes of memory.
struct Granule {
  Cell cell[kCells];
  std::uint32_t op[kCells];  // of the program, for messages
  std::uint32_t history;     // of Memory::histories_
  std::uint32_t reserved;
};

}  // namespace tutti::ptx
