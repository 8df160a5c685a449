// What travels between a rank and the rendezvous server, and the proofs in it.
//
// Both sides prove that they know the secret in the id (transport/handshake.h); then
//
//     rank -> server   Hello + MAC   rank, size, patience, card
//     server -> rank   ReplyHeader + payload + MAC   the roster, or an error
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace tutti::wire {

constexpr int kMaxRanks = 1 << 20;
constexpr std::size_t kMaxErrorText = 512;

struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t patience_ms = 0;  // until this rank gives up
  Card card;
};
static_assert(sizeof(Hello) == 656);

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

Bytes32 hello_mac(const Session& session, const Hello& hello);
/// `payload_hash` = hash({}, "payload", {payload}): a roster is hashed once for all ranks.
Bytes32 reply_mac(const Session& session, const ReplyHeader& header, const Bytes32& payload_hash);

/// What the ranks of a job share once they have met; `nonce` is the job's and no secret.
Bytes32 session_secret(const Bytes32& id_secret, const Bytes32& nonce);

/// "rank 3", "ranks 3 and 5", "ranks 3, 5, 6 and 12 more".
std::string list_ranks(std::span<const int> ranks);

}  // namespace tutti::wire
