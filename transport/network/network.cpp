// See network.h; this file has the peers, from the first meeting to good-bye.
#include "transport/network/network.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "core/as_error.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/wait.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

// Each rank of a job of more may need too many descriptors.
constexpr std::size_t kMostWithSecond = 64;
constexpr auto kFarewell = 5000ms, kFarewellInTrouble = 100ms;
constexpr auto kLastWords = 500ms;  // for a peer that this rank has had nothing to do with so far

/// `made`, which the system has given to the network at `local`. Throws at once where it has not:
/// later the reason would be lost (errno).
FileDescriptor checked(FileDescriptor made, const SocketAddress& local) {
  if (made) return made;
  throw_system_error(fmt::format("cannot listen at {}{} for ranks of other hosts", host_text(local),
                                 at_which_ports()));
}

/// Until the peers have all that was sent to them, for so long at most.
void wait_until_delivered(std::vector<std::shared_ptr<RemoteRank>> ranks,
                          std::chrono::milliseconds longest) {
  const auto is_delivered = [&] {
    std::erase_if(ranks, [](const auto& r) { return r->is_delivered(); });
    return ranks.empty();
  };
  wait_until(deadline_after(longest), is_delivered, OnStop::ends);
}

}  // namespace

NetworkAddress NetworkAddress::of(const SocketAddress& address) {
  NetworkAddress a;
  if (address.length > a.socket.size()) return a;
  std::memcpy(a.socket.data(), &address.storage, address.length);
  a.length = address.length;
  return a;
}

std::optional<SocketAddress> NetworkAddress::get() const {
  SocketAddress address;
  if (length > socket.size()) return std::nullopt;
  std::memcpy(&address.storage, socket.data(), length);
  address.length = static_cast<socklen_t>(length);
  const bool right = (address.family() == AF_INET && length == sizeof(sockaddr_in)) ||
                     (address.family() == AF_INET6 && length == sizeof(sockaddr_in6));
  if (!right) return std::nullopt;
  return as_reached_from_here(address);
}

Network::Network(const SocketAddress& local, const std::string& interfaces, std::uint64_t identity,
                 const NearestPorts& nearest)
    : asked_(local),
      generation_(process_generation()),
      listener_(checked(listen_for_ranks(local), local)),
      accept_set_(checked(FileDescriptor(epoll_create1(EPOLL_CLOEXEC)), local)),
      data_(checked(FileDescriptor(epoll_create1(EPOLL_CLOEXEC)), local)),
      doorbell_(checked(FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), local)),
      wires_(usable_wires(nearest)),
      identity_(identity) {
  check_congestion_control();
  local_ = bound_address(listener_);
  further_.wanted = static_cast<std::uint32_t>(setting_integer("TUTTI_TCP_STREAMS"));
  for (const NetworkInterface& i : further_interfaces(local, interfaces)) {
    FileDescriptor further = listen_for_ranks(i.address);
    if (!further) continue;  // the first address is enough
    further_.addresses[further_listeners_.size()] =
        further_address(bound_address(further), i.prefix);
    further_listeners_.push_back(std::move(further));
  }
  protocol::fill_random(key_);
  watch(data_, EPOLL_CTL_ADD, doorbell_, kDoorbell, EPOLLIN);
}

Network::~Network() {
  if (generation_ != process_generation()) {
    for (auto& [member, r] : ranks_) abandon(std::move(r));
    for (auto& [kind, maker] : makers_) abandon(std::move(maker));
    for (const auto& [kind, maker] : wires_.made) abandon(std::shared_ptr<EndpointMaker>(maker));
    return;
  }
  if (reactor_ == nullptr) return;
  try {
    say_bye();
  } catch (const std::exception& e) {
    log().warn("a rank cannot say good-bye to those of other hosts: {}", as_error(e).what());
  }
  reactor_->forget(*this);
  ranks_.clear();  // while all else is still there
}

void Network::say_bye() {
  // Notes that are still to go, of a failure, say: this rank may have to connect to the peer first.
  const auto is_awaited = [](const auto& r) { return r->is_to_be_awaited(); };
  wait_until(
      deadline_after(kLastWords), [&] { return std::ranges::none_of(all_remote(), is_awaited); },
      OnStop::ends);
  reactor_->forget(*this);
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;  // there will be no others
  }
  std::vector<std::shared_ptr<RemoteRank>> ranks = all_remote();
  for (const auto& r : ranks) r->say_bye();
  reactor_->forget(*this);  // where one of them was connected meanwhile
  wait_until_delivered(ranks, last_failed_ ? kFarewellInTrouble : kFarewell);
  for (const auto& r : ranks) r->close();
}

NetworkAddress Network::address() const {
  NetworkAddress address = NetworkAddress::of(local_);
  address.wires = wires_.offer;
  address.further = further_;
  address.protection = static_cast<std::uint32_t>(wanted_protection());
  return address;
}

void Network::check() const {
  if (wires_.offer.refused != 0) throw Error(ErrorCode::system, wires_.why_refused);
}

void Network::add(int own, int rank, std::size_t ranks, std::map<int, Peer> peers,
                  Protection protection) {
  if (protection_ && *protection_ != protection) {
    throw Error(ErrorCode::mismatch,
                fmt::format("rank 0 has set {}, but rank {}, which has met others before, has met "
                            "them with {}: set the same on all",
                            setting_of(protection), rank, setting_of(*protection_)));
  }
  if (reactor_ == nullptr) reactor_ = &Reactor::instance();  // later its thread reads this
  std::map<int, KnownPeer> known;
  bool over_streams = true;
  for (auto& [number, peer] : peers) {
    WireRoute route;
    // Where they cannot agree, or a network cannot be begun, no rank gets any further than here.
    if (!peer.here) {
      route = choose_wire(wires_.offer, rank, peer.address.wires, peer.rank);
      const std::lock_guard lock(mutex_);
      over_streams &= maker(route.kind).uses_streams();
    }
    if (!over_streams && protection != Protection::none) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("rank 0 has set {}, which messages over {} cannot have: set "
                              "TUTTI_TRANSPORT=tcp",
                              setting_of(protection), name_of(route.kind)));
    }
    known[number] = {std::move(peer), route,
                     ranks > kMostWithSecond ? RemoteRank::kSecond : RemoteRank::kStreams};
  }
  if (!over_streams) hears_all_.store(false, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    own_ = own;
    protection_ = protection;
    for (auto& [number, peer] : known) {
      if (ranks_.contains(number)) continue;  // it stays connected as it is
      numbers_[peer.identity] = number;
      peers_[number] = std::move(peer);
    }
  }
  has_met_.store(true);
  if (waiting_room_) return reactor_->keep_awake(*this, Reactor::Time::clock::now());
  waiting_room_ = std::make_unique<WaitingRoom>("network", key_);
  of_all_listeners(
      [&](const FileDescriptor& l) { watch(accept_set_, EPOLL_CTL_ADD, l, kListener, EPOLLIN); });
  reactor_->watch(accept_set_.fd(), EPOLLIN, *this);
  reactor_->watch(data_.fd(), 0, *this);
  // So that a child of fork() does not answer there, when this process is gone.
  of_all_listeners([&](const FileDescriptor& l) { reactor_->watch(l.fd(), 0, *this); });
}

void Network::forget_unless(const std::function<bool(int)>& kept) {
  // `kept` may take locks of its own, so no lock is held while it is asked.
  std::vector<int> numbers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, peer] : peers_) {
      if (number != own_) numbers.push_back(number);
    }
  }
  std::erase_if(numbers, kept);
  std::vector<std::shared_ptr<RemoteRank>> forgotten;
  {
    const std::scoped_lock lock(listeners_mutex_, mutex_);
    for (const int number : numbers) {
      const auto at = peers_.find(number);
      if (at == peers_.end()) continue;
      const KnownPeer& peer = at->second;
      if (auto rank = ranks_.extract(number); rank && rank.mapped()) {
        forgotten.push_back(std::move(rank.mapped()));
      }
      if (number_of(peer.identity) == number) numbers_.erase(peer.identity);
      std::erase_if(requests_passed_, [&](const auto& request) {
        return request.first.first == peer.identity || request.first.second == peer.identity;
      });
      gone_.erase(number);
      for (auto& [communicator, early] : early_) {
        std::erase_if(early, [&](const EarlyNote& k) { return k.member == number; });
      }
      peers_.erase(at);
    }
    std::erase_if(early_, [](const auto& early) { return early.second.empty(); });
  }
  // The peers only have to hear that this rank is gone from there; nothing else that is unsent
  // matters.
  for (const auto& r : forgotten) r->say_bye();
  wait_until_delivered(forgotten, kFarewellInTrouble);
  for (const auto& r : forgotten) r->close();
}

int Network::number_of(std::uint64_t identity) const {
  const auto found = numbers_.find(identity);
  return found == numbers_.end() ? -1 : found->second;
}

std::uint64_t Network::identity_of(int member) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(member);
  return found == peers_.end() ? 0 : found->second.identity;
}

RemoteRank& Network::remote(int member) {
  std::shared_ptr<RemoteRank> found;
  {
    const std::lock_guard lock(mutex_);
    found = find_or_make(member);
  }
  if (found == nullptr) {
    throw Error(ErrorCode::system,
                fmt::format("rank {} of the job is on another host, and has said no address at "
                            "which it can be reached",
                            member));
  }
  found->connect();
  return *found;
}

std::shared_ptr<RemoteRank> Network::find_or_make(int member) {
  const auto known = peers_.find(member);
  if (known == peers_.end()) return nullptr;
  const KnownPeer& peer = known->second;
  const auto address = peer.address.get();
  if (!address) return nullptr;
  if (const auto made = ranks_.find(member); made != ranks_.end()) return made->second;
  if (leaving_) return nullptr;
  EndpointMaker& network = maker(peer.route.kind);
  const auto make = [&](Endpoint::Sink& sink) {
    return network.make(sink, member, peer.route.port);
  };
  auto r = std::make_shared<RemoteRank>(
      static_cast<RemoteRank::Owner&>(*this), identity_,
      RemoteRank::Where{member, peer.identity, peer.key, *address, asked_,
                        further_ways(further_, local_, peer.address.further, *address)},
      *protection_, peer.most_streams, data_, make, network.lock());
  r->wire().set_listening(true);  // as the reactor may
  return ranks_.emplace(member, std::move(r)).first->second;
}

std::string Network::carrier_to(int member) {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(member);
  if (found != ranks_.end()) return found->second->wire().carrier();
  return std::string(name_of(peers_.at(member).route.kind));
}

std::shared_ptr<RemoteRank> Network::find(int member) {
  const std::lock_guard lock(mutex_);
  const auto found = ranks_.find(member);
  return found == ranks_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<RemoteRank>> Network::all_remote() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<RemoteRank>> all;
  all.reserve(ranks_.size());
  for (const auto& [member, r] : ranks_) all.push_back(r);
  return all;
}

}  // namespace tutti
