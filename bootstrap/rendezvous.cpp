// The rank's side of the rendezvous; see rendezvous_protocol.h for what is said.
#include "bootstrap/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/error.h"
#include "transport/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kRefusedFor = 1s;       // an id exists while its server does, so this is generous
constexpr auto kGrace = 1s;            // beyond the deadline, for the server to say who is missing
constexpr int kMostRejections = 6;     // a busy server may close an honest rank's connection
constexpr auto kLongestPause = 100ms;  // between two attempts

constexpr std::string_view kGone =
    "the process that made the unique id has ended, the ranks of this id have met already, or the "
    "id timed out; make a new one, and keep its process alive until all ranks have joined";

class Client {
 public:
  Client(const UniqueId& id, int rank, int size, Deadline deadline)
      : ticket_(wire::decode(id)),
        where_(to_string(ticket_.address)),
        who_(fmt::format("rendezvous: rank {} of {}", rank, size)),
        rank_(rank),
        size_(size),
        deadline_(deadline) {}

  Roster meet(const Card& mine) {
    while (!introduce()) {
      pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
      pause_for(pause_);
    }
    send_hello(mine);
    return receive_reply();
  }

 private:
  /// Connects and proves both sides to each other. False: worth another attempt.
  bool introduce() {
    if (Clock::now() >= deadline_) timed_out("no connection came about");
    if (!connect()) return false;

    wire::Greeting greeting;
    const auto greeted = read_exactly(socket_, wire::writable_bytes_of(greeting), deadline_);
    if (greeted == IoResult::timed_out) timed_out("the server accepted, but said nothing");
    if (greeted == IoResult::closed) return false;  // all places were taken
    if (greeting.magic != wire::kMagic) {
      throw Error(ErrorCode::system,
                  fmt::format("{}: what answers at {} is not a rendezvous of Tutti: {}", who_,
                              where_, kGone));
    }
    if (greeting.version != wire::kVersion) {
      throw Error(ErrorCode::mismatch,
                  fmt::format("{}: the server at {} speaks version {} of the protocol, this rank "
                              "version {}: all ranks need the same Tutti",
                              who_, where_, greeting.version, wire::kVersion));
    }

    wire::Proof proof;
    wire::fill_random(proof.nonce);
    session_ = wire::Session(ticket_.secret, greeting.nonce, proof.nonce);
    proof.mac = session_.connector_proof();
    wire::Bytes32 answer{};
    auto result = write_exactly(socket_, wire::bytes_of(proof), deadline_);
    if (result == IoResult::done) {
      result = read_exactly(socket_, wire::writable_bytes_of(answer), deadline_);
    }
    if (result == IoResult::timed_out) timed_out("the server did not answer this rank's proof");
    if (result == IoResult::done && wire::equal(answer, session_.acceptor_proof())) return true;
    if (result == IoResult::closed && ++rejections_ < kMostRejections) return false;
    throw Error(ErrorCode::system,
                fmt::format("{}: the server at {} does not share the secret of this rank's unique "
                            "id: the id belongs to another job ({})",
                            who_, where_, kGone));
  }

  bool connect() {
    socket_ = connect_to(ticket_.address, deadline_);
    if (socket_) return true;
    const int error = errno;
    if (error == ECONNREFUSED) {
      if (refused_since_ == Clock::time_point{}) refused_since_ = Clock::now();
      if (Clock::now() - refused_since_ < kRefusedFor) return false;
      throw Error(ErrorCode::system,
                  fmt::format("{}: nothing listens at {}: {}", who_, where_, kGone));
    }
    refused_since_ = {};
    if (error == ETIMEDOUT && Clock::now() >= deadline_) timed_out("the connection was not made");
    // The way there may come back; a lack of descriptors may end.
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
        error == ECONNRESET || error == ECONNABORTED || error == EAGAIN || error == EADDRNOTAVAIL) {
      return false;
    }
    throw_system_error(fmt::format("{} cannot connect to {}", who_, where_), error);
  }

  void send_hello(const Card& mine) {
    struct {
      wire::Hello hello;
      wire::Bytes32 mac{};
    } request;
    request.hello.rank = rank_;
    request.hello.size = size_;
    request.hello.patience_ms = milliseconds_until(deadline_);
    request.hello.card = mine;
    request.mac = wire::hello_mac(session_, request.hello);
    check(write_exactly(socket_, wire::bytes_of(request), deadline_));
  }

  Roster receive_reply() {
    // The server gives up at our deadline too, and then knows who is missing.
    deadline_ = deadline_ > Deadline::max() - kGrace ? Deadline::max() : deadline_ + kGrace;
    struct {
      wire::ReplyHeader header;
      wire::Bytes32 mac{};
    } head;
    check(read_exactly(socket_, wire::writable_bytes_of(head), deadline_));
    const std::size_t roster_bytes =
        sizeof(wire::Bytes32) + static_cast<std::size_t>(size_) * sizeof(Card);
    const bool is_roster = head.header.kind == wire::ReplyKind::roster;
    const bool is_error = head.header.kind == wire::ReplyKind::error;
    if (!(is_roster && head.header.bytes == roster_bytes) &&
        !(is_error && head.header.bytes <= wire::kMaxErrorText)) {
      garbled();
    }
    std::vector<std::byte> payload(head.header.bytes);
    check(read_exactly(socket_, payload, deadline_));
    const auto payload_hash = wire::hash({}, "payload", {payload});
    if (!wire::equal(head.mac, wire::reply_mac(session_, head.header, payload_hash))) garbled();
    if (is_error) throw_reply(head.header, payload);

    Roster roster;
    wire::Bytes32 nonce;
    std::memcpy(nonce.data(), payload.data(), nonce.size());
    roster.session_secret = wire::session_secret(ticket_.secret, nonce);
    roster.cards.resize(static_cast<std::size_t>(size_));
    std::memcpy(roster.cards.data(), payload.data() + nonce.size(),
                roster.cards.size() * sizeof(Card));
    return roster;
  }

  [[noreturn]] void throw_reply(const wire::ReplyHeader& header,
                                const std::vector<std::byte>& payload) const {
    const std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
    const bool known = header.code >= static_cast<std::uint32_t>(ErrorCode::invalid_argument) &&
                       header.code <= static_cast<std::uint32_t>(ErrorCode::internal);
    throw Error(known ? static_cast<ErrorCode>(header.code) : ErrorCode::internal, text,
                header.rank >= 0 && header.rank < wire::kMaxRanks ? header.rank : -1);
  }

  void check(IoResult result) const {
    if (result == IoResult::timed_out) timed_out("the server stopped answering");
    if (result == IoResult::closed) {
      throw Error(ErrorCode::system,
                  fmt::format("{}: the server at {} closed the connection before all ranks had "
                              "joined: the process that made the unique id has ended",
                              who_, where_));
    }
  }

  [[noreturn]] void garbled() const {
    throw Error(ErrorCode::system,
                fmt::format("{}: the answer from {} was altered on its way", who_, where_));
  }

  [[noreturn]] void timed_out(std::string_view what) const {
    throw Error(ErrorCode::timed_out,
                fmt::format("{}: {} ({}) before the deadline; is the process that made the unique "
                            "id alive, and its address reachable from here?",
                            who_, what, where_));
  }

  const wire::Ticket ticket_;
  const std::string where_;
  const std::string who_;
  const int rank_;
  const int size_;
  Deadline deadline_;
  FileDescriptor socket_;
  wire::Session session_;
  Clock::duration pause_ = 2ms;
  Clock::time_point refused_since_{};
  int rejections_ = 0;
};

}  // namespace

Roster rendezvous(const UniqueId& id, int rank, int size, const Card& mine,
                  std::chrono::nanoseconds timeout) {
  if (size < 1 || size > wire::kMaxRanks || rank < 0 || rank >= size) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rendezvous: there is no rank {} of {}: ranks count from 0 to size - 1 "
                            "(at most {} ranks)",
                            rank, size, wire::kMaxRanks));
  }
  if (timeout <= 0ns) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rendezvous: rank {} of {}: the timeout must be positive", rank, size));
  }
  return Client(id, rank, size, deadline_after(timeout)).meet(mine);
}

}  // namespace tutti
