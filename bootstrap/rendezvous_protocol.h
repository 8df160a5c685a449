// The messages between the ranks and the rendezvous server, and among the ranks.
//
// Both ends of a connection prove that they know the secret in the id
// (transport/sockets/handshake.h); then they exchange frames (frames.h), which carry MACs:
//
//     rank -> server   hello       rank, size, patience, where its children find it, its card
//     server -> rank   placement   the job's nonce, the roster's size and hash, its parent
//     server -> rank   the roster, where the server is the parent; no frame: its hash is known
//     rank -> server   have        it has the roster; or trouble: why it has not
//     server -> rank   go          all have it; or failed: the first failure, the same for all
//
//     rank -> parent   child       rank, the job's nonce
//     parent -> rank   the roster
//
// Ranks that meet by handles say in the hello which meeting they have come to. The first one asks
// at the meeting points of those that do not come:
//
//     server -> meeting point   question    the meeting
//     meeting point -> server   failed      why the rank will not come; else nothing
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/appointments.h"
#include "bootstrap/frames.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti::protocol {

constexpr int kMaxRanks = 1 << 20;
constexpr std::size_t kMaxErrorText = 512;

/// An IPv4 or IPv6 address and a port; all zero: none.
struct Endpoint {
  std::uint8_t family = 0;  // 4 or 6
  std::uint8_t unused = 0;
  std::array<std::uint8_t, 2> port{};   // big-endian
  std::array<std::byte, 16> address{};  // IPv4 in the first 4
};
static_assert(sizeof(Endpoint) == 20);
Endpoint endpoint_of(const SocketAddress& address);
/// Nothing for bytes that are not an address with a port.
std::optional<SocketAddress> address_of(const Endpoint& endpoint);

/// The payload of a hello; the card follows.
struct Hello {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t patience_ms = 0;  // until this rank gives up
  Endpoint listens;              // for its children; none without any
  std::uint32_t unused = 0;
  Appointment about;
};
static_assert(sizeof(Hello) == 80);

struct Placement {
  Bytes32 nonce{};  // the job's; no secret
  Bytes32 roster_hash{};
  std::uint64_t roster_bytes = 0;
  Endpoint parent;  // none: the server
  std::uint32_t unused = 0;
};
static_assert(sizeof(Placement) == 96);

/// The payload of trouble and failed; the text follows.
struct Failure {
  std::uint32_t code = 0;    // ErrorCode
  std::int32_t rank = -1;    // the culprit, or -1
  std::uint64_t number = 0;  // of the meeting, where a rank will not come to it
};

struct Child {
  std::int32_t rank = -1;
  Bytes32 nonce{};  // the job's
};
static_assert(sizeof(Child) == 36);

/// The content of a UniqueId.
struct Ticket {
  SocketAddress address;
  Bytes32 secret{};
};
UniqueId encode(const Ticket& ticket);
/// Whether encode() of some version made them.
bool is_id(const UniqueId& id);
/// Throws Error(invalid_argument) for bytes that encode() did not make, or that another version
/// made.
Ticket decode(const UniqueId& id);

Buffer failure_frame(const Session& session, FrameType type, const Error& error,
                     std::uint64_t number = 0);
/// Of a rank of `size`; nothing if the payload is not a failure.
std::optional<Error> failure_in(std::span<const std::byte> payload, int size);
/// Which meeting it is about.
std::uint64_t number_in(std::span<const std::byte> payload);

/// Makes the bytes that Roster::from() reads. `cards` by rank.
std::vector<std::byte> roster_bytes(std::span<const std::vector<std::byte>> cards);
/// Whether a roster of `size` ranks may have `bytes` bytes.
bool may_be_roster(std::uint64_t bytes, int size);
Bytes32 roster_hash(std::span<const std::byte> roster);

/// The session secret of the ranks of a job, once they have met; `nonce` is the job's and not
/// secret.
Bytes32 session_secret(const Bytes32& id_secret, const Bytes32& nonce);
/// The secret that parent and child prove to each other. It is not the id's own, so neither side
/// confuses these messages with messages to the server.
Bytes32 tree_secret(const Bytes32& id_secret);

/// For messages about an id at whose address nobody of its job is: what a loopback address means;
/// "" for others.
std::string_view loopback_remark(const SocketAddress& address);

/// "rank 3", "ranks 3 and 5", "ranks 3, 5, 6 and 12 more".
std::string list_ranks(std::span<const int> ranks);

}  // namespace tutti::protocol
