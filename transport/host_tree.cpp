#include "transport/host_tree.h"

#include <algorithm>
#include <map>

#include "transport/network/network.h"

namespace tutti {
namespace {

constexpr int kBelow = 4;

int above(int host) { return (host - 1) / kBelow; }

}  // namespace

HostTree::HostTree(Network& network, const Members& members)
    : network_(network), members_(members) {
  std::map<int, int> numbers;
  for (int r = 0; r < ranks(); ++r) {
    const auto [number, fresh] = numbers.try_emplace(members.host(r), hosts());
    if (fresh) {
      firsts_.push_back(r);
      on_host_.emplace_back();
    }
    host_of_.push_back(number->second);
    on_host_[static_cast<std::size_t>(number->second)].push_back(r);
  }
  own_ = of(members.rank());
}

void HostTree::mark_gone(int rank) {
  const std::lock_guard lock(mutex_);
  gone_.insert(rank);
}

bool HostTree::gone(int host) const {
  if (host == own_) return false;
  return std::ranges::all_of(on_host_[static_cast<std::size_t>(host)],
                             [&](int r) { return gone_.contains(r); });
}

bool HostTree::is_gone(int host) const {
  const std::lock_guard lock(mutex_);
  return gone(host);
}

int HostTree::lowest_there() const {
  int host = 0;
  while (gone(host)) ++host;  // up to this one at most
  return host;
}

int HostTree::lowest() const {
  const std::lock_guard lock(mutex_);
  return lowest_there();
}

std::optional<int> HostTree::above() const {
  const std::lock_guard lock(mutex_);
  const int top = lowest_there();
  if (top == own_) return std::nullopt;
  for (int host = own_; host != 0;) {
    host = tutti::above(host);
    if (!gone(host)) return host;
  }
  return top;
}

void HostTree::add_below(int host, std::vector<int>& all) const {
  for (int h = kBelow * host + 1; h <= kBelow * host + kBelow && h < hosts(); ++h) {
    if (!gone(h)) {
      all.push_back(h);
    } else {
      add_below(h, all);
    }
  }
}

std::vector<int> HostTree::below() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> all;
  add_below(own_, all);
  if (own_ != 0 && lowest_there() == own_) {
    // The top of the tree is gone, and this is the next one.
    add_below(0, all);
    std::erase(all, own_);
  }
  return all;
}

std::vector<int> HostTree::neighbours() const {
  std::vector<int> all = below();
  if (const auto host = above()) all.push_back(*host);
  return all;
}

void HostTree::tell(int host, std::uint32_t type, std::span<const std::byte> bytes) const {
  int to = -1;
  {
    const std::lock_guard lock(mutex_);
    const auto& ranks = on_host_[static_cast<std::size_t>(host)];
    const auto there = std::ranges::find_if(ranks, [&](int r) { return !gone_.contains(r); });
    if (there != ranks.end()) to = *there;
  }
  if (to >= 0) tell_rank(to, type, bytes);
}

void HostTree::tell_rank(int rank, std::uint32_t type, std::span<const std::byte> bytes) const {
  network_.tell(member(rank), members_.id(), type, bytes);
}

void HostTree::tell_connected(int rank, std::uint32_t type,
                              std::span<const std::byte> bytes) const {
  network_.tell_connected(member(rank), members_.id(), type, bytes);
}

}  // namespace tutti
