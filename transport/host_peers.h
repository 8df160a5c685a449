// The ranks that this one has met, on whatever host, and the unix sockets to those of its own host:
// these carry memfds (segments and windows) and tell when a peer is gone, to whoever asks
// (ending_peers()). Ranks that are threads of one process need neither and have no socket.
//
// Ranks meet at the start of a job, and again whenever a communicator gains ranks. Each peer has a
// number, which is this rank's own for it: numbers only grow, and of the ranks of the first meeting
// they are the ranks. What travels to others names a rank by its identity.
//
// Addresses are abstract (no file) and unguessable, the user id of both ends is checked, and both
// prove that they know the session's secret before they are believed (host_peers_meeting.cpp).
//
// Nobody waits for a peer to take what is sent: it may be busy with something else for hours. What
// a full socket does not take stays here, and is sent on by whatever this rank does with its peers
// next; every wait looks in now and then. A window that is freed before a peer was told of it is
// never spoken of.
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

#include "core/window_memory.h"
#include "transport/shared_memory.h"
#include "transport/socket.h"

namespace tutti {

/// How others reach a rank; plain bytes, handed round whenever ranks meet.
struct HostPeerAddress {
  std::array<std::uint64_t, 2> host{};     // the same on ranks that can share memory
  std::array<std::uint64_t, 2> process{};  // the same on ranks that are threads of one process
  std::array<std::uint64_t, 2> socket{};   // the abstract socket's random name, of this meeting
  std::uint64_t identity = 0;              // the rank's own, as long as it lives; never 0
  std::uint64_t key = 0;                   // of its segment in the communicator that comes of it
  std::uint64_t probe = 0;                 // address of a word that holds `identity`: cma_probe()
  std::int32_t pid = 0;
  std::array<char, 64> host_name{};  // for messages
};

/// The address of the socket with this name.
SocketAddress socket_address(const std::array<std::uint64_t, 2>& name);

/// What does not change about a rank that this one has met.
struct HostPeer {
  std::uint64_t identity = 0;
  int host = 0;      // equal numbers: the same host
  int job_rank = 0;  // its rank among those that this rank met first; -1: it came later
  pid_t pid = 0;
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
  /// Where ranks meet: connects to the ranks of this host among `peers` (by rank, this one
  /// included) that it does not know yet. Collective over `peers`. Lets go of peers that no
  /// communicator holds any more and that are not among these. `is_lost`: whether a peer of another
  /// host cannot be reached any more, and so begins anew. Returns the peers' numbers, by rank.
  /// Throws Error: system when a peer cannot be reached, timed_out at the deadline; then it knows
  /// those that it knew before.
  std::vector<int> meet(int rank, std::span<const HostPeerAddress> peers,
                        std::span<const std::byte, 32> session_secret, Deadline deadline,
                        const std::function<bool(int)>& is_lost = {});

  /// Numbers that a communicator has. Until it lets go of them, meet() does not.
  void hold(std::span<const int> peers);
  void let_go(std::span<const int> peers) noexcept;

  std::shared_ptr<const HostPeer> peer(int number) const;
  /// Whether this process may read that rank's plain memory.
  bool cma_works(int peer) const;

  /// Shares `memory` with `peer` under `key`; the peer fetches it with receive().
  void send(int peer, std::uint64_t key, const std::shared_ptr<SharedMemory>& memory);
  std::shared_ptr<SharedMemory> receive(int peer, std::uint64_t key, std::size_t bytes,
                                        Deadline deadline);

  /// The same for any descriptor, between processes; the sender keeps its own.
  void send(int peer, std::uint64_t key, const FileDescriptor& descriptor);
  FileDescriptor receive(int peer, std::uint64_t key, Deadline deadline);

  /// Tells `peers` that this rank will not join communicator `id`, because peer `because_of` is
  /// gone (-1: for other reasons), so that they do not wait for its memory.
  void refuse(std::uint64_t id, int because_of, std::span<const int> peers);
  /// The same to all peers, where the ranks have not met (meet()): who calls at listen()'s address
  /// is turned away. `because_of`: the identity of the rank that is gone (0: other reasons).
  void give_up(std::uint64_t id, std::uint64_t because_of);
  /// The peer because of which `peer` has (-1: for other reasons, or one that is not known here);
  /// none where it has not, or where that has not come yet.
  std::optional<int> refusal(int peer, std::uint64_t id);

  /// Lets go of what `peer` has sent under `key`, if it was never received.
  void forget(int peer, std::uint64_t key);

  /// Makes `window` known to `peers`, once, before its id is used in a message to them. They are
  /// told when it is freed, too.
  void announce(const WindowMemory& window, std::span<const int> peers);
  /// This process's mapping of window `id` of rank `peer`, which a message has named; null as long
  /// as it has not come. It stays mapped as long as it is held, because a peer whose call has
  /// failed may free its memory while others still read that: they find zeros there as soon as this
  /// rank hears of it, on whatever thread.
  std::shared_ptr<SharedMemory> find_window(int peer, std::uint32_t id);
  /// Why a window that has come cannot be had; "": it has not come, or can be had.
  std::string window_trouble(int peer, std::uint32_t id);
  /// Takes in what peers have sent, and sends on what they did not take, without waiting.
  void drain();

  /// The peers whose process is gone. One system call, however many there are.
  std::vector<int> dead_peers();
  /// These, and the peers whose process is ending, or has left for good: they make no more calls,
  /// but what they have mapped may still be so.
  std::vector<int> ending_peers();

 private:
  // What is said after the greeting; it may carry one file descriptor.
  struct Message {
    enum Type : std::uint32_t { segment = 1, window = 2, freed = 3, refused = 4 };
    std::uint32_t type = 0;
    std::uint32_t window_id = 0;
    std::uint64_t key = 0;  // of refused: which communicator
    std::uint64_t bytes = 0;
    std::uint64_t because_of = 0;  // of refused: an identity
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
  struct Peer {
    std::shared_ptr<const HostPeer> who;
    int held = 0;  // by so many communicators
    FileDescriptor socket;
    FileDescriptor process;  // a pidfd: readable when the process ends; unlike the socket it is not
                             // kept open by forks
    bool closed = false;
    std::uint64_t probe = 0;
    // What has come. An empty descriptor: this process had no room for it.
    std::unordered_map<std::uint64_t, FileDescriptor> segments;
    std::unordered_map<std::uint32_t, Window> windows;
    std::unordered_map<std::uint64_t, std::uint64_t> refused;  // by communicator: because_of
    std::deque<Unsent> unsent;
  };

  std::vector<int> peers_that_are(bool ending);
  class Meeting;
  /// Gets a socket to each of `others` (ranks, in order), which do the same. By rank.
  std::map<int, FileDescriptor> get_sockets(int rank, std::span<const int> others,
                                            std::span<const HostPeerAddress> addresses,
                                            std::span<const std::byte, 32> session_secret,
                                            Deadline deadline);
  // With mutex_ held:
  Peer& at(int peer) { return peers_.at(peer); }
  /// The peer with this identity; -1: none.
  int number_of(std::uint64_t identity) const;
  /// Whether what was agreed with it still stands.
  bool is_known(int peer, const HostPeerAddress& address,
                const std::function<bool(int)>& is_lost) const;
  int add(const HostPeerAddress& address, int job_rank, FileDescriptor socket);
  void drop(int number);
  /// That this rank will not join communicator `id`, because of the rank `because_of` (0: none).
  void note_refusal(std::uint64_t id, std::uint64_t because_of);
  void post_refusal(Peer& peer, std::uint64_t id, std::uint64_t because_of);
  /// Sends `message` now, or keeps it until the socket has room.
  void post(Peer& peer, const Message& message, int fd);
  /// False: the socket is full.
  bool try_to_post(Peer& peer, const Message& message, int fd);
  void post_unsent(Peer& peer);
  /// What has come from `peer` under `key`; none yet: an empty one.
  FileDescriptor find_descriptor(int peer, std::uint64_t key);
  /// Reads one message; false when there is none (or the peer has closed).
  bool take(Peer& peer);
  void take_all(Peer& peer);
  void close(Peer& peer);
  void keep(Peer& peer, const Message& message, FileDescriptor fd);
  void post_all_unsent();
  void window_freed(std::uint32_t id) noexcept override;

  HostPeerAddress address_;
  FileDescriptor listener_;  // while ranks meet
  int number_ = -1;
  int next_number_ = 0;
  mutable std::mutex mutex_;
  std::unordered_map<int, Peer> peers_;                // by number
  std::set<Peer*> behind_;                             // that have something unsent
  std::unordered_map<std::uint64_t, int> numbers_;     // by identity: the newest one
  std::map<std::array<std::uint64_t, 2>, int> hosts_;  // their numbers
  std::atomic<std::size_t> sockets_{0};
  // epoll, once there are sockets: those on which something comes; the processes and sockets that
  // may end.
  FileDescriptor incoming_, ends_;
  std::uint64_t probe_word_ = 0;
  std::uint32_t generation_;  // of the process that made it
  // By window of this process: which peers have been told of it.
  std::unordered_map<std::uint32_t, std::set<int>> told_;
};

/// Registers memory for other ranks of this process, for as long as it lives.
void share_within_process(std::uint64_t key, const std::shared_ptr<SharedMemory>& memory);

}  // namespace tutti
