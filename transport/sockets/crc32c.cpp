#include "transport/sockets/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tutti {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // its bits in reverse, as CRC32C has them

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1U) * kPolynomial;
    table[i] = crc;
  }
  return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes,
                                                               std::uint32_t before) {
  std::uint64_t crc = ~before;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    crc = _mm_crc32_u64(crc, eight);
  }
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*at));
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (const std::byte b : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ std::to_integer<std::uint32_t>(b)) & 0xFFU];
  }
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_it = __builtin_cpu_supports("sse4.2") != 0;
  if (has_it) return by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

}  // namespace tutti
