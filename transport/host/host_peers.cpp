// The ranks that this one has met, and which of them are gone. host_peers_meeting.cpp has how they
// meet, host_peers_calls.cpp how they call each other, and host_peers_memory.cpp what they say
// then.
#include "transport/host/host_peers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sodium.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/fork.h"
#include "core/host.h"
#include "core/number.h"
#include "core/proc.h"
#include "core/settings.h"
#include "transport/host/cma.h"

namespace tutti {
namespace {

std::array<std::uint64_t, 2> random_pair() {
  if (sodium_init() < 0) throw Error(ErrorCode::system, "libsodium could not be initialised");
  std::array<std::uint64_t, 2> r{};
  randombytes_buf(r.data(), sizeof r);
  return r;
}

/// Ranks that agree on it run under one kernel and see the same abstract sockets.
std::array<std::uint64_t, 2> host_identity(std::string_view own) {
  std::string text = first_line("/proc/sys/kernel/random/boot_id");
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

/// When `process` (as read_proc() has it) started, in ticks; 0: the kernel does not say.
std::uint64_t start_of(std::string_view process) {
  constexpr int kStarted = 22;
  return parse_number<std::uint64_t>(stat_field(process, kStarted)).value_or(0);
}

/// The same in processes that are in one namespace of this kind; 0: the kernel does not say.
std::uint64_t own_namespace(const char* kind) {
  struct stat status {};
  return stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

bool process_has_ended(pid_t pid, std::uint64_t started) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return errno == ESRCH;
  pollfd entry{process.fd(), POLLIN, 0};
  if (::poll(&entry, 1, 0) > 0) return true;
  const std::uint64_t found = proc_is_ours() ? start_of(std::to_string(pid)) : 0;
  return found != 0 && started != 0 && found != started;
}

void throw_with_ranks(const Error& error, int rank, int named) {
  const std::string who = named < 0 || named == rank
                              ? fmt::format("rank {}", rank)
                              : fmt::format("rank {}, of rank {}", rank, named);
  throw Error(error.code(), fmt::format("{}: {}", who, error.what()), named);
}

SocketAddress socket_address(const std::array<std::uint64_t, 2>& name) {
  return abstract_address(fmt::format("tutti-{:016x}{:016x}", name[0], name[1]));
}

HostPeers::HostPeers(std::string_view host_id) : generation_(process_generation()) {
  address_.host = host_identity(host_id);
  gethostname(address_.host_name.data(), address_.host_name.size() - 1);
  address_.process = process_identity();
  while (address_.identity == 0) address_.identity = random_pair()[0];
  address_.pid = getpid();
  address_.pids = own_namespace("pid");
  address_.users = own_namespace("user");
  address_.user = own_user();
  address_.started = start_of("self");
  probe_word_ = address_.identity;
  address_.probe = reinterpret_cast<std::uint64_t>(&probe_word_);
  add_observer(*this);
}

HostPeers::~HostPeers() { remove_observer(*this); }

int HostPeers::add(const HostPeerAddress& address, int job_rank) {
  const int number = next_number_++;
  auto who = std::make_shared<HostPeer>();
  who->identity = address.identity;
  who->host = hosts_.try_emplace(address.host, static_cast<int>(hosts_.size())).first->second;
  who->job_rank = job_rank;
  const bool here = address.host == address_.host;
  who->pid = !here || address.pids == address_.pids ? address.pid : 0;
  who->same_process = here && address.process == address_.process;
  who->host_name.assign(address.host_name.data(),
                        strnlen(address.host_name.data(), address.host_name.size()));
  Peer peer;
  peer.here = here;
  peer.probe = address.probe;
  peer.started = address.started;
  peer.who = std::move(who);
  peers_.emplace(number, std::move(peer));
  numbers_[address.identity] = number;
  return number;
}

void HostPeers::drop(int number) {
  const auto peer = peers_.find(number);
  behind_.erase(&peer->second);
  std::erase_if(neighbours_, [&](const auto& n) { return n.first == number; });
  hang_up(peer->second);
  const std::uint64_t identity = peer->second.who->identity;
  if (number_of(identity) == number) numbers_.erase(identity);
  peers_.erase(peer);
}

void HostPeers::find_neighbours() {
  neighbours_.clear();
  for (auto& [number, peer] : peers_) {
    if (peer.in_another_process() && peer.now.board() != nullptr) {
      neighbours_.emplace_back(number, &peer);
    }
  }
  std::ranges::sort(neighbours_);
  has_neighbours_.store(!neighbours_.empty(), std::memory_order_release);
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

std::vector<int> HostPeers::peers_that_are(bool ending) {
  if (!has_neighbours_.load(std::memory_order_acquire)) return {};
  std::vector<int> found;
  const std::lock_guard lock(mutex_);
  if (neighbours_.empty()) return {};
  // The word of a process that died before it held it says nothing, so each look asks the kernel
  // for one process more.
  Peer& asked = *neighbours_[next_look_++ % neighbours_.size()].second;
  if (asked.who->pid > 0) asked.has_ended = process_has_ended(asked.who->pid, asked.started);
  for (const auto& [number, peer] : neighbours_) {
    if (peer->has_ended) found.push_back(number);
    if (peer->has_ended || !peer->is_gone()) continue;
    // Its process, where it is not visible, is taken to be gone with its word.
    const bool counts =
        ending || (peer->who->pid > 0 ? process_has_ended(peer->who->pid, peer->started)
                                      : peer->state() == LifeWord::State::ended);
    if (counts) found.push_back(number);
  }
  return found;
}

}  // namespace tutti
