// How the ranks of a host find and check each other: addresses, greetings, and later which of them
// are gone. What then travels over the sockets is in host_peers_memory.cpp.
#include "transport/host_peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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

/// What has ended, as the epoll set of ends names it: a rank, and its process or socket.
enum End : std::uint64_t { kProcess = 0, kSocket = 1 };
std::uint64_t end_of(int rank, End what) { return static_cast<std::uint64_t>(rank) << 1 | what; }

}  // namespace

SocketAddress socket_address(const std::array<std::uint64_t, 2>& name) {
  return abstract_address(fmt::format("tutti-{:016x}{:016x}", name[0], name[1]));
}

HostPeers::HostPeers(std::string_view host_id) : generation_(process_generation()) {
  address_.socket = random_pair();
  address_.host = host_identity(host_id);
  gethostname(address_.host_name.data(), address_.host_name.size() - 1);
  address_.process = process_identity();
  address_.key = random_pair()[0];
  address_.pid = getpid();
  probe_word_ = address_.key;
  address_.probe = reinterpret_cast<std::uint64_t>(&probe_word_);
  listener_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress name = socket_address(address_.socket);
  if (listener_.fd() < 0 || bind(listener_.fd(), name.get(), name.length) != 0 ||
      listen(listener_.fd(), 4096) != 0) {
    throw_system_error("cannot listen on a unix socket");
  }
  add_observer(*this);
}

HostPeers::~HostPeers() { remove_observer(*this); }

void HostPeers::connect(int rank, std::span<const HostPeerAddress> peers,
                        std::span<const std::byte, 32> session_secret, Deadline deadline) {
  rank_ = rank;
  peers_.resize(peers.size());
  std::map<std::array<std::uint64_t, 2>, int> hosts;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers_[r].host = hosts.try_emplace(peers[r].host, static_cast<int>(hosts.size())).first->second;
    peers_[r].host_name.assign(peers[r].host_name.data(),
                               strnlen(peers[r].host_name.data(), peers[r].host_name.size()));
  }
  hosts_ = static_cast<int>(hosts.size());
  for (std::size_t r = 0; r < peers.size(); ++r) {
    Peer& peer = peers_[r];
    peer.probe = peers[r].probe;
    peer.key = peers[r].key;
    peer.pid = peers[r].pid;
    peer.same_process = peers[r].process == address_.process && same_host(static_cast<int>(r));
    if (peer.same_process || !same_host(static_cast<int>(r))) continue;
    others_.push_back(static_cast<int>(r));
  }
  if (others_.empty()) {
    listener_ = FileDescriptor();
    return;
  }
  meet(others_, peers, session_secret, deadline);
  incoming_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  ends_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!incoming_ || !ends_) throw_system_error("making an epoll set for the sockets of this host");
  for (const int r : others_) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    // The kernel's word, not the peer's: right also across pid namespaces (0 where it is not
    // visible).
    peer.pid = credentials(peer.socket.fd()).pid;
    if (peer.pid > 0)
      peer.process = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
    watch(incoming_, EPOLL_CTL_ADD, peer.socket, static_cast<std::uint64_t>(r), EPOLLIN);
    watch(ends_, EPOLL_CTL_ADD, peer.socket, end_of(r, kSocket), EPOLLRDHUP);
    if (peer.process) watch(ends_, EPOLL_CTL_ADD, peer.process, end_of(r, kProcess), EPOLLIN);
  }
  listener_ = FileDescriptor();
}

bool HostPeers::cma_works(int peer) const {
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  return p.same_process || (same_host(peer) && p.pid > 0 && cma_probe(p.pid, p.probe, p.key));
}

std::vector<int> HostPeers::dead_peers() { return peers_that_are(false); }
std::vector<int> HostPeers::ending_peers() { return peers_that_are(true); }

// A process that ends closes its socket first; where others (its forks) keep that open, only the
// process tells.
std::vector<int> HostPeers::peers_that_are(bool ending) {
  if (others_.empty()) return {};
  epoll_event first;
  if (epoll_wait(ends_.fd(), &first, 1, 0) <= 0) return {};
  std::vector<epoll_event> events(2 * others_.size());
  const int count = epoll_wait(ends_.fd(), events.data(), static_cast<int>(events.size()), 0);
  std::set<int> found;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = events[static_cast<std::size_t>(i)].data.u64;
    const int r = static_cast<int>(what >> 1);
    const bool process = (what & 1) == kProcess;
    if (ending || process || !peers_[static_cast<std::size_t>(r)].process) found.insert(r);
  }
  return {found.begin(), found.end()};
}

}  // namespace tutti
