// The ranks of a communicator: their hosts and their processes, and the numbers that this rank has
// for them among all ranks that it has met (host/host_peers.h). A communicator numbers its ranks
// from 0. Nothing here changes after construction.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/fork.h"
#include "transport/host/host_peers.h"

namespace tutti {

class Members {
 public:
  /// `members`: the ranks' numbers as peers. `keys` name the ranks' segments, and differ from all
  /// others; `id` differs from that of all other communicators of these ranks that reach
  /// other hosts.
  struct Ranks {
    int rank = 0;  // this one
    std::vector<int> members;
    std::vector<std::uint64_t> keys;
    std::uint64_t id = 0;
  };
  Members(std::shared_ptr<HostPeers> host_peers, Ranks ranks);
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;
  ~Members();

  int rank() const { return ranks_.rank; }
  int size() const { return static_cast<int>(ranks_.members.size()); }
  std::uint64_t id() const { return ranks_.id; }
  /// Names rank `rank`'s segment.
  std::uint64_t key(int rank) const { return ranks_.keys[static_cast<std::size_t>(rank)]; }

  /// The ranks' numbers as peers.
  std::span<const int> members() const { return ranks_.members; }
  int member(int rank) const { return ranks_.members[static_cast<std::size_t>(rank)]; }
  /// The rank that has number `member`; -1: none.
  int rank_of(int member) const;
  /// Of these numbers, those that are ranks here.
  std::vector<int> ranks_among(std::span<const int> members) const;

  /// Ranks of one host have equal numbers.
  int host(int rank) const { return who(rank).host; }
  bool same_host(int rank) const { return host(rank) == host(ranks_.rank); }
  /// The ranks of this host, in order.
  std::span<const int> ranks_here() const { return here_; }
  /// Whether all ranks are on this host.
  bool one_host() const { return here_.size() == ranks_.members.size(); }

  pid_t pid(int rank) const { return who(rank).pid; }
  bool same_process(int rank) const { return who(rank).same_process; }
  /// Whether all ranks are threads of this process.
  bool one_process() const { return one_process_; }
  /// Whether no other rank is in this process, not even one that is kept apart by hand.
  bool alone_in_process() const { return alone_in_process_; }
  /// "pid 123", "pid 123 on node7", "rank 6 of the job, pid 123" where that is another number.
  std::string process_text(int rank) const;
  /// "rank 2", of a member of this communicator; else "rank 5 of the job".
  std::string member_text(int member) const;
  /// Whether this process is a child, by fork(), of the one that made this object.
  bool is_inherited() const { return process_generation() != generation_; }

  /// What rank `rank` of this host shares under `key` (HostPeers::receive()).
  std::shared_ptr<SharedMemory> receive(int rank, std::uint64_t key, std::size_t bytes,
                                        Deadline deadline) const;
  FileDescriptor receive(int rank, std::uint64_t key, Deadline deadline) const;

  HostPeers& host_peers() const { return *host_peers_; }
  const std::shared_ptr<HostPeers>& shared_host_peers() const { return host_peers_; }

 private:
  const HostPeer& who(int rank) const { return *who_[static_cast<std::size_t>(rank)]; }
  [[noreturn]] void throw_with_rank(const Error& error) const;

  const std::shared_ptr<HostPeers> host_peers_;
  const std::uint32_t generation_ = process_generation();
  const Ranks ranks_;
  std::vector<std::shared_ptr<const HostPeer>> who_;
  std::vector<int> here_;
  bool one_process_ = true;
  bool alone_in_process_ = true;
};

}  // namespace tutti
