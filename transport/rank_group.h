// The ranks of one communicator: who they are and on which hosts, what each says of itself, the
// first failure, and their links (links.h).
//
// Ranks of a host have a segment of shared memory each, with their control block and the first
// links that lead to them. Of ranks on other hosts there is a copy of what they have said last,
// when asked. The first failure lies in the block of each host's first rank, where all of that host
// look; notes carry it from host to host, along a tree of hosts. A host is left out of that only
// when all its ranks are gone.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/fork.h"
#include "transport/control_block.h"
#include "transport/host_peers.h"
#include "transport/links.h"
#include "transport/network.h"
#include "transport/other_hosts.h"
#include "transport/shared_memory.h"

namespace tutti {

/// What a rank says of itself when it joins.
struct RankCard {
  bool allows_cma = true;
  int gpu = -1;  // that its buffers will be on, as this process numbers them; -1: not known
};

class RankGroup {
 public:
  /// Who they are. `members`: the ranks' numbers in the host_peers, by rank here. `keys` name their
  /// segments, and differ from all others of the job; `id` differs from that of all other
  /// communicators of its ranks that reach other hosts.
  struct Ranks {
    int rank = 0;  // this one
    std::vector<int> members;
    std::vector<std::uint64_t> keys;
    std::uint64_t id = 0;
  };
  /// Collective over the ranks. `network` leads to those on other hosts; null where there are none.
  /// Throws Error.
  RankGroup(std::shared_ptr<HostPeers> host_peers, std::shared_ptr<Network> network, Ranks ranks,
            ConnectionShape shape, const RankCard& says, Deadline deadline);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  ConnectionShape shape() const { return shape_; }
  HostPeers& host_peers() { return *host_peers_; }
  const std::shared_ptr<HostPeers>& shared_host_peers() const { return host_peers_; }
  const std::shared_ptr<Network>& shared_network() const { return network_; }
  /// The ranks' numbers in the host_peers.
  std::span<const int> members() const { return members_; }
  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  std::uint64_t id() const { return id_; }
  /// This rank will not join communicator `id`, for rank `because_of` is gone (-1: for other
  /// reasons), whatever the others do.
  void refuse(std::uint64_t id, int because_of);
  /// Names rank `rank`'s segment.
  std::uint64_t key(int rank) const { return keys_[static_cast<std::size_t>(rank)]; }
  bool same_process(int rank) const { return host_peers_->same_process(member(rank)); }
  pid_t pid(int rank) const { return host_peers_->pid(member(rank)); }
  /// "pid 123", "pid 123 on node7", "rank 6 of the job, pid 123" where that is another number.
  std::string process_text(int rank) const;
  bool same_host(int rank) const { return host_peers_->same_host(member(rank)); }
  /// Hosts have numbers, as in the host_peers.
  int host(int rank) const { return host_peers_->host(member(rank)); }
  /// The ranks of this host.
  std::span<const int> ranks_here() const { return here_; }
  /// Whether all ranks are on this host.
  bool one_host() const { return hosts_ == nullptr; }
  /// Whether all ranks are threads of this process.
  bool one_process() const { return one_process_; }
  /// What carries the bytes between the ranks, as far as this one knows, for people: "shared
  /// memory inside hosts, tcp across".
  std::string transports();
  /// Whether every rank can read and write every other's plain memory.
  bool cma_everywhere() const { return cma_everywhere_; }

  /// See Links.
  SendEnd sending(int peer, int channel) { return links_->sending(peer, channel); }
  ReceiveEnd receiving(int peer, int channel) { return links_->receiving(peer, channel); }
  /// What rank `rank` says of itself; of one on another host, what it has said last (refresh()).
  ControlBlock& control(int rank) { return *controls_[static_cast<std::size_t>(rank)]; }
  ControlBlock& control() { return *controls_[static_cast<std::size_t>(rank_)]; }

  /// Rank `rank`'s segment, in which its control block lies.
  const std::shared_ptr<SharedMemory>& segment(int rank) const {
    return segments_[static_cast<std::size_t>(rank)];
  }

  /// Whether somebody has failed; one load of a line that is otherwise never written.
  bool failed() const { return first_here_->failure_state.load(std::memory_order_relaxed) != 0; }
  /// Records `failure` unless there is one already.
  void fail(const Failure& failure);
  /// The failure; waits (briefly) for one that is being written.
  Failure failure() const;
  /// Throws the failure as an Error.
  [[noreturn]] void throw_failure() const;

  /// This rank waits for `peer`, for others to know.
  void publish_wait(int peer, std::chrono::steady_clock::time_point now) {
    control().waits_for.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_relaxed);
    control().waited_at.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// Whom a rank that waits for `peer` waits for in the end: `peer`, or whom that one waits for,
  /// and so on, to the first that has not waited since `recently`. Where they wait in a circle:
  /// `peer`.
  int end_of_line(int peer, std::chrono::steady_clock::time_point recently);

  /// "step 3 of its operation #12": the last one that rank `peer` has finished.
  std::string progress_text(int peer);

  /// "; a call of rank 1 was refused: ...", if that is the last thing that rank `peer` has called;
  /// else "".
  std::string refusal_text(int peer);
  /// Lets others know that this rank is `doing` something in this communicator: the other ranks,
  /// and those of its other communicators.
  void say_waiting(std::string_view doing);
  /// "; that rank is itself waiting ...", here or in another communicator, if it says so; else "".
  std::string waiting_text(int peer);

  /// For those who wait, now and then: exchanges with the peers what came for them on the sockets
  /// of the host, and looks who is dead (system calls). A dead process that had not left is a
  /// failure of the communicator, in which this rank was `doing` something.
  void check_peers(std::string_view doing);
  /// The same before another failure is recorded, as most follow from a death: somebody else heard
  /// of it, gave up, and called something else. Where that was on another host, what it has heard
  /// may take another way than what it does then, so there is a moment for it to come.
  void check_peers_first(std::string_view doing);
  /// The ranks that have died, or whose host is out of reach; not those that have left. Of other
  /// hosts, the same for all ranks of this one.
  std::vector<int> dead_ranks();
  /// Asks rank `rank`, if it is on another host, what it does; the answer comes later.
  void ask(int rank) {
    if (hosts_) hosts_->ask(rank);
  }
  /// Rank `rank`, of another host, is lost to the ranks of this host from now on, with all of its
  /// host where it is cut off. That alone is no failure of the communicator.
  void lose(int rank, Loss how, const std::string& why) { hosts_->lose(rank, how, why); }
  /// What rank `rank`, of another host, does ("is out of reach"), if it is lost.
  std::optional<std::string> why_lost(int rank) const {
    return hosts_ ? hosts_->why_lost(rank) : std::nullopt;
  }
  /// Tells rank `rank`, if it is on another host, what this one has said of itself, before it asks.
  void tell(int rank) {
    if (hosts_) hosts_->tell(rank);
  }
  /// Asks, and waits for the answer for a second at most.
  void refresh(int rank);
  /// The same of all ranks of other hosts, or of the first ones of many, for a moment at most.
  void refresh_others();
  /// Of links to and from other hosts: takes in what has come, and sends on what was left.
  void poll_network() {
    if (hosts_) hosts_->poll();
  }
  /// The way to the other hosts; null: there are none.
  Network* network() const { return network_.get(); }
  /// Whether this process is a child, by fork(), of the one that made this object.
  bool is_inherited() const { return process_generation() != generation_; }
  bool has_left(int peer) {
    return (control(peer).state.load(std::memory_order_acquire) & kLeft) != 0;
  }

 private:
  /// Rank `rank`'s segment, or null when it has not come by then.
  std::shared_ptr<SharedMemory> receive_segment(int rank, Deadline deadline);
  void receive_segments(Deadline deadline);
  void wait_for_host_to_join(Deadline deadline);
  void wait_for_other_hosts(Deadline deadline);
  Failure absence(int rank, bool died) const;
  /// For who has not joined yet, or whose host has not: gives up, unless it is too late for that.
  void give_up(const Failure& failure);
  /// A rank of another host that is gone will not join, and those of this host may know that.
  void give_up_if_refused();
  void give_up_if_lost_elsewhere();
  /// Of these numbers in the host_peers, those that are ranks here.
  std::vector<int> ranks_among(const std::vector<int>& members) const;
  /// The ranks of this host whose process is gone, or about to be, whether they had left or not.
  std::vector<int> ending_ranks() const;
  /// fail(), here; false: there was a failure.
  bool record(const Failure& failure);
  void ring_host();
  void on_lost(int rank, Loss how, const std::string& why);
  std::string lost_text(int rank, const std::string& why, std::string_view doing);

  std::shared_ptr<HostPeers> host_peers_;
  std::shared_ptr<Network> network_;
  std::uint32_t generation_ = process_generation();
  int rank_;
  std::vector<int> members_;
  std::vector<std::uint64_t> keys_;
  std::uint64_t id_;
  ConnectionShape shape_;
  std::vector<int> here_;  // the ranks of this host
  bool cma_everywhere_ = true;
  bool one_process_ = true;
  bool alone_in_process_ = true;                         // no other rank of it is in this process
  std::vector<std::shared_ptr<SharedMemory>> segments_;  // of this host's ranks
  std::vector<ControlBlock*> controls_;
  ControlBlock* first_here_ = nullptr;
  // What this rank has been doing when it looked last, in a long wait.
  std::mutex doing_mutex_;
  std::string doing_;
  std::chrono::steady_clock::time_point did_{};
  std::unique_ptr<OtherHosts> hosts_;  // null: there are none
  std::unique_ptr<Links> links_;
};

}  // namespace tutti
