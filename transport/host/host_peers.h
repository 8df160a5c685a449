// The ranks that this one has met, on whatever host, and the unix sockets to those of its own host.
// Sockets carry descriptors: of memory that ranks share (segments, windows), and of GPU memory. A
// rank makes a socket to another one when it first has something to send there, so a rank of many
// has few. Ranks that are threads of one process need none.
//
// Ranks meet at the start of a job, and again whenever a communicator gains ranks. Each peer has a
// number, which is this rank's own for it and only grows. What travels to others names a rank by
// its identity. The ranks of a host that meet share a board (host_board.h), which says who is gone.
//
// **What two ranks know of each other** they agree on by two things, each with one writer at a
// time:
// - A rank has met another one in a meeting if it holds its word on that meeting's board (Life).
//   Ranks whose meeting fails shut out those that do not hold theirs yet; one that was shut out has
//   not met. So both go by the same meeting afterwards: the newest in which both were.
// - What a rank has told another one holds as long as the socket over which it was told. Where that
//   has ended, or may not have been heard out, the one tells all again over a new one, and the
//   other forgets what came over the old one.
// A rank keeps its number, whatever fails.
//
// A socket carries data one way. The sender connects to the receiver's listener, whose address is
// abstract (no file) and unguessable, and sends its identity right behind the connection, so it
// never waits (host_peers_calls.cpp). The receiver believes no caller that does not know the
// meeting's secret.
//
// A sender never waits for a peer to take a message. What a full socket does not take stays here,
// for the next call that deals with peers; every wait makes such a call now and then. A peer never
// hears of a window that is freed before the peer was told of it.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/window_memory.h"
#include "transport/host/host_board.h"
#include "transport/host/life_word.h"
#include "transport/host/shared_memory.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// How others reach a rank; plain bytes, handed round whenever ranks meet.
struct HostPeerAddress {
  std::array<std::uint64_t, 2> host{};     // the same on ranks that can share memory
  std::array<std::uint64_t, 2> process{};  // the same on ranks that are threads of one process
  std::array<std::uint64_t, 2> socket{};   // the abstract socket's random name, of this meeting
  std::uint64_t identity = 0;              // the rank's own, as long as it lives; never 0
  std::uint64_t key = 0;                   // of its segment in the communicator that comes of it
  std::uint64_t probe = 0;                 // address of a word that holds `identity`: cma_probe()
  std::uint64_t pids = 0;                  // the same where process ids are (pid namespace)
  std::uint64_t started = 0;               // when the process did: tells it from others of its id
  std::uint64_t users = 0;                 // the same where users are (user namespace)
  std::int32_t pid = 0;                    // as the process itself sees it
  std::uint32_t user = 0;                  // the same
  std::array<char, 64> host_name{};        // for messages
};

/// The address of the socket with this name.
SocketAddress socket_address(const std::array<std::uint64_t, 2>& name);

/// Whether process `pid`, which began at `started` (HostPeerAddress), has ended.
bool process_has_ended(pid_t pid, std::uint64_t started);

/// What does not change about a rank that this one has met.
struct HostPeer {
  std::uint64_t identity = 0;
  int host = 0;      // equal numbers: the same host
  int job_rank = 0;  // its rank among those that this rank met first; -1: it came later
  pid_t pid = 0;     // 0: its process is not visible here
  bool same_process = false;
  std::string host_name;
};

class HostPeers : WindowObserver {
 public:
  /// `host_id` tells hosts apart that have more in common than they share.
  explicit HostPeers(std::string_view host_id = {});
  HostPeers(const HostPeers&) = delete;
  HostPeers& operator=(const HostPeers&) = delete;
  ~HostPeers();

  std::uint64_t identity() const { return address_.identity; }
  /// The process that made it.
  pid_t own_pid() const { return address_.pid; }
  /// Opens a listener for the next meeting, and says where it is.
  HostPeerAddress listen();
  /// Where ranks meet: gets to know `peers` (by rank, this one included), and shares a board with
  /// those of this host. Collective over `peers`, for communicator `id`. Lets go of peers that no
  /// communicator holds any more and that are not among these. `is_lost`: whether a peer of another
  /// host cannot be reached any more, and so begins anew. Returns the peers' numbers, by rank.
  /// Throws Error, which names one of `peers`: peer_lost when the peer that was to hand the board
  /// on is gone, or when others have given up before this rank had met them (give_up()), timed_out
  /// at the deadline; then it knows those that it knew before, and give_up() is to follow.
  std::vector<int> meet(int rank, std::span<const HostPeerAddress> peers, std::uint64_t id,
                        std::span<const std::byte, 32> session_secret, Deadline deadline,
                        const std::function<bool(int)>& is_lost = {});

  /// Numbers that a communicator has. Until it lets go of them, meet() does not.
  void hold(std::span<const int> peers);
  void let_go(std::span<const int> peers) noexcept;

  std::shared_ptr<const HostPeer> peer(int number) const;
  /// Whether this process may read that rank's plain memory.
  bool cma_works(int peer) const;

  /// Shares `memory` with `peer` under `key`; the peer fetches it with receive(), whose errors name
  /// it by its number (Members::receive(): by its rank).
  void send(int peer, std::uint64_t key, const std::shared_ptr<SharedMemory>& memory);
  std::shared_ptr<SharedMemory> receive(int peer, std::uint64_t key, std::size_t bytes,
                                        Deadline deadline) {
    return receive(peer, key, bytes, 0, deadline);
  }

  /// Memory for the ranks `here` of this host (in the same order on all of them), by `key`: the
  /// first of them shares it, and each rank hands it on to others, along a tree. pass_from(): the
  /// rank that gives it to this one; -1: none, this rank is the first.
  int pass_from(std::span<const int> here) const;
  void pass_on(std::span<const int> here, std::uint64_t key,
               const std::shared_ptr<SharedMemory>& memory);
  /// `mapped`: so much of it (SharedMemory::map()).
  std::shared_ptr<SharedMemory> receive(int peer, std::uint64_t key, std::size_t bytes,
                                        std::size_t mapped, Deadline deadline);

  /// Sends any descriptor, between processes; the sender keeps its own. receive() is its end.
  void send(int peer, std::uint64_t key, const FileDescriptor& descriptor);
  FileDescriptor receive(int peer, std::uint64_t key, Deadline deadline);

  /// Tells the peers of this host that this rank will not join communicator `id`, because peer
  /// `because_of` is gone (-1: for other reasons), so that they do not wait for it.
  void refuse(std::uint64_t id, int because_of);
  /// Tells so the peers of the newest meeting, whose communicator does not come about. Where they
  /// have not met (meet()), callers at listen()'s address are turned away. Those that have not met
  /// this rank yet never will: both go back to what they shared before. `because_of`: the identity
  /// of the rank that is gone (0: other reasons).
  void give_up(std::uint64_t id, std::uint64_t because_of);
  /// The peer because of which `peer` has (-1: for other reasons, or one that is not known here);
  /// none where it has not, or where that has not come yet.
  std::optional<int> refusal(int peer, std::uint64_t id);
  /// Whether any peer of this host has refused any communicator.
  bool has_refusals();

  /// Makes `window` known to `peers`, once, before its id is used in a message to them. They are
  /// told when it is freed, too.
  void announce(const WindowMemory& window, std::span<const int> peers);
  /// This process's mapping of window `id` of rank `peer`, which a message has named; null as long
  /// as it has not come. It stays mapped as long as it is held, because a peer whose call has
  /// failed may free its memory while others still read it. They find zeros there as soon as a
  /// thread of this rank hears of it.
  std::shared_ptr<SharedMemory> find_window(int peer, std::uint32_t id);
  /// Why a window cannot be had; "": it has not come yet, or can be had.
  std::string window_trouble(int peer, std::uint32_t id);
  /// Takes in what peers have sent, and sends on what they did not take, without waiting.
  void drain();

  /// The peers, in other processes of this host, whose process is gone.
  std::vector<int> dead_peers();
  /// These, and the peers whose process is ending, or has left for good: they make no more calls,
  /// but what they have mapped may still be so. Reads memory alone.
  std::vector<int> ending_peers();

 private:
  // How a call begins: the caller's identity, the number of the call among all of the caller's, and
  // the proof that it knows the meeting's secret.
  struct Hello {
    std::uint64_t identity = 0;
    std::uint64_t number = 0;
    protocol::Bytes32 mac{};
  };
  // What the caller sends next; it may carry one file descriptor.
  struct Message {
    enum Type : std::uint32_t { segment = 1, window = 2, freed = 3 };
    std::uint32_t type = 0;
    std::uint32_t window_id = 0;
    std::uint64_t key = 0;
    std::uint64_t bytes = 0;
  };
  struct Unsent {
    Message message;
    int fd;               // a window's own, which is open until window_freed(), or
    FileDescriptor copy;  // of another one
  };
  struct Window {
    std::shared_ptr<SharedMemory> memory;
    std::string trouble;  // why there is none
  };
  /// What this rank shares with those of its host that it has met in one meeting.
  struct Meeting {
    std::array<std::uint64_t, 2> name{};  // of the listener
    FileDescriptor listener;
    protocol::Bytes32 secret{};
    std::optional<HostBoard> board;
    int place = -1;  // of this rank on it
    std::optional<Life> life;
  };
  /// A window of this process.
  struct Told {
    std::size_t bytes = 0;
    int fd = -1;  // its own, which is open until window_freed()
  };
  /// What is exchanged with a peer, once something is.
  struct Exchange {
    FileDescriptor out, in;                    // what this rank says, and what the peer says
    bool out_ended = false, in_ended = false;  // by the peer
    std::array<std::uint64_t, 2> called{};     // the listener at which `out` was made
    std::uint64_t in_number = 0;               // of the peer's newest call
    std::map<std::uint32_t, Told> told;        // windows of which the peer is to know
    // What has come. An empty descriptor: this process had no room for it.
    std::unordered_map<std::uint64_t, FileDescriptor> segments;
    std::unordered_map<std::uint32_t, Window> windows;
    std::deque<Unsent> unsent;
  };
  /// A peer in a meeting: how it is called, and its place on the board, once that is there.
  struct Seat {
    std::shared_ptr<Meeting> meeting;
    std::array<std::uint64_t, 2> socket{};
    int place = -1;

    const HostBoard* board() const {
      return meeting && meeting->board ? &*meeting->board : nullptr;
    }
    LifeWord::State state() const {
      return board() != nullptr ? board()->life(place).state() : LifeWord::State::unborn;
    }
  };
  struct Peer {
    std::shared_ptr<const HostPeer> who;
    int held = 0;       // by so many communicators
    bool here = false;  // on this host
    // In the newest meeting with it; and in the one before, where that is not settled yet.
    Seat now, before;
    bool has_ended = false;  // its process, though its word does not say so
    std::optional<std::chrono::steady_clock::time_point> refused_since;  // connections; refusal()
    std::uint64_t probe = 0, started = 0;
    std::unique_ptr<Exchange> exchange;

    bool in_another_process() const { return here && !who->same_process; }
    /// As its newest word says. One that it does not hold says nothing; then the word before
    /// tells of its death (and no more: a rank that has left that meeting may be on its way here).
    LifeWord::State state() const {
      const auto newest = now.state();
      if (newest > LifeWord::State::absent) return newest;
      return before.state() == LifeWord::State::ended ? LifeWord::State::ended : newest;
    }
    /// Whether the peer has left or ended, as far as this rank can know.
    bool is_gone() const { return has_ended || tutti::is_gone(state()); }
  };
  /// A process that has called, and has not named itself yet, or is not known yet.
  struct Caller {
    FileDescriptor socket;
    std::shared_ptr<Meeting> meeting;
    std::chrono::steady_clock::time_point since;
    std::optional<Hello> hello;  // of a rank that is not known yet
  };

  // With mutex_ held:
  Peer& at(int peer) { return peers_.at(peer); }
  /// The peer with this identity; -1: none.
  int number_of(std::uint64_t identity) const;
  /// The first part of meet(), and what undoes it. By rank: `numbers`; those of this host, and
  /// those that are new: `here`, `added`.
  void take_seats(int rank, std::span<const HostPeerAddress> peers,
                  const std::function<bool(int)>& is_lost, std::vector<int>& numbers,
                  std::vector<int>& here, std::vector<int>& added);
  void undo(std::span<const int> here, std::span<const int> added);
  int add(const HostPeerAddress& address, int job_rank);
  void drop(int number);
  /// The peer has come to a meeting, so it lives.
  void renew(Peer& peer);
  /// Goes by the meeting before again, as the newest one was not held with `peer`.
  void go_back(Peer& peer);
  /// Shuts those out that have not come to the newest meeting.
  void settle();
  /// Lets go of the meetings by which this rank goes with nobody any more.
  void retire_meetings();
  /// On the boards of all meetings.
  void note_refusal(std::uint64_t id, std::uint64_t because_of);
  void find_neighbours();
  Exchange& exchange_with(Peer& peer);
  /// Lets go of what is exchanged with it.
  void hang_up(Peer& peer);
  /// What it was told it may not have heard: it is called anew, and told again.
  void tell_again(Peer& peer);
  /// Calls `peer`; false: it cannot be called now.
  bool call(Peer& peer);
  void listen_for(const Meeting& meeting);
  /// Takes in new callers, and what has come.
  void serve();
  void accept_callers(const std::shared_ptr<Meeting>& meeting);
  /// Takes in those that have called, and then no more. False: it has no descriptors for them now.
  bool close_listener(const std::shared_ptr<Meeting>& meeting);
  /// False: it has not named itself yet, or is not known yet.
  bool admit(Caller& caller);
  /// Sends `message` now, or keeps it until the socket has room.
  void post(Peer& peer, const Message& message, int fd);
  /// False: the socket is full.
  bool try_to_post(Peer& peer, const Message& message, int fd);
  void post_unsent(Peer& peer);
  /// What has come from `peer` under `key`; none yet: an empty one.
  FileDescriptor find_descriptor(int peer, std::uint64_t key);
  /// Reads one message; false when there is none (or the peer has closed).
  bool take(Exchange& exchange);
  void take_all(Peer& peer);
  void keep(Exchange& exchange, const Message& message, FileDescriptor fd);
  void post_all_unsent();
  void window_freed(std::uint32_t id) noexcept override;
  std::vector<int> peers_that_are(bool ending);

  /// The board of `meeting`, whose ranks of this host are `here`. When it returns, this rank has
  /// met them.
  void share_board(Meeting& meeting, std::span<const int> here, std::uint64_t key, std::uint64_t id,
                   Deadline deadline);
  /// Others have given up on communicator `id`, and shut this rank out of its meeting.
  [[noreturn]] void throw_shut_out(const HostBoard& board, std::size_t places, std::uint64_t id);
  /// Throws where the rank that is to pass the board on is gone, or one before it.
  /// `refused_since`: the first of these has refused connections; max: it does not.
  void look_at_givers(std::span<const int> here,
                      std::chrono::steady_clock::time_point& refused_since);

  HostPeerAddress address_;
  std::shared_ptr<Meeting> meeting_;  // the one to come, or that has failed here
  int number_ = -1;
  int next_number_ = 0;
  std::uint64_t calls_ = 0;  // that this rank has made
  mutable std::mutex mutex_;
  std::unordered_map<int, Peer> peers_;                // by number
  std::set<Peer*> behind_;                             // that have something unsent
  std::unordered_map<std::uint64_t, int> numbers_;     // by identity: the newest one
  std::map<std::array<std::uint64_t, 2>, int> hosts_;  // their numbers
  std::vector<std::shared_ptr<Meeting>> meetings_;     // by which this rank goes with somebody
  std::vector<std::pair<int, Peer*>> neighbours_;  // the peers of other processes here, by number
  std::deque<Caller> callers_;
  bool lacks_descriptors_ = false;  // for one that calls
  std::int64_t refused_user_ = -1;  // whose call was refused last; -1: nobody's
  std::size_t next_look_ = 0;       // at which neighbour: see peers_that_are()
  // epoll, once there are other processes: listeners, and sockets on which something comes.
  FileDescriptor incoming_;
  std::atomic<bool> has_neighbours_{false};  // there are
  std::uint64_t probe_word_ = 0;
  std::uint32_t generation_;  // of the process that made it
};

/// Throws `error` of HostPeers, which names a peer, as rank `rank` says it; `named`: the peer's
/// rank, -1: it has none.
[[noreturn]] void throw_with_ranks(const Error& error, int rank, int named);

/// Registers memory for other ranks of this process, for as long as it lives.
void share_within_process(std::uint64_t key, const std::shared_ptr<SharedMemory>& memory);

}  // namespace tutti
