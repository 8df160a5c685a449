// A rank on another host, and the connection to it, which is made when either side first needs the
// other: one or more TCP streams. Notes go over `control`. It also tells at once when the peer's
// process is gone, and after TUTTI_PEER_TIMEOUT when its host is silent. Data go over a wire, which
// has the other streams, or ways of its own.
//
// Either side may dial, and both may at once: so the two connect even where connections get through
// in one direction alone. Each attempt lives and dies by itself; its side dials again when it has
// died. The rank with the lower identity uses the first attempt that has all its streams, and says
// so; the other rank uses the one that it is told (sockets/stream_candidate.h).
//
// This rank waits for a rank that answers late: the kernel of that rank's host accepts for it.
// Where nothing answers, this rank asks others to have the peer dial (Owner::on_unanswered()), and
// after TUTTI_PEER_TIMEOUT counts the peer as lost.
//
// Where there are several ways between the two hosts, the side that has dialled the connection
// dials one stripe more for each further way, once it is up, and does without those that do not
// work.
//
// The reactor's thread does all of it, except for the data: network.h says which threads move them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/network/peer_events.h"
#include "transport/network/ways.h"
#include "transport/network/wire.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/reactor.h"
#include "transport/sockets/stream.h"
#include "transport/sockets/stream_candidate.h"

namespace tutti {

class RemoteRank final : Reactor::Handler, Wire::Owner {
 public:
  static constexpr std::uint32_t kStreams = 3;
  /// kSecond carries the long messages of the rank with the higher identity (tcp/tcp_endpoint.h).
  static constexpr std::uint32_t kControl = 0, kData = 1, kSecond = 2;
  /// The stripes, in their order, follow.
  static constexpr std::uint32_t kMostStripes = Endpoint::kMostStripes;
  /// All sockets for data: every stream but `control`, and the stripes.
  static constexpr std::size_t kDataSockets = kStreams - 1 + kMostStripes;

  /// Hears what happens, from the reactor's thread or from the thread that drives the wire.
  class Owner : public PeerEvents {
   public:
    virtual void on_note(int member, std::uint64_t communicator, std::uint32_t type,
                         std::span<const std::byte> bytes) = 0;
    /// The rank is connected.
    virtual void on_connected() = 0;
    /// No dial reaches it so far, and it has not dialled. Now and then.
    virtual void on_unanswered(int member) = 0;
    /// A thread polls the wire, after the wire was told that the reactor listens.
    virtual void on_polled() = 0;
    /// Something has come over the wire, or what was left to be sent over it has gone.
    virtual void on_moved() = 0;
    /// Whether connections wait that this rank cannot accept now, for lack of descriptors.
    virtual bool cannot_accept() = 0;
  };

  struct Where {
    int member = -1;             // its number
    std::uint64_t identity = 0;  // what it is called by others
    protocol::Bytes32 key{};     // of its listener
    SocketAddress address;       // at which it listens
    SocketAddress from;          // ours, for connections to it
    std::vector<Way> more;       // the stripes'
  };
  /// `self`: this rank's identity.
  RemoteRank(Owner& owner, std::uint64_t self, Where where, Protection protection,
             std::uint32_t most_streams, const FileDescriptor& data_set,
             const Wire::MakeEndpoint& make_endpoint, std::mutex* wire_lock);
  ~RemoteRank();

  /// Begins to connect, unless it has.
  void connect();
  /// A connection that came, and has proved itself.
  void accept(FileDescriptor socket, const StreamHello& hello, const protocol::Session& session);
  /// Sends a note, when there is a connection.
  void tell(std::uint64_t communicator, std::uint32_t type, std::span<const std::byte> bytes);
  /// Whether a connection is about to come about: it has chosen one, or there are notes for it and
  /// its host does not turn connections away.
  bool is_to_be_awaited();
  Wire& wire() { return wire_; }
  /// Begins the end, which the owner drives from now on, not the reactor: says good-bye.
  void say_bye();
  /// Sends what is left; true: the peer's kernel has it all, or has hung up.
  bool is_delivered();
  /// Ends the connection, after is_delivered().
  void close();

  // Its sockets for data are in the owner's epoll set, as `member * kDataSockets + which`.
  /// There are `events` of socket `which`: drives the wire.
  void on_data(std::size_t which, std::uint32_t events);
  /// The epoll set now tells of room for unsent data, too. False: something has come already.
  bool prepare_to_sleep();
  void after_sleep();
  bool is_up() const { return state_.load(std::memory_order_acquire) == State::up; }
  /// Whether the peer has ended the connection, also where the reactor has not seen that yet.
  bool has_hung_up();
  bool is_gone() const { return state_.load(std::memory_order_acquire) == State::gone; }

 private:
  /// For the last data of a process that ended: the kernel still holds them.
  static constexpr std::chrono::milliseconds kLastData{500};

  enum class State : std::uint8_t { idle, connecting, up, gone };
  /// A connection that may come about: all of its streams, or none.
  struct Attempt {
    std::uint64_t number = 0;  // its dialler's
    std::array<StreamCandidate, kStreams> streams;
  };

  void on_events(int fd, std::uint32_t events) override;
  std::optional<Reactor::Time> on_tick(Reactor::Time now) override;
  bool on_exit() override;
  void on_left(std::uint64_t communicator) override;
  void on_closed(const std::string& why, bool refused_here) override;
  void on_polled() override;
  void on_moved() override { owner_.on_moved(); }

  // With mutex_ held:
  /// What is not under way.
  void dial();
  void drop(Attempt& attempt);
  void drop_streams();
  /// Nothing comes or goes any more.
  void cut();
  /// Something has come over a stream of it, or the stream has ended.
  void advance(Attempt& attempt, std::uint32_t stream);
  void has_failed(const StreamCandidate& dialled);
  /// Uses it, if it is the one.
  void settle(Attempt& attempt);
  void use(Attempt& attempt);
  /// The next one, by the next way that has not been tried.
  void dial_stripe();
  void drop_stripe(StreamCandidate& stripe);
  void advance_stripe(std::uint32_t stripe);
  /// Hands those to the wire that are there, in their order.
  void attach_stripes();
  bool chooses() const { return self_ < where_.identity; }
  bool is_ready(const Attempt& attempt) const;
  /// Whether the peer's host has let a stream of either attempt connect.
  bool is_answered() const;
  /// Dials again, or ends it. What on_tick() returns; `asks`: others are to be asked.
  Reactor::Time keep_dialling(Reactor::Time now, bool& asks);
  std::string why_unreached(std::chrono::duration<double> limit) const;

  /// On the control stream: so many bytes follow it.
  struct Frame {
    enum Kind : std::uint32_t {
      note = 1,   // for `communicator`, of type `type`
      bye = 2,    // nothing more will come at all; where that is no good end, why follows
      hello = 3,  // what the wire's endpoint says of itself
      ready = 4,  // the hello has come, and the wire may send
    };
    std::uint32_t kind = 0, type = 0;
    std::uint64_t communicator = 0;
    std::uint32_t bytes = 0, unused = 0;
  };
  static constexpr std::size_t kMostNote = std::size_t{64} << 10;
  static std::vector<std::byte> framed(Frame::Kind kind, std::uint32_t type,
                                       std::uint64_t communicator,
                                       std::span<const std::byte> bytes);
  void flush_notes();
  bool notes_are_out() const { return notes_.empty() && !streams_[kControl].has_unsent(); }

  void watch_data(std::size_t which, int fd);
  /// A socket for data that has ended is the end of the peer too, soon, whether the wire reads it
  /// or not: one for messages to the peer alone tells it nothing.
  void note_end_of_data(int fd);
  void listen_for_data(int operation, std::size_t which, std::uint32_t events);
  /// The streams that this network has; the first is `control`.
  std::uint32_t streams() const {
    return std::min(most_streams_, 1 + static_cast<std::uint32_t>(wire_.abilities().streams));
  }
  void read_control();
  void control_ended(int error);
  /// The peer is gone; the owner hears of it, once. Takes mutex_ itself, and reports without it.
  /// `may_live`: the peer is told why this rank hangs up.
  void end(Departure how, const std::string& why, bool may_live);
  std::string place() const;

  Owner& owner_;
  const std::uint64_t self_;
  const Where where_;
  const Protection protection_;
  const std::uint32_t most_streams_;
  const FileDescriptor& data_set_;
  Reactor& reactor_;
  std::atomic<State> state_{State::idle};
  Wire wire_;

  std::mutex mutex_;
  Attempt ours_, theirs_;
  std::array<Stream, kStreams> streams_;
  Reactor::Time dialled_{}, ticked_{}, asked_{};
  // For so long, as far as this process has run, no dial was answered, and this process had no
  // descriptor for the connection.
  std::chrono::nanoseconds unanswered_{}, lacking_{};
  std::string why_unanswered_;                // of the last dial that failed
  bool turned_away_ = false;                  // that dial was
  bool lacks_descriptors_ = false;            // this process did, for the last dial
  std::deque<std::vector<std::byte>> notes_;  // unsent
  std::size_t note_sent_ = 0;                 // bytes of the first
  std::vector<std::byte> heard_;              // of the control stream, up to a part of a frame
  bool heard_bye_ = false;
  std::atomic<bool> leaving_{false};    // nothing is the reactor's any more
  std::optional<Reactor::Time> ended_;  // the control stream has; data may still be on their way
  /// How it ended, as far as is known; the text continues a sentence about the peer.
  struct {
    Departure how = Departure::left;
    std::string why;
  } end_;
  std::array<int, kDataSockets> data_fds_;
  std::optional<Reactor::Time> data_ended_;  // one of these has
  // Of the connection that is used.
  std::array<StreamCandidate, kMostStripes> stripes_;
  std::uint32_t attached_ = 0;  // of the stripes
  std::size_t next_way_ = 0;    // for one
  std::uint64_t number_used_ = 0;
  bool dialled_it_ = false;
  std::atomic<bool> wants_room_{false};  // data_set_ tells of room
  // The wire's word, which it gives with its own lock held.
  std::atomic<bool> wire_closed_{false};
  std::mutex wire_mutex_;
  std::string why_wire_closed_;
  bool wire_refused_here_ = false;
  Reactor::Time wire_closed_at_{};
};

}  // namespace tutti
