// Seals keep bytes between two hosts from being altered or read on their way, where the job asks
// for them. The bytes then travel in records, each under a seal: a checksum (CRC32C), which finds
// what went wrong by accident; or encryption (ChaCha20-Poly1305, libsodium's), which nobody without
// the connection's keys can read or alter. The receiver does not open a record that was altered on
// its way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/sockets/handshake.h"

namespace tutti {

/// The better one is the larger one.
enum class Protection : std::uint32_t { none = 0, checksum = 1, encryption = 2 };

/// What this rank's settings ask for (TUTTI_ENCRYPT, TUTTI_TCP_CHECKSUM).
Protection wanted_protection();
/// What the user knows it by: "TUTTI_ENCRYPT=1".
const char* setting_of(Protection protection);

/// Of one direction of a connection: its records, in order, at one end.
class Seal {
 public:
  struct Header {
    std::uint32_t bytes = 0;      // that follow
    std::uint32_t not_bytes = 0;  // ~bytes: a wrong length would be waited for
    std::array<std::byte, 16> tag{};
  };
  /// The most that a record has behind its header.
  static constexpr std::size_t kMost = 16384;

  Seal() = default;
  /// `key`: of this direction alone.
  Seal(Protection protection, const protocol::Bytes32& key) : protection_(protection), key_(key) {}

  /// Seals `data`, where it lies. Returns what travels in front of it.
  Header close(std::span<std::byte> data);
  /// Whether a record can begin so.
  static bool is_right(const Header& header);
  /// Opens `data`, where it lies; false: it is not what was sealed.
  bool open(const Header& header, std::span<std::byte> data);

 private:
  Protection protection_ = Protection::none;
  protocol::Bytes32 key_{};
  std::uint64_t records_ = 0;  // so far; no two have the same nonce
};

}  // namespace tutti
