// CRC32C (Castagnoli): the checksum that tells that bytes were altered by accident. It uses the
// processor's own instruction where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// Of bytes with the checksum `before`, and of `bytes` behind them.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// crc32c() without the processor's instruction for it.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace tutti
