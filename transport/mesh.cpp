// How the ranks of a host find and check each other: addresses, greetings, and later which of them
// are gone. What then travels over the sockets is in mesh_memory.cpp.
#include "transport/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/fork.h"
#include "core/settings.h"
#include "transport/cma.h"

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

}  // namespace

SocketAddress socket_address(const std::array<std::uint64_t, 2>& name) {
  return abstract_address(fmt::format("tutti-{:016x}{:016x}", name[0], name[1]));
}

Mesh::Mesh(std::string_view host_id) : generation_(process_generation()) {
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

Mesh::~Mesh() { remove_observer(*this); }

void Mesh::connect(int rank, std::span<const MeshAddress> peers,
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
  std::vector<int> others;  // that are processes of this host, and not this one
  for (std::size_t r = 0; r < peers.size(); ++r) {
    Peer& peer = peers_[r];
    peer.probe = peers[r].probe;
    peer.key = peers[r].key;
    peer.pid = peers[r].pid;
    peer.same_process = peers[r].process == address_.process && same_host(static_cast<int>(r));
    if (peer.same_process || !same_host(static_cast<int>(r))) continue;
    others.push_back(static_cast<int>(r));
  }
  if (!others.empty()) meet(others, peers, session_secret, deadline);
  for (const int r : others) {
    Peer& peer = peers_[static_cast<std::size_t>(r)];
    // The kernel's word, not the peer's: right also across pid namespaces (0 where it is not
    // visible).
    peer.pid = credentials(peer.socket.fd()).pid;
    if (peer.pid > 0)
      peer.process = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  }
  listener_ = FileDescriptor();
}

bool Mesh::cma_works(int peer) const {
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  return p.same_process || (same_host(peer) && p.pid > 0 && cma_probe(p.pid, p.probe, p.key));
}

std::vector<int> Mesh::dead_peers() { return peers_that_are(false); }
std::vector<int> Mesh::ending_peers() { return peers_that_are(true); }

// A process that ends closes its socket first; where others (its forks) keep that open, only the
// process tells.
std::vector<int> Mesh::peers_that_are(bool ending) {
  std::vector<pollfd> polls;
  std::vector<int> ranks;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const Peer& peer = peers_[r];
    if (peer.same_process) continue;
    const bool socket = ending || peer.process.fd() < 0;
    polls.push_back({peer.process.fd(), POLLIN, 0});
    polls.push_back({socket ? peer.socket.fd() : -1, POLLRDHUP, 0});
    ranks.push_back(static_cast<int>(r));
  }
  std::vector<int> found;
  if (polls.empty() || poll(polls.data(), polls.size(), 0) <= 0) return found;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if ((polls[2 * i].revents | polls[2 * i + 1].revents) != 0) found.push_back(ranks[i]);
  }
  return found;
}

}  // namespace tutti
