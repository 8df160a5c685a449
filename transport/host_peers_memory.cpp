// Memory on its way between the ranks of a host: messages on the sockets between them that carry a
// memfd, and, between threads of one process, a table of what they share.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/wait.h"
#include "transport/host_peers.h"

namespace tutti {

namespace {

[[noreturn]] void throw_late(int peer) {
  throw Error(ErrorCode::timed_out, fmt::format("rank {} did not pass its memory in time", peer),
              peer);
}

std::string out_of_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format(
      "its process has all the {} file descriptors open that it may have (ulimit -n raises that)",
      limit.rlim_cur);
}

struct ProcessMemory {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, std::weak_ptr<SharedMemory>> by_key;
  // By communicator and rank: because_of; identities.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> refused;
};

ProcessMemory& process_memory() {
  static auto* m = new ProcessMemory;
  return *m;
}

}  // namespace

void share_within_process(std::uint64_t key, const std::shared_ptr<SharedMemory>& memory) {
  ProcessMemory& m = process_memory();
  const std::lock_guard lock(m.mutex);
  std::erase_if(m.by_key, [](const auto& entry) { return entry.second.expired(); });
  m.by_key[key] = memory;
}

void HostPeers::post(Peer& peer, const Message& message, int fd) {
  post_unsent(peer);
  if (peer.unsent.empty() && try_to_post(peer, message, fd)) return;
  FileDescriptor copy;
  if (message.type == Message::segment) {
    copy = FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) throw_system_error("cannot keep memory for a peer that is not taking it now");
    fd = copy.fd();
  }
  peer.unsent.push_back({message, fd, std::move(copy)});
  behind_.insert(&peer);
}

void HostPeers::post_unsent(Peer& peer) {
  while (!peer.unsent.empty()) {
    const Unsent& next = peer.unsent.front();
    if (!try_to_post(peer, next.message, next.fd)) return;
    peer.unsent.pop_front();
  }
}

bool HostPeers::try_to_post(Peer& peer, const Message& message, int fd) {
  iovec part{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  if (fd >= 0) {
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  while (!peer.closed) {
    if (sendmsg(peer.socket.fd(), &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: too many descriptors are on their way, as if the socket were full.
    if (errno == EAGAIN || errno == ETOOMANYREFS) return false;
    if (errno != EPIPE && errno != ECONNRESET) throw_system_error("cannot pass memory to a peer");
    close(peer);  // ranks that wait for it notice its death, and report it
  }
  return true;
}

bool HostPeers::take(Peer& peer) {
  if (peer.socket.fd() < 0 || peer.closed) return false;
  Message message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  const ssize_t n = recvmsg(peer.socket.fd(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return errno == EINTR;
  FileDescriptor fd;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int))) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(c), sizeof received);
      fd = FileDescriptor(received);
    }
  }
  if (n == 0) {
    close(peer);
    return false;
  }
  // Without a descriptor that was sent, because this process could hold no more, the
  // message is kept all the same: a call that needs it says why it cannot have it.
  const bool had_one = fd || (m.msg_flags & MSG_CTRUNC) != 0;
  if (n == sizeof message &&
      (had_one || message.type == Message::freed || message.type == Message::refused)) {
    keep(peer, message, std::move(fd));
  }
  return true;
}

void HostPeers::keep(Peer& peer, const Message& message, FileDescriptor fd) {
  if (message.type == Message::segment) {
    peer.segments[message.key] = std::move(fd);
  } else if (message.type == Message::refused) {
    peer.refused[message.key] = message.because_of;
  } else if (message.type == Message::freed) {
    const auto window = peer.windows.find(message.window_id);
    if (window == peer.windows.end()) return;
    // It stays mapped for those that have it from find_window(), which gives it to no more of them:
    // the lock is held.
    const std::shared_ptr<SharedMemory>& memory = window->second.memory;
    if (memory.use_count() > 1) memory->let_go();
    peer.windows.erase(window);
  } else if (message.type == Message::window) {
    // What is wrong with a window matters only to a call that needs it.
    Window& window = peer.windows[message.window_id];
    window = {};
    if (!fd) {
      window.trouble = out_of_descriptors();
      return;
    }
    try {
      window.memory = SharedMemory::map(std::move(fd), message.bytes);
    } catch (const Error& e) {
      window.trouble = e.what();
    }
  }
}

void HostPeers::take_all(Peer& peer) {
  while (take(peer)) {
  }
}

void HostPeers::close(Peer& peer) {
  peer.closed = true;
  // Its end would be news for ever.
  epoll_ctl(incoming_.fd(), EPOLL_CTL_DEL, peer.socket.fd(), nullptr);
}

void HostPeers::post_all_unsent() {
  std::erase_if(behind_, [&](Peer* peer) {
    post_unsent(*peer);
    return peer->unsent.empty();
  });
}

void HostPeers::send(int peer, std::uint64_t key, const std::shared_ptr<SharedMemory>& memory) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  if (p.who->same_process) return;  // found through share_within_process()
  post(p, {Message::segment, 0, key, memory->size()}, memory->fd());
}

void HostPeers::send(int peer, std::uint64_t key, const FileDescriptor& descriptor) {
  const std::lock_guard lock(mutex_);
  post(at(peer), {Message::segment, 0, key, 0}, descriptor.fd());
}

FileDescriptor HostPeers::find_descriptor(int peer, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  post_all_unsent();
  take_all(p);
  if (auto found = p.segments.extract(key)) {
    if (found.mapped()) return std::move(found.mapped());
    throw Error(ErrorCode::system,
                fmt::format("rank {} cannot take the memory that rank {} passes to it: {}", number_,
                            peer, out_of_descriptors()),
                number_);
  }
  if (p.closed) {
    throw Error(
        ErrorCode::peer_lost,
        fmt::format("rank {} (pid {}) died while its memory was being connected", peer, p.who->pid),
        peer);
  }
  return {};
}

FileDescriptor HostPeers::receive(int peer, std::uint64_t key, Deadline deadline) {
  FileDescriptor fd;
  const auto has_come = [&] { return static_cast<bool>(fd = find_descriptor(peer, key)); };
  if (!wait_until(deadline, has_come)) throw_late(peer);
  return fd;
}

std::shared_ptr<SharedMemory> HostPeers::receive(int peer, std::uint64_t key, std::size_t bytes,
                                                 Deadline deadline) {
  if (!this->peer(peer)->same_process) {
    return SharedMemory::map(receive(peer, key, deadline), bytes);
  }
  std::shared_ptr<SharedMemory> memory;
  const auto is_there = [&] {
    ProcessMemory& m = process_memory();
    const std::lock_guard lock(m.mutex);
    if (const auto it = m.by_key.find(key); it != m.by_key.end()) memory = it->second.lock();
    return memory != nullptr;
  };
  if (!wait_until(deadline, is_there)) throw_late(peer);
  return memory;
}

void HostPeers::note_refusal(std::uint64_t id, std::uint64_t because_of) {
  ProcessMemory& m = process_memory();
  const std::lock_guard lock(m.mutex);
  m.refused[{id, address_.identity}] = because_of;
}

void HostPeers::post_refusal(Peer& peer, std::uint64_t id, std::uint64_t because_of) {
  if (peer.socket) post(peer, {Message::refused, 0, id, 0, because_of}, -1);
}

void HostPeers::refuse(std::uint64_t id, int because_of, std::span<const int> peers) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(because_of);
  const std::uint64_t identity = found == peers_.end() ? 0 : found->second.who->identity;
  note_refusal(id, identity);
  for (const int p : peers) post_refusal(at(p), id, identity);
}

void HostPeers::give_up(std::uint64_t id, std::uint64_t because_of) {
  listener_ = FileDescriptor();
  const std::lock_guard lock(mutex_);
  note_refusal(id, because_of);
  for (auto& [number, peer] : peers_) post_refusal(peer, id, because_of);
}

std::optional<int> HostPeers::refusal(int peer, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  if (p.who->same_process) {
    ProcessMemory& m = process_memory();
    const std::lock_guard process_lock(m.mutex);
    const auto found = m.refused.find({id, p.who->identity});
    return found == m.refused.end() ? std::nullopt : std::optional(number_of(found->second));
  }
  take_all(p);
  const auto found = p.refused.find(id);
  return found == p.refused.end() ? std::nullopt : std::optional(number_of(found->second));
}

void HostPeers::forget(int peer, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  take_all(p);
  p.segments.erase(key);
}

void HostPeers::announce(const WindowMemory& window, std::span<const int> peers) {
  if (window.id == 0) return;
  const std::lock_guard lock(mutex_);
  std::set<int>& told = told_[window.id];
  for (const int p : peers) {
    Peer& peer = at(p);
    if (!peer.socket || !told.insert(p).second) continue;
    take_all(peer);
    post(peer, {Message::window, window.id, 0, window.bytes}, window.fd);
  }
}

void HostPeers::window_freed(std::uint32_t id) noexcept {
  if (process_generation() != generation_) return;  // a child's copy of it is gone, nothing else
  const std::lock_guard lock(mutex_);
  const auto told = told_.find(id);
  if (told == told_.end()) return;
  for (const int p : told->second) {
    Peer& peer = at(p);
    const auto unsent = std::ranges::find_if(
        peer.unsent, [&](const Unsent& u) { return u.message.window_id == id; });
    try {
      if (unsent != peer.unsent.end()) {
        peer.unsent.erase(unsent);
      } else {
        post(peer, {Message::freed, id}, -1);
      }
    } catch (const std::exception& e) {
      log().warn("rank {} cannot tell rank {} that window {} was freed: {}", number_, p, id,
                 e.what());
    }
  }
  told_.erase(told);
}

std::shared_ptr<SharedMemory> HostPeers::find_window(int peer, std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  auto it = p.windows.find(id);
  if (it == p.windows.end()) {
    post_all_unsent();  // the peer may wait for one of ours
    take_all(p);
    it = p.windows.find(id);
  }
  return it == p.windows.end() ? nullptr : it->second.memory;
}

std::string HostPeers::window_trouble(int peer, std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  const Peer& p = at(peer);
  const auto it = p.windows.find(id);
  return it == p.windows.end() ? "" : it->second.trouble;
}

void HostPeers::drain() {
  if (sockets_.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(mutex_);
  post_all_unsent();
  std::array<epoll_event, 64> events;
  const int ready = epoll_wait(incoming_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const auto peer = peers_.find(static_cast<int>(events[static_cast<std::size_t>(i)].data.u64));
    if (peer != peers_.end()) take_all(peer->second);
  }
}

}  // namespace tutti
