// Sizes of messages, as tables of tools show them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace tutti {

/// "512 B", "32 KiB", "8 MiB": the largest unit of which `bytes` is a whole number.
inline std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kKi = 1024;
  if (bytes >= kKi * kKi && bytes % (kKi * kKi) == 0) {
    return fmt::format("{} MiB", bytes / kKi / kKi);
  }
  if (bytes >= kKi && bytes % kKi == 0) return fmt::format("{} KiB", bytes / kKi);
  return fmt::format("{} B", bytes);
}

}  // namespace tutti
