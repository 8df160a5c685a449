// This rank's way to the ranks on other hosts: a listener, and a RemoteRank for each of those that
// it has anything to do with. Communicators send notes to each other through it and have their
// links made. Peers are known by this rank's own numbers for them (host/host_peers.h); what travels
// names a rank by its identity.
//
// The data sockets of all peers are in one epoll set of this rank as soon as they are connected.
// Several threads move the data:
// - A thread of this rank that waits polls the wires that it waits for, and takes in what the set
//   reports for the others. When it sleeps, it sleeps on the set.
// - Another thread that moves something meanwhile, or fails, rings the doorbell in the set. A
//   thread looks once more after it has said that it sleeps, so none sleeps while there is
//   something for it.
// - A rank of this host that has something for such a thread cannot wake it. So where there are
//   others, a thread that has waited for 10 ms sleeps on its doorbell, and the reactor listens.
// - When no thread has polled for 10 ms and none sleeps, the reactor listens to the set: so a
// message
//   to a rank that computes does not get stuck. Every 10 ms it sends what no thread waits to send.
//
// A rank that no dial reaches may still be able to dial. So this rank asks it to, through ranks
// that are connected (network_requests.cpp).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/network/peer_events.h"
#include "transport/network/remote_rank.h"
#include "transport/network/wire_choice.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {

/// Where a rank listens; plain bytes, handed round at the rendezvous.
struct NetworkAddress {
  std::array<std::byte, 28> socket{};  // sockaddr_in or sockaddr_in6
  std::uint32_t length = 0;            // of it; 0: nowhere
  WireOffer wires;
  FurtherWays further;
  std::uint32_t protection = 0;  // that it asks for (Protection)

  static NetworkAddress of(const SocketAddress& address);
  /// Nothing for what is no such address.
  std::optional<SocketAddress> get() const;
};

class Network final : Reactor::Handler, RemoteRank::Owner {
 public:
  /// A communicator that hears what is said to it. Called from any thread, also from within
  /// join(), but from one at a time (peer_events.h).
  class Listener : public PeerEvents {
   public:
    /// Whether rank `member` of the job is in it. From any thread.
    virtual bool has(int member) const = 0;
    virtual void on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) = 0;
    /// Rank `member` has not joined it and never will, because rank `because_of` of the job is gone
    /// (-1: for other reasons).
    virtual void on_refused(int member, int because_of) = 0;
  };
  struct Note {
    std::uint32_t type;
    std::vector<std::byte> bytes;
  };

  /// Listens at `local`, and at further addresses of `interfaces` (ways.h), at any port, as
  /// `identity`. `nearest`: asked where there are several ports to choose from. Throws
  /// Error(system).
  Network(const SocketAddress& local, const std::string& interfaces, std::uint64_t identity,
          const NearestPorts& nearest);
  /// Says good-bye to all.
  ~Network();

  NetworkAddress address() const;
  /// Throws Error where it cannot do as TUTTI_TRANSPORT asks.
  void check() const;
  /// A process with this key may connect to this rank.
  const protocol::Bytes32& key() const { return key_; }
  struct Peer {
    NetworkAddress address;
    std::uint64_t identity = 0;
    protocol::Bytes32 key{};
    int rank = 0;       // where they met
    bool here = false;  // on this host, which has better ways: for requests alone
  };
  /// Ranks have met: those that are new to this one, by number. What goes to them has the
  /// `protection` that rank 0 asks for. Connects to nobody yet. `own`: this rank's number; it has
  /// met `ranks` ranks, as rank `rank`. Throws Error where that cannot be, or where there is no way
  /// to one of them.
  void add(int own, int rank, std::size_t ranks, std::map<int, Peer> peers, Protection protection);
  /// Lets go of the peers that are not `kept`, which nobody has anything to say to any more.
  void forget_unless(const std::function<bool(int)>& kept);

  /// `listener` hears what peers tell `communicator`, and what they have told it before,
  /// until leave(). leave() waits for the listener and ends the links of `communicator`; the peers
  /// that know this rank hear that it has left. Where the communicator has `failed`, its peers may
  /// never take what this rank has sent, so ~Network() waits for that only briefly. A peer that
  /// tells `communicator` something later gets `answer`, if there is one, and hears that this rank
  /// has left.
  void join(std::uint64_t communicator, Listener& listener);
  void leave(std::uint64_t communicator, bool failed, std::optional<Note> answer = {});
  /// This rank will never join `communicator`, because rank `because_of` of the job is gone (-1:
  /// for other reasons). A peer that tells it something there hears that instead. Where there is a
  /// listener already, leave() follows.
  void refuse(std::uint64_t communicator, int because_of);
  void tell(int member, std::uint64_t communicator, std::uint32_t type,
            std::span<const std::byte> bytes);
  /// Tells a note, if there is a connection to that peer.
  void tell_connected(int member, std::uint64_t communicator, std::uint32_t type,
                      std::span<const std::byte> bytes);

  /// The wire to rank `member`, which is connected from now on.
  Wire& wire(int member) { return remote(member).wire(); }
  /// What carries the bytes to rank `member`, for people.
  std::string carrier_to(int member);
  struct Gone {
    Departure how;
    std::string why;
  };
  /// The peers from which nothing more will come, as far as this rank has heard.
  std::map<int, Gone> gone();
  /// Whether nothing more will come from `member`, also where only the kernel has heard yet that it
  /// has hung up.
  bool has_hung_up(int member);
  /// Takes in what has come, and sends on what was left, over all wires.
  void poll();
  /// Sleeps until something comes over one of the wires, there is room for unsent data, a thread
  /// calls wake(), or that long; not at all where `ready`.
  void sleep(std::chrono::nanoseconds most, const std::function<bool()>& ready);
  /// For a thread that will sleep on its doorbell instead: until a thread polls again, the reactor
  /// moves the data, and so rings. False: something is left to be sent, or has to be asked for,
  /// which a thread does sooner.
  bool leave_to_reactor();
  /// What `ready` is about may have changed.
  void wake();
  /// Whether all that may come ends sleep(). Networks other than streams may have to be asked.
  bool hears_all() const { return hears_all_.load(std::memory_order_relaxed); }
  /// Whether the program has closed descriptors that are this one's.
  bool is_closed() const;

 private:
  /// A process that knows the key, and has not named itself, or is not known yet: its meeting with
  /// this rank ended earlier there than here.
  struct UnnamedPeer {
    FileDescriptor socket;
    protocol::Session session;
    Reactor::Time since;
    SignedStreamHello said;
    std::size_t got = 0;
    bool is_early() const { return got == sizeof said; }
  };
  struct KnownPeer : Peer {
    WireRoute route;
    std::uint32_t most_streams = 0;
  };
  struct EarlyNote {
    int member;
    std::optional<Note> note;  // none: it has left
  };

  // In the set of arrivals, after the places of the waiting room:
  static constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kFirstUnnamed = kListener + 1;
  // In the set of data, beside the numbers of ranks:
  static constexpr std::uint64_t kDoorbell = UINT64_MAX, kMakers = UINT64_MAX - 256;

  void on_events(int fd, std::uint32_t events) override;
  std::optional<Reactor::Time> on_tick(Reactor::Time now) override;
  void on_note(int member, std::uint64_t communicator, std::uint32_t type,
               std::span<const std::byte> bytes) override;
  void on_left(int member, std::uint64_t communicator) override;
  void on_gone(int member, Departure how, const std::string& why) override;
  void on_connected() override;
  void on_unanswered(int member) override;
  void on_polled() override;
  void on_moved() override { wake(); }
  bool cannot_accept() override { return !accepting_ && waiting_room_->is_in_trouble(); }

  // network_requests.cpp:
  /// The request that rank `dialler` dials rank `target`, which cannot dial it; identities.
  struct DialRequest {
    std::uint64_t dialler = 0, target = 0;
    std::uint32_t number = 0;  // the target's
    std::uint32_t hops = 0;    // that are left
  };
  static constexpr std::uint32_t kDialNote = 9;
  void take_request(int from, std::span<const std::byte> bytes);
  /// To the ranks that may know the way, but not to `from`.
  void pass_on(DialRequest request, int from);
  std::vector<int> ways_to(std::uint64_t who, int from);

  // network_notes.cpp:
  void note_over(std::uint64_t communicator, std::optional<Note> answer);
  void answer(int member, std::uint64_t communicator, const std::optional<Note>& note);
  /// To the listener of `communicator`; or it is kept for one; or false: the communicator is over.
  bool pass(EarlyNote news, std::uint64_t communicator);
  /// With listeners_mutex_ held.
  void pass_to(Listener& listener, const EarlyNote& news, std::uint64_t communicator);

  void say_bye();
  RemoteRank& remote(int member);
  /// With mutex_ held; null: it has no address, or this rank is about to leave them all.
  std::shared_ptr<RemoteRank> find_or_make(int member);
  /// Takes mutex_; null: this rank has had nothing to do with it.
  std::shared_ptr<RemoteRank> find(int member);
  // network_arrivals.cpp: peers that have proved themselves, and not named themselves.
  void serve();
  template <class Do>
  void of_all_listeners(Do&& act) {
    act(listener_);
    for (const FileDescriptor& l : further_listeners_) act(l);
  }
  std::optional<Reactor::Time> expire_unnamed(Reactor::Time now);
  bool read_hello(UnnamedPeer& peer);
  /// False: it is not known yet.
  bool introduce(UnnamedPeer& peer);
  // network_data.cpp:
  void serve_data();
  std::optional<Reactor::Time> watch_data(Reactor::Time now);
  void set_listening();
  EndpointMaker& maker(WireKind kind);
  /// The descriptors that endpoints share tell what comes from now on. False: something has come.
  bool arm_makers();
  void end_sleep();
  void quiet_doorbell();
  /// With mutex_ held; -1: no peer has it.
  int number_of(std::uint64_t identity) const;
  std::uint64_t identity_of(int member);
  std::vector<std::shared_ptr<RemoteRank>> all_remote();

  const SocketAddress asked_;
  SocketAddress local_;
  std::uint32_t generation_;
  Reactor* reactor_ = nullptr;
  FileDescriptor listener_;
  std::vector<FileDescriptor> further_listeners_;
  FurtherWays further_;
  FileDescriptor accept_set_;  // epoll: the listener, the waiting room, and unnamed peers
  FileDescriptor data_;        // epoll: the sockets for data, and
  FileDescriptor doorbell_;    // wakes the threads that sleep on it
  const UsableWires wires_;
  std::atomic<bool> hears_all_{true};
  std::map<WireKind, std::shared_ptr<EndpointMaker>> makers_;  // that are used
  const std::uint64_t identity_;
  protocol::Bytes32 key_{};
  int own_ = -1;                          // this rank's number
  std::optional<Protection> protection_;  // of what goes to its peers, once there are any
  std::unique_ptr<WaitingRoom> waiting_room_;
  std::map<std::uint64_t, std::unique_ptr<UnnamedPeer>> unnamed_;
  std::uint64_t next_unnamed_ = 0;
  bool accepting_ = true;
  std::atomic<bool> has_met_{false};  // since the unnamed were looked at
  Reactor::Time unnamed_due_ = Reactor::Time::max();

  std::mutex mutex_;  // of the ranks
  std::map<int, KnownPeer> peers_;
  std::unordered_map<std::uint64_t, int> numbers_;  // by identity
  // Shared with the threads that poll: forget_unless() may drop a peer meanwhile.
  std::map<int, std::shared_ptr<RemoteRank>> ranks_;
  bool leaving_ = false;
  std::uint32_t requests_ = 0;  // of this rank
  std::size_t next_way_ = 0;    // whom to ask, in turn
  // By DialRequest::dialler and target: the last number.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> requests_passed_;
  std::mutex listeners_mutex_;  // held while they are told
  std::unordered_map<std::uint64_t, Listener*> listeners_;
  std::unordered_map<std::uint64_t, std::vector<EarlyNote>> early_;  // of communicators to come
  // Communicators that were left or refused, and what a peer hears that asks; the newest ones.
  std::map<std::uint64_t, std::optional<Note>> over_;
  std::deque<std::uint64_t> over_in_order_;
  std::map<int, Gone> gone_;
  bool last_failed_ = false;  // of the communicators that were left

  // Data.
  std::atomic<bool> polled_{false};  // since the last tick
  std::atomic<bool> ticking_{false};
  std::mutex listening_mutex_;
  std::atomic<bool> listening_{false};  // the reactor
  std::mutex sleep_mutex_;              // of the changes of:
  std::atomic<int> sleepers_{0};
};

}  // namespace tutti
