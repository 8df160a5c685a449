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
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_children.h"
#include "bootstrap/rendezvous_connection.h"
#include "bootstrap/rendezvous_parent.h"
#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_tree.h"
#include "core/background.h"
#include "core/error.h"
#include "core/log.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kGrace = 1s;            // beyond the deadline, for the server to say who is missing
constexpr auto kParentPatience = 20s;  // for another rank to prove itself; or half of what is left
constexpr auto kToRefuse = 2s;         // to say why this rank does not come

class Client {
 public:
  Client(const UniqueId& id, int rank, int size, Deadline deadline, const Reunion* reunion)
      : ticket_(protocol::decode(id)),
        me_(fmt::format("rank {} of {}", rank, size)),
        who_("rendezvous: " + me_),
        reunion_(reunion),
        rank_(rank),
        size_(size),
        deadline_(deadline),
        server_(ticket_, who_, reunion) {}

  Roster meet(std::span<const std::byte> mine) {
    server_.open(deadline_);
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
    server_.open(deadline_);
    report(Error(why.code(), fmt::format("{} cannot join: {}", me_, why.what()), rank_));
  }

 private:
  void send_hello(std::span<const std::byte> mine) {
    protocol::Hello hello;
    hello.rank = rank_;
    hello.size = size_;
    hello.patience_ms = milliseconds_until(deadline_);
    if (reunion_ != nullptr) hello.about = reunion_->about();
    if (tree::has_children(rank_, size_)) {
      children_.emplace(rank_, size_, protocol::tree_secret(ticket_.secret), server_.socket());
      hello.listens = children_->endpoint();
    }
    say(protocol::frame(server_.session(), protocol::FrameType::hello,
                        {protocol::bytes_of(hello), mine}));
  }

  void say(const protocol::Buffer& frame) { server_.say(frame, deadline_); }

  // --- the roster's way ---

  void wait() {
    const Deadline now = Clock::now();
    if (now >= deadline_) server_.throw_timed_out("the server stopped answering");
    Deadline wake = deadline_;
    if (children_) wake = std::min(wake, children_->next_wake(now));
    if (parent_) wake = std::min(wake, parent_->next_wake());
    std::array<pollfd, 5> entries{{{server_.socket().fd(), POLLIN, 0},
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
        const ReadResult result = read_more(server_.socket(), bytes_, received_);
        if (result == ReadResult::more) return;
        if (result == ReadResult::closed) server_.check(IoResult::closed);
        from_server_ = false;
        take(std::move(bytes_));
        continue;
      }
      switch (reader_.read(server_.socket(), server_.session())) {
        case protocol::FrameResult::more:
          return;
        case protocol::FrameResult::closed:
          server_.check(IoResult::closed);
          break;
        case protocol::FrameResult::wrong:
          server_.throw_garbled();
        case protocol::FrameResult::whole:
          hear_frame();
          break;
      }
    }
  }

  void hear_frame() {
    if (reader_.type() == protocol::FrameType::failed) {
      const auto failure = protocol::failure_in(reader_.payload(), protocol::kMaxRanks);
      if (!failure) server_.throw_garbled();
      throw Error(*failure);
    }
    if (reader_.type() == protocol::FrameType::placement && !placement_) {
      placement_ = reader_.payload_as<protocol::Placement>();
      if (!placement_ || !protocol::may_be_roster(placement_->roster_bytes, size_))
        server_.throw_garbled();
      return find_parent();
    }
    if (reader_.type() != protocol::FrameType::go || !roster_) server_.throw_garbled();
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
    const auto address = protocol::address_of(placement_->parent);
    if (!address) server_.throw_garbled();
    const Deadline now = Clock::now();
    const Deadline patience =
        now + std::min<Clock::duration>(kParentPatience, (deadline_ - now) / 2);
    parent_.emplace(parent, *address, protocol::tree_secret(ticket_.secret),
                    protocol::Child{rank_, placement_->nonce}, bytes, patience);
    ask_parent();
  }

  /// The roster has come: passes it on, and tells the server.
  void take(std::vector<std::byte> bytes) {
    if (!protocol::equal(protocol::roster_hash(bytes), placement_->roster_hash)) {
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
    if (!roster_) server_.throw_garbled();
    roster_->session_secret = protocol::session_secret(ticket_.secret, placement_->nonce);
    say(protocol::frame(server_.session(), protocol::FrameType::have, {}));
  }

  /// The server tells it to everybody, this rank too.
  void report(const Error& error) {
    const std::uint64_t number = reunion_ == nullptr ? 0 : reunion_->about().number;
    say(protocol::failure_frame(server_.session(), protocol::FrameType::trouble, error, number));
  }

  const protocol::Ticket ticket_;
  const std::string me_;
  const std::string who_;
  const Reunion* const reunion_;  // null: the ranks meet by a unique id
  const int rank_;
  const int size_;
  Deadline deadline_;

  RendezvousConnection server_;
  protocol::FrameReader reader_;
  std::optional<protocol::Placement> placement_;
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
  if (size < 1 || size > protocol::kMaxRanks || rank < 0 || rank >= size) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rendezvous: there is no rank {} of {}: ranks count from 0 to size - 1 "
                            "(at most {} ranks)",
                            rank, size, protocol::kMaxRanks));
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
