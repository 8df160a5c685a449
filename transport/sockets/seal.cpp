#include "transport/sockets/seal.h"

#include <sodium.h>

#include <cstring>

#include "core/settings.h"
#include "transport/sockets/crc32c.h"

namespace tutti {
namespace {

using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_IETF_NPUBBYTES>;
static_assert(crypto_aead_chacha20poly1305_IETF_ABYTES == sizeof(Seal::Header::tag));
static_assert(crypto_aead_chacha20poly1305_IETF_KEYBYTES == sizeof(protocol::Bytes32));

Nonce nonce_of(std::uint64_t record) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &record, sizeof record);
  return nonce;
}

unsigned char* raw(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* raw(const protocol::Bytes32& key) {
  return reinterpret_cast<const unsigned char*>(key.data());
}

}  // namespace

Protection wanted_protection() {
  if (setting_boolean("TUTTI_ENCRYPT")) return Protection::encryption;
  return setting_boolean("TUTTI_TCP_CHECKSUM") ? Protection::checksum : Protection::none;
}

const char* setting_of(Protection protection) {
  switch (protection) {
    case Protection::encryption:
      return "TUTTI_ENCRYPT=1";
    case Protection::checksum:
      return "TUTTI_TCP_CHECKSUM=1";
    case Protection::none:
      break;
  }
  return "neither TUTTI_ENCRYPT nor TUTTI_TCP_CHECKSUM";
}

Seal::Header Seal::close(std::span<std::byte> data) {
  Header header;
  header.bytes = static_cast<std::uint32_t>(data.size());
  header.not_bytes = ~header.bytes;
  if (protection_ == Protection::encryption) {
    const Nonce nonce = nonce_of(records_);
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(raw(data), raw(header.tag), nullptr,
                                                       raw(data), data.size(), nullptr, 0, nullptr,
                                                       nonce.data(), raw(key_));
  } else {
    const std::uint32_t checksum = crc32c(data, static_cast<std::uint32_t>(records_));
    std::memcpy(header.tag.data(), &checksum, sizeof checksum);
  }
  ++records_;
  return header;
}

bool Seal::is_right(const Header& header) {
  return header.bytes == ~header.not_bytes && header.bytes > 0 && header.bytes <= kMost;
}

bool Seal::open(const Header& header, std::span<std::byte> data) {
  const std::uint64_t record = records_++;
  if (protection_ == Protection::encryption) {
    const Nonce nonce = nonce_of(record);
    const auto* const tag = reinterpret_cast<const unsigned char*>(header.tag.data());
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(raw(data), nullptr, raw(data),
                                                              data.size(), tag, nullptr, 0,
                                                              nonce.data(), raw(key_)) == 0;
  }
  std::array<std::byte, sizeof header.tag> tag{};
  const std::uint32_t checksum = crc32c(data, static_cast<std::uint32_t>(record));
  std::memcpy(tag.data(), &checksum, sizeof checksum);
  return tag == header.tag;
}

}  // namespace tutti
