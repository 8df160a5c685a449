// The hosts of a communicator as a tree. Notes that all must hear travel along it. Hosts are
// numbered by their first ranks, in order; each has one above it and up to four below. Where a host
// is gone, the hosts above and below it become each other's neighbours. A note to a host goes to
// the first of its ranks that is not gone. Any thread may use it.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/members.h"

namespace tutti {

class Network;

class HostTree {
 public:
  HostTree(Network& network, const Members& members);

  int hosts() const { return static_cast<int>(firsts_.size()); }
  int own() const { return own_; }
  int of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  bool is_here(int rank) const { return of(rank) == own_; }
  std::uint64_t communicator() const { return members_.id(); }
  int ranks() const { return members_.size(); }
  /// The communicator's ranks on a host, in order.
  std::span<const int> ranks_on(int host) const { return on_host_[static_cast<std::size_t>(host)]; }
  int first_rank(int host) const { return firsts_[static_cast<std::size_t>(host)]; }
  int member(int rank) const { return members_.member(rank); }
  /// -1: it is none of this communicator.
  int rank_of(int member) const { return members_.rank_of(member); }
  std::string member_text(int member) const { return members_.member_text(member); }
  const Members& members() const { return members_; }

  /// Rank `rank`, of another host, will not answer any more.
  void mark_gone(int rank);
  /// Whether all its ranks are; this host never is.
  bool is_gone(int host) const;
  /// The first host that is not gone.
  int lowest() const;
  std::optional<int> above() const;
  std::vector<int> below() const;
  std::vector<int> neighbours() const;

  void tell(int host, std::uint32_t type, std::span<const std::byte> bytes) const;
  void tell_rank(int rank, std::uint32_t type, std::span<const std::byte> bytes) const;
  /// tell_rank() where this rank is connected with that one; else nothing.
  void tell_connected(int rank, std::uint32_t type, std::span<const std::byte> bytes) const;

 private:
  // With mutex_ held:
  bool gone(int host) const;
  int lowest_there() const;
  void add_below(int host, std::vector<int>& all) const;

  Network& network_;
  const Members& members_;
  std::vector<int> host_of_;  // by rank, numbered from 0
  std::vector<int> firsts_;   // ranks, by host
  std::vector<std::vector<int>> on_host_;
  int own_ = 0;
  mutable std::mutex mutex_;
  std::set<int> gone_;
};

}  // namespace tutti
