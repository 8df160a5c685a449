// What travels between a rank and the rendezvous server, and the proofs in it.
//
//     server -> rank   Greeting      magic, version, the server's nonce
//     rank -> server   Proof         the rank's nonce, and a MAC: "I know the secret in the id"
//     server -> rank   MAC           "so do I"
//     rank -> server   Hello + MAC   rank, size, patience, card
//     server -> rank   ReplyHeader + payload + MAC   the roster, or an error
//
// The server reads exactly one Proof (64 bytes) from somebody that it does not know. All MACs are
// keyed BLAKE2b; both nonces enter each of them, so nothing can be replayed or reflected. Integers
// have the byte order of the machine: a peer of the other order fails at `version`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "comm/rendezvous.h"
#include "comm/unique_id.h"
#include "transport/socket.h"

namespace tutti::wire {

using Bytes32 = std::array<std::byte, 32>;

constexpr std::uint32_t kVersion = 2;
constexpr std::array<char, 8> kMagic{'t', 'u', 't', 't', 'i', '-', 'r', 'v'};
constexpr int kMaxRanks = 1 << 20;
constexpr std::size_t kMaxErrorText = 512;

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

struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t patience_ms = 0;  // until this rank gives up
  Card card;
};
static_assert(sizeof(Hello) == 528);

enum class ReplyKind : std::uint32_t { roster = 1, error = 2 };

struct ReplyHeader {
  ReplyKind kind{};
  std::uint32_t code = 0;   // error: ErrorCode
  std::int32_t rank = -1;   // error: the culprit, or -1
  std::uint32_t bytes = 0;  // of the payload: the job nonce and the cards, or the error's text
};
static_assert(sizeof(ReplyHeader) == 16);

/// What a UniqueId says.
struct Ticket {
  SocketAddress address;
  Bytes32 secret{};
};
UniqueId encode(const Ticket& ticket);
/// Throws Error(invalid_argument) for bytes that no encode() made, or another version's did.
Ticket decode(const UniqueId& id);

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
  Session(const Bytes32& secret, const Bytes32& server_nonce, const Bytes32& rank_nonce);

  Bytes32 rank_proof() const { return hash(key_, "rank", {}); }
  Bytes32 server_proof() const { return hash(key_, "server", {}); }
  Bytes32 hello_mac(const Hello& hello) const;
  /// `payload_hash` = hash({}, "payload", {payload}): a roster is hashed once for all ranks.
  Bytes32 reply_mac(const ReplyHeader& header, const Bytes32& payload_hash) const;

 private:
  Bytes32 key_{};
};

/// What the ranks of a job share once they have met; `nonce` is the job's and no secret.
Bytes32 session_secret(const Bytes32& id_secret, const Bytes32& nonce);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// "rank 3", "ranks 3 and 5", "ranks 3, 5, 6 and 12 more".
std::string list_ranks(std::span<const int> ranks);

}  // namespace tutti::wire
