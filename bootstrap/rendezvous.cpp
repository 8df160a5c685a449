// The rank's side of the rendezvous; see rendezvous_protocol.h for what is said.
#include "bootstrap/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_children.h"
#include "bootstrap/rendezvous_parent.h"
#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_tree.h"
#include "core/background.h"
#include "core/error.h"
#include "core/log.h"
#include "transport/introduction.h"
#include "transport/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kRefusedFor = 1s;       // an id exists while its server does, so this is generous
constexpr auto kGrace = 1s;            // beyond the deadline, for the server to say who is missing
constexpr int kMostRejections = 6;     // and for kRefusedFor
constexpr auto kParentPatience = 20s;  // for another rank to prove itself; or half of what is left
constexpr auto kLongestPause = 100ms;  // between two attempts
constexpr auto kToRefuse = 2s;         // to say why this rank does not come

constexpr std::string_view kGone =
    "the process that made the unique id has ended, the ranks of this id have met already, or the "
    "id timed out; make a new one, and keep its process alive until all ranks have joined";

class Client {
 public:
  Client(const UniqueId& id, int rank, int size, Deadline deadline, const Reunion* reunion)
      : ticket_(wire::decode(id)),
        where_(to_string(ticket_.address)),
        me_(fmt::format("rank {} of {}", rank, size)),
        who_("rendezvous: " + me_),
        reunion_(reunion),
        rank_(rank),
        size_(size),
        deadline_(deadline) {}

  Roster meet(std::span<const std::byte> mine) {
    find_server();
    send_hello(mine);
    // The server gives up at our deadline too, and then knows who is missing.
    deadline_ = deadline_ > Deadline::max() - kGrace ? Deadline::max() : deadline_ + kGrace;
    while (!met_) {
      wait();
      if (children_) children_->serve(Clock::now());
      if (parent_) ask_parent();
      hear_server();
    }
    return std::move(*roster_);
  }

  void refuse(const Error& why) {
    find_server();
    report(Error(why.code(), fmt::format("{} cannot join: {}", me_, why.what()), rank_));
  }

 private:
  // --- the server's trust ---

  void find_server() {
    while (!introduce()) {
      pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
      pause_for(pause_);
    }
  }

  /// Connects and proves both sides to each other. False: worth another attempt.
  bool introduce() {
    if (Clock::now() >= deadline_) timed_out("no connection came about");
    Introduction attempt(ticket_.address, ticket_.secret);
    while (!attempt.ended()) {
      if (!wait_for(attempt.descriptor(), attempt.events(), deadline_)) {
        timed_out(attempt.state() == Introduction::State::connecting ? "the connection was not made"
                  : attempt.state() == Introduction::State::greeting
                      ? "the server accepted, but said nothing"
                      : "the server did not answer this rank's proof");
      }
      attempt.step();
    }
    switch (attempt.reason()) {
      case Introduction::Reason::none:
        socket_ = std::move(attempt.socket());
        session_ = attempt.session();
        return true;
      case Introduction::Reason::unreachable:
        return may_come_back(attempt.error());
      case Introduction::Reason::turned_away:
        return false;
      case Introduction::Reason::stranger:
        if (reunion_ != nullptr) throw_first_gone("what listens there now is no rank of Tutti");
        throw Error(ErrorCode::system,
                    fmt::format("{}: what answers at {} is not a rendezvous of Tutti: {}", who_,
                                where_, kGone));
      case Introduction::Reason::other_version:
        throw Error(ErrorCode::mismatch,
                    fmt::format("{}: the server at {} speaks version {} of the protocol, this rank "
                                "version {}: all ranks need the same Tutti",
                                who_, where_, attempt.version(), wire::kVersion));
      case Introduction::Reason::rejected:
        // A busy server may close an honest rank's connection.
        if (++rejections_ == 1) rejected_since_ = Clock::now();
        if (rejections_ < kMostRejections || Clock::now() - rejected_since_ < kRefusedFor) {
          return false;
        }
        break;
      case Introduction::Reason::wrong_answer:
        break;
    }
    if (reunion_ != nullptr) {
      throw_first_gone("what listens there now is another rank, or the handle was made up");
    }
    throw Error(ErrorCode::system,
                fmt::format("{}: the server at {} does not share the secret of this rank's unique "
                            "id: the id belongs to another job ({})",
                            who_, where_, kGone));
  }

  /// Returns false where a connection that did not come about is worth another attempt.
  bool may_come_back(int error) {
    if (error == ECONNREFUSED && reunion_ != nullptr) throw_first_gone("nothing listens there");
    if (error == ECONNREFUSED) {
      if (refused_since_ == Clock::time_point{}) refused_since_ = Clock::now();
      if (Clock::now() - refused_since_ < kRefusedFor) return false;
      throw Error(ErrorCode::system,
                  fmt::format("{}: nothing listens at {}: {}", who_, where_, kGone));
    }
    refused_since_ = {};
    // The way there may come back.
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
        error == ECONNRESET || error == ECONNABORTED || error == EAGAIN || error == EADDRNOTAVAIL) {
      return false;
    }
    const bool descriptors = error == EMFILE || error == ENFILE;
    throw_system_error(fmt::format("{} cannot connect to {}{}", who_, where_,
                                   descriptors ? " (`ulimit -n` says how many descriptors a "
                                                 "process may have)"
                                               : ""),
                       error);
  }

  void send_hello(std::span<const std::byte> mine) {
    wire::Hello hello;
    hello.rank = rank_;
    hello.size = size_;
    hello.patience_ms = milliseconds_until(deadline_);
    if (reunion_ != nullptr) hello.about = reunion_->about();
    if (tree::has_children(rank_, size_)) {
      children_.emplace(rank_, size_, wire::tree_secret(ticket_.secret), socket_);
      hello.listens = children_->endpoint();
    }
    say(wire::frame(session_, wire::FrameType::hello, {wire::bytes_of(hello), mine}));
  }

  void say(const wire::Buffer& frame) { check(write_exactly(socket_, *frame, deadline_)); }

  // --- the roster's way ---

  void wait() {
    const Deadline now = Clock::now();
    if (now >= deadline_) timed_out("the server stopped answering");
    Deadline wake = deadline_;
    if (children_) wake = std::min(wake, children_->next_wake(now));
    if (parent_) wake = std::min(wake, parent_->next_wake());
    std::array<pollfd, 5> entries{{{socket_.fd(), POLLIN, 0},
                                   {children_ ? children_->descriptor() : -1, POLLIN, 0},
                                   {-1, 0, 0},
                                   {stop_descriptor(), POLLIN, 0},
                                   {reunion_ ? reunion_->descriptor() : -1, POLLIN, 0}}};
    if (parent_) entries[2] = {parent_->descriptor(), parent_->events(), 0};
    const int ready = ::poll(entries.data(), entries.size(), poll_timeout(wake));
    if (ready < 0 && errno != EINTR) throw_system_error("poll in the rendezvous");
    throw_if_stopping();
    if (entries[4].revents != 0) throw_trouble();
  }

  /// A visitor has shown it at this rank's own meeting point. The ranks of this meeting hear why.
  void throw_trouble() {
    const auto trouble = reunion_->trouble();
    if (!trouble) return;
    try {
      report(*trouble);
    } catch (const Error& error) {  // its first rank is gone
      log().debug("{}", error.what());
    }
    throw Error(*trouble);
  }

  void ask_parent() {
    switch (parent_->step(Clock::now())) {
      case RendezvousParent::State::under_way:
        return;
      case RendezvousParent::State::whole:
        take(parent_->take_roster());
        break;
      case RendezvousParent::State::failed:
        report(parent_->trouble(me_));
        break;
    }
    parent_.reset();
  }

  void hear_server() {
    while (!met_) {
      if (from_server_) {
        const ReadResult result = read_more(socket_, bytes_, received_);
        if (result == ReadResult::more) return;
        if (result == ReadResult::closed) check(IoResult::closed);
        from_server_ = false;
        take(std::move(bytes_));
        continue;
      }
      switch (reader_.read(socket_, session_)) {
        case wire::FrameResult::more:
          return;
        case wire::FrameResult::closed:
          check(IoResult::closed);
          break;
        case wire::FrameResult::wrong:
          garbled();
        case wire::FrameResult::whole:
          hear_frame();
          break;
      }
    }
  }

  void hear_frame() {
    if (reader_.type() == wire::FrameType::failed) {
      const auto failure = wire::failure_in(reader_.payload(), wire::kMaxRanks);
      if (!failure) garbled();
      throw Error(*failure);
    }
    if (reader_.type() == wire::FrameType::placement && !placement_) {
      placement_ = reader_.payload_as<wire::Placement>();
      if (!placement_ || !wire::may_be_roster(placement_->roster_bytes, size_)) garbled();
      return find_parent();
    }
    if (reader_.type() != wire::FrameType::go || !roster_) garbled();
    met_ = true;
  }

  void find_parent() {
    const auto bytes = static_cast<std::size_t>(placement_->roster_bytes);
    const int parent = tree::parent(rank_, size_);
    if (parent == tree::kServer) {
      from_server_ = true;
      bytes_.resize(bytes);
      return;
    }
    const auto address = wire::address_of(placement_->parent);
    if (!address) garbled();
    const Deadline now = Clock::now();
    const Deadline patience =
        now + std::min<Clock::duration>(kParentPatience, (deadline_ - now) / 2);
    parent_.emplace(parent, *address, wire::tree_secret(ticket_.secret),
                    wire::Child{rank_, placement_->nonce}, bytes, patience);
    ask_parent();
  }

  /// The roster has come: passes it on, and tells the server.
  void take(std::vector<std::byte> bytes) {
    if (!wire::equal(wire::roster_hash(bytes), placement_->roster_hash)) {
      const int parent = tree::parent(rank_, size_);
      const std::string from =
          parent == tree::kServer ? "the server" : fmt::format("rank {}", parent);
      return report(
          Error(ErrorCode::system,
                fmt::format("{}: the ranks' cards were altered on their way from {}", who_, from),
                parent));
    }
    if (children_) {
      children_->give(std::make_shared<const std::vector<std::byte>>(bytes), placement_->nonce);
    }
    roster_ = Roster::from(std::move(bytes), size_);
    if (!roster_) garbled();
    roster_->session_secret = wire::session_secret(ticket_.secret, placement_->nonce);
    say(wire::frame(session_, wire::FrameType::have, {}));
  }

  /// The server tells it to everybody, this rank too.
  void report(const Error& error) {
    const std::uint64_t number = reunion_ == nullptr ? 0 : reunion_->about().number;
    say(wire::failure_frame(session_, wire::FrameType::trouble, error, number));
  }

  // --- errors ---

  void check(IoResult result) const {
    if (result == IoResult::timed_out) timed_out("the server stopped answering");
    if (result == IoResult::closed && reunion_ != nullptr) {
      throw_first_gone("it closed the connection before all ranks had met");
    }
    if (result == IoResult::closed) {
      throw Error(ErrorCode::system,
                  fmt::format("{}: the server at {} closed the connection before all ranks had "
                              "met: the process that made the unique id has ended",
                              who_, where_));
    }
  }

  [[noreturn]] void throw_first_gone(std::string_view why) const {
    throw Error(ErrorCode::peer_lost,
                fmt::format("rank 0 ({}), at which the ranks meet, is gone: {} ({})",
                            reunion_->list().front().process(), why, where_),
                0);
  }

  [[noreturn]] void garbled() const {
    throw Error(ErrorCode::system,
                fmt::format("{}: the answer from {} was altered on its way", who_, where_));
  }

  [[noreturn]] void timed_out(std::string_view what) const {
    if (reunion_ != nullptr) {
      throw Error(
          ErrorCode::timed_out,
          fmt::format("rank 0 ({}), at which the ranks meet, does not answer: {} ({}) before "
                      "the deadline",
                      reunion_->list().front().process(), what, where_),
          0);
    }
    throw Error(ErrorCode::timed_out,
                fmt::format("{}: {} ({}) before the deadline; is the process that made the unique "
                            "id alive, and its address reachable from here?",
                            who_, what, where_));
  }

  const wire::Ticket ticket_;
  const std::string where_;
  const std::string me_;
  const std::string who_;
  const Reunion* const reunion_;  // null: the ranks meet by a unique id
  const int rank_;
  const int size_;
  Deadline deadline_;

  FileDescriptor socket_;  // to the server
  wire::Session session_;
  Clock::duration pause_ = 2ms;
  Clock::time_point refused_since_{};
  Clock::time_point rejected_since_{};
  int rejections_ = 0;

  wire::FrameReader reader_;
  std::optional<wire::Placement> placement_;
  bool from_server_ = false;  // the server sends the roster next
  std::vector<std::byte> bytes_;
  std::size_t received_ = 0;
  std::optional<RendezvousParent> parent_;
  std::optional<RendezvousChildren> children_;
  std::optional<Roster> roster_;
  bool met_ = false;
};

}  // namespace

Roster rendezvous(const UniqueId& id, int rank, int size, std::span<const std::byte> mine,
                  std::chrono::nanoseconds timeout, const Reunion* reunion) {
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
  if (mine.size() > kMaxCardBytes) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rendezvous: the card of rank {} of {} has {} bytes, at most {} travel",
                            rank, size, mine.size(), kMaxCardBytes));
  }
  return Client(id, rank, size, deadline_after(timeout), reunion).meet(mine);
}

void refuse_rendezvous(const UniqueId& id, int rank, int size, const Error& why,
                       const Reunion* reunion) noexcept {
  try {
    Client(id, rank, size, deadline_after(kToRefuse), reunion).refuse(why);
  } catch (const std::exception& error) {  // they wait for this rank until their time is up
    log().debug("{}", error.what());
  }
}

}  // namespace tutti
