// How two processes prove to each other over a socket that they know a secret, before either
// believes anything else that it reads:
//
//     acceptor -> connector   Greeting      magic, version, the acceptor's nonce
//     connector -> acceptor   Proof         the connector's nonce, and a MAC: "I know it"
//     acceptor -> connector   MAC           "so do I"
//
// The acceptor reads exactly one Proof (64 bytes) from a process that it does not know. All MACs
// are keyed BLAKE2b. Both nonces are fresh and enter each MAC, so nothing can be replayed or
// reflected. The messages that follow carry a MAC under the keys of the connection (Session).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace tutti::protocol {

using Bytes32 = std::array<std::byte, 32>;

constexpr std::uint32_t kVersion = 9;
constexpr std::array<char, 8> kMagic{'t', 'u', 't', 't', 'i', '-', 'h', 's'};

/// Integers have the byte order of the machine: a peer of the other order fails at `version`.
struct Greeting {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t unused = 0;
  Bytes32 nonce{};
};
static_assert(sizeof(Greeting) == 48);

struct Proof {
  Bytes32 nonce{};
  Bytes32 mac{};
};
static_assert(sizeof(Proof) == 64);

void fill_random(std::span<std::byte> bytes);
/// BLAKE2b-256 of the parts, in order; `key` may be empty.
Bytes32 hash(std::span<const std::byte> key, std::string_view purpose,
             std::initializer_list<std::span<const std::byte>> parts);
/// In constant time.
bool equal(const Bytes32& a, const Bytes32& b);

/// The keys of one connection.
class Session {
 public:
  Session() = default;
  Session(const Bytes32& secret, const Bytes32& acceptor_nonce, const Bytes32& connector_nonce);

  Bytes32 connector_proof() const { return hash(key_, "connector", {}); }
  Bytes32 acceptor_proof() const { return hash(key_, "acceptor", {}); }
  /// Of what is said afterwards.
  Bytes32 mac(std::string_view purpose,
              std::initializer_list<std::span<const std::byte>> parts) const {
    return hash(key_, purpose, parts);
  }

 private:
  Bytes32 key_{};
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace tutti::protocol
