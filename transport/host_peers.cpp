// How the ranks of a host find and check each other: addresses, greetings, and later which of them
// are gone. What then travels over the sockets is in host_peers_memory.cpp.
#include "transport/host_peers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/fork.h"
#include "core/settings.h"
#include "transport/cma.h"
#include "transport/tcp_socket.h"
#include "transport/waiting_room.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

std::array<std::uint64_t, 2> random_pair() {
  if (sodium_init() < 0) throw Error(ErrorCode::system, "libsodium could not be initialised");
  std::array<std::uint64_t, 2> r{};
  randombytes_buf(r.data(), sizeof r);
  return r;
}

/// Ranks that agree on it run under one kernel and see the same abstract sockets.
std::array<std::uint64_t, 2> host_identity(std::string_view own) {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  text += fmt::format("/{}/", own);
  std::array<char, 64> link{};
  if (readlink("/proc/self/ns/net", link.data(), link.size() - 1) > 0) text += link.data();
  std::array<std::uint64_t, 2> id{};
  crypto_generichash(reinterpret_cast<unsigned char*>(id.data()), sizeof id,
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return id;
}

/// The same in all threads of a process (unless they are to behave as processes), different after a
/// fork.
std::array<std::uint64_t, 2> process_identity() {
  if (setting_boolean("TUTTI_APART")) return random_pair();
  static const auto random = random_pair();
  return {random[0], random[1] ^ static_cast<std::uint64_t>(getpid())};
}

/// The process and the user at the other end, as the kernel knows them.
ucred credentials(int fd) {
  ucred c{};
  socklen_t length = sizeof c;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &length) != 0) {
    throw_system_error("cannot tell who is at the other end of a unix socket");
  }
  return c;
}

/// What has ended, as the epoll set of ends names it: a peer, and its process or socket.
enum End : std::uint64_t { kProcess = 0, kSocket = 1 };
std::uint64_t end_of(int peer, End what) { return static_cast<std::uint64_t>(peer) << 1 | what; }

bool process_has_ended(const FileDescriptor& process) {
  pollfd entry{process.fd(), POLLIN, 0};
  return process && ::poll(&entry, 1, 0) > 0;
}

}  // namespace

SocketAddress socket_address(const std::array<std::uint64_t, 2>& name) {
  return abstract_address(fmt::format("tutti-{:016x}{:016x}", name[0], name[1]));
}

HostPeers::HostPeers(std::string_view host_id) : generation_(process_generation()) {
  address_.host = host_identity(host_id);
  gethostname(address_.host_name.data(), address_.host_name.size() - 1);
  address_.process = process_identity();
  while (address_.identity == 0) address_.identity = random_pair()[0];
  address_.pid = getpid();
  probe_word_ = address_.identity;
  address_.probe = reinterpret_cast<std::uint64_t>(&probe_word_);
  add_observer(*this);
}

HostPeers::~HostPeers() { remove_observer(*this); }

// --- Meeting -------------------------------------------------------------------------------------

HostPeerAddress HostPeers::listen() {
  HostPeerAddress address = address_;
  address.socket = random_pair();
  address.key = random_pair()[0];
  listener_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress name = socket_address(address.socket);
  if (listener_.fd() < 0 || bind(listener_.fd(), name.get(), name.length) != 0 ||
      ::listen(listener_.fd(), 4096) != 0) {
    throw_system_error("cannot listen on a unix socket");
  }
  return address;
}

std::vector<int> HostPeers::meet(int rank, std::span<const HostPeerAddress> peers,
                                 std::span<const std::byte, 32> session_secret, Deadline deadline,
                                 const std::function<bool(int)>& is_lost) {
  std::vector<int> numbers(peers.size(), -1);
  std::vector<int> others;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = number_ < 0;
    std::set<int> kept{number_};
    for (std::size_t r = 0; r < peers.size(); ++r) {
      const int known = number_of(peers[r].identity);
      if (known < 0 || !is_known(known, peers[r], is_lost)) continue;
      numbers[r] = known;
      kept.insert(known);
    }
    std::vector<int> gone;
    for (const auto& [number, peer] : peers_) {
      if (peer.held == 0 && !kept.contains(number)) gone.push_back(number);
    }
    for (const int number : gone) drop(number);
    for (std::size_t r = 0; r < peers.size(); ++r) {
      const bool here = peers[r].host == address_.host;
      if (numbers[r] < 0 && here && peers[r].process != address_.process) {
        others.push_back(static_cast<int>(r));
      }
    }
  }
  // Nothing is added before all sockets are there.
  std::map<int, FileDescriptor> sockets;
  if (!others.empty()) sockets = get_sockets(rank, others, peers, session_secret, deadline);
  listener_ = FileDescriptor();
  const std::lock_guard lock(mutex_);
  if (!sockets.empty() && !incoming_) {
    incoming_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    ends_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    if (!incoming_ || !ends_) {
      throw_system_error("making an epoll set for the sockets of this host");
    }
  }
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (numbers[r] >= 0) continue;
    const int its_rank = static_cast<int>(r);
    numbers[r] = add(peers[r], is_first ? its_rank : -1, std::move(sockets[its_rank]));
    if (its_rank == rank) number_ = numbers[r];
  }
  return numbers;
}

bool HostPeers::is_known(int number, const HostPeerAddress& address,
                         const std::function<bool(int)>& is_lost) const {
  const Peer& peer = peers_.at(number);
  if (peer.who->same_process) return true;
  if (address.host != address_.host) return !is_lost || !is_lost(number);
  return !peer.closed && !process_has_ended(peer.process) && !has_hung_up(peer.socket.fd());
}

int HostPeers::add(const HostPeerAddress& address, int job_rank, FileDescriptor socket) {
  const int number = next_number_++;
  auto who = std::make_shared<HostPeer>();
  who->identity = address.identity;
  who->host = hosts_.try_emplace(address.host, static_cast<int>(hosts_.size())).first->second;
  who->job_rank = job_rank;
  who->pid = address.pid;
  who->same_process = address.process == address_.process && address.host == address_.host;
  who->host_name.assign(address.host_name.data(),
                        strnlen(address.host_name.data(), address.host_name.size()));
  Peer& peer = peers_[number];
  peer.probe = address.probe;
  numbers_[address.identity] = number;
  if (socket) {
    // The kernel's word, not the peer's: right also across pid namespaces (0 where it is not
    // visible).
    who->pid = credentials(socket.fd()).pid;
    if (who->pid > 0) {
      peer.process = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, who->pid, 0)));
    }
    peer.socket = std::move(socket);
    ++sockets_;
    watch(incoming_, EPOLL_CTL_ADD, peer.socket, static_cast<std::uint64_t>(number), EPOLLIN);
    watch(ends_, EPOLL_CTL_ADD, peer.socket, end_of(number, kSocket), EPOLLRDHUP);
    if (peer.process) watch(ends_, EPOLL_CTL_ADD, peer.process, end_of(number, kProcess), EPOLLIN);
  }
  peer.who = std::move(who);
  return number;
}

void HostPeers::drop(int number) {
  const auto peer = peers_.find(number);
  if (peer->second.socket) --sockets_;
  behind_.erase(&peer->second);
  const std::uint64_t identity = peer->second.who->identity;
  if (number_of(identity) == number) numbers_.erase(identity);
  peers_.erase(peer);
  for (auto& [window, told] : told_) told.erase(number);
}

void HostPeers::hold(std::span<const int> peers) {
  const std::lock_guard lock(mutex_);
  for (const int p : peers) ++at(p).held;
}

void HostPeers::let_go(std::span<const int> peers) noexcept {
  const std::lock_guard lock(mutex_);
  for (const int p : peers) --at(p).held;
}

// --- Who they are --------------------------------------------------------------------------------

std::shared_ptr<const HostPeer> HostPeers::peer(int number) const {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(number);
  return found == peers_.end() ? nullptr : found->second.who;
}

int HostPeers::number_of(std::uint64_t identity) const {
  const auto found = numbers_.find(identity);
  return found == numbers_.end() ? -1 : found->second;
}

bool HostPeers::cma_works(int peer) const {
  const std::lock_guard lock(mutex_);
  const Peer& p = peers_.at(peer);
  if (p.who->same_process) return true;
  return p.who->host == peers_.at(number_).who->host && p.who->pid > 0 &&
         cma_probe(p.who->pid, p.probe, p.who->identity);
}

std::vector<int> HostPeers::dead_peers() { return peers_that_are(false); }
std::vector<int> HostPeers::ending_peers() { return peers_that_are(true); }

// A process that ends closes its socket first; where others (its forks) keep that open, only the
// process tells.
std::vector<int> HostPeers::peers_that_are(bool ending) {
  // acquire: the set is there with the first of them.
  const std::size_t sockets = sockets_.load(std::memory_order_acquire);
  if (sockets == 0) return {};
  epoll_event first;
  if (epoll_wait(ends_.fd(), &first, 1, 0) <= 0) return {};
  std::vector<epoll_event> events(2 * sockets);
  const int count = epoll_wait(ends_.fd(), events.data(), static_cast<int>(events.size()), 0);
  const std::lock_guard lock(mutex_);
  std::set<int> found;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = events[static_cast<std::size_t>(i)].data.u64;
    const auto peer = peers_.find(static_cast<int>(what >> 1));
    if (peer == peers_.end()) continue;
    const bool process = (what & 1) == kProcess;
    if (ending || process || !peer->second.process) found.insert(peer->first);
  }
  return {found.begin(), found.end()};
}

}  // namespace tutti
