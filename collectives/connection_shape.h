// How much a connection (transport/host/connection.h) holds: what plans have to know of links.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr std::size_t kCacheLine = 64;
/// Rounded up.
constexpr std::size_t to_line(std::size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}
inline constexpr std::size_t kInlineBytes = 48;
inline constexpr std::size_t kBulkBytes = 8192;  // from here on it matters how a message is written
inline constexpr std::size_t kPageBytes = 4096;  // of the usual size, or a part of a larger one
// From here on a wire may carry messages that lie one behind the other as one.
inline constexpr std::size_t kRunBytes = 16384;
// So much of a cell is used where the next one has just been read here: going on to it costs more
// than a shorter message gains (docs/experiments.md#cells-that-end-early).
inline constexpr std::size_t kHotBytes = 2048;

struct alignas(kCacheLine) SlotHeader {
  std::atomic<std::uint64_t> message;  // 1 + index of the message in this slot; 0: none yet
  std::uint32_t tag;                   // which operation it belongs to (execute/signature.h)
  std::uint32_t bytes;                 // and kEndsCell: the next message begins a cell
  std::byte payload[kInlineBytes];

  static constexpr std::uint32_t kEndsCell = 1U << 31;
};
static_assert(sizeof(SlotHeader) == kCacheLine);

struct alignas(kCacheLine) CreditLine {
  std::atomic<std::uint64_t> consumed;  // messages that the receiver has finished with
  std::atomic<std::uint64_t> freed;     // where their data ended, as Cursor::passed()
};

struct ConnectionShape {
  std::size_t slots = 0;       // messages that may be under way
  std::size_t slot_bytes = 0;  // the most that a message has; a multiple of the cache line
  std::size_t most_full = 0;   // how many of those may be that long; 0: all

  constexpr std::size_t full_slots() const { return most_full > 0 ? most_full : slots; }
  /// One more than the full slots need: short messages may have begun one.
  constexpr std::size_t cells() const { return full_slots() + 1; }
  constexpr std::size_t data_bytes() const { return cells() * slot_bytes; }
  /// How many messages of `bytes` may be under way.
  constexpr std::size_t slots_for(std::size_t bytes) const {
    if (bytes <= kInlineBytes) return slots;
    return std::clamp(slot_bytes / to_line(bytes) * full_slots(), full_slots(), slots);
  }
  /// How many cells they take.
  constexpr std::size_t cells_for(std::size_t bytes) const {
    const std::size_t in_cell = slot_bytes / to_line(bytes);
    return std::min((slots + in_cell - 1) / in_cell, full_slots());
  }
  /// Messages of less than kRunBytes that end a cell, where cells have fixed places, if they fill a
  /// page. So many that all slots are in use before half of the cells are.
  constexpr std::uint32_t most_in_cell() const {
    return static_cast<std::uint32_t>(2 * ((slots + full_slots() - 1) / full_slots()));
  }
  constexpr std::size_t map_bytes() const { return to_line(cells() * sizeof(std::uint32_t)); }
  constexpr std::size_t bytes() const {
    return sizeof(CreditLine) + slots * sizeof(SlotHeader) + map_bytes() + data_bytes();
  }
  friend constexpr bool operator==(const ConnectionShape&, const ConnectionShape&) = default;
};

/// Messages to another host that are at least so long leave from the sender's memory: shorter ones
/// are copied sooner.
inline constexpr std::size_t kZeroCopyBytes = 8192;

}  // namespace tutti
