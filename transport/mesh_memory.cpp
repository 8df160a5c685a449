// Memory on its way between the ranks of a host: messages on the mesh's sockets that carry a memfd,
// and, between threads of one process, a table of what they share.
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/background.h"
#include "core/error.h"
#include "transport/mesh.h"

namespace tutti {

// One kind of message after the greeting; it may carry one file descriptor.
struct Mesh::Message {
  enum Type : std::uint32_t { segment = 1, window = 2, freed = 3 };
  std::uint32_t type = 0;
  std::uint32_t window_id = 0;
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
};

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void throw_late(int peer) {
  throw Error(ErrorCode::timed_out, fmt::format("rank {} did not pass its memory in time", peer),
              peer);
}

struct ProcessMemory {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, std::weak_ptr<SharedMemory>> by_key;
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

void Mesh::post(Peer& peer, const Message& message, int fd) {
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
  // A full socket empties when the peer next looks; meanwhile we must look at ours, or both wait.
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!peer.closed) {
    if (sendmsg(peer.socket.fd(), &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return;
    if (errno == EPIPE || errno == ECONNRESET) {
      peer.closed = true;  // its death is noticed, and reported, by whoever waits for it
      return;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS) {
      throw_system_error("cannot pass memory to a peer");
    }
    if (Clock::now() > deadline) {
      throw Error(ErrorCode::system, "a peer does not take the memory that is passed to it (10 s)");
    }
    for (Peer& p : peers_) take_all(p);
    pause_for(std::chrono::milliseconds(1));
  }
}

bool Mesh::take(Peer& peer) {
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
    peer.closed = true;
    return false;
  }
  if (n != sizeof message) return true;
  switch (message.type) {
    case Message::segment:
      if (fd.fd() >= 0) peer.segments[message.key] = std::move(fd);
      break;
    case Message::window:
      if (fd.fd() >= 0) {
        peer.windows[message.window_id] = SharedMemory::map(std::move(fd), message.bytes);
      }
      break;
    case Message::freed:
      peer.windows.erase(message.window_id);
      break;
    default:
      break;
  }
  return true;
}

void Mesh::take_all(Peer& peer) {
  while (take(peer)) {
  }
}

void Mesh::send(int peer, std::uint64_t key, const std::shared_ptr<SharedMemory>& memory) {
  if (same_process(peer)) return;  // found through share_within_process()
  const std::lock_guard lock(mutex_);
  post(peers_[static_cast<std::size_t>(peer)], {Message::segment, 0, key, memory->size()},
       memory->fd());
}

void Mesh::send(int peer, std::uint64_t key, const FileDescriptor& descriptor) {
  const std::lock_guard lock(mutex_);
  post(peers_[static_cast<std::size_t>(peer)], {Message::segment, 0, key, 0}, descriptor.fd());
}

FileDescriptor Mesh::find_descriptor(int peer, std::uint64_t key) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  const std::lock_guard lock(mutex_);
  take_all(p);
  if (auto found = p.segments.extract(key)) return std::move(found.mapped());
  if (p.closed) {
    throw Error(
        ErrorCode::peer_lost,
        fmt::format("rank {} (pid {}) died while its memory was being connected", peer, p.pid),
        peer);
  }
  return {};
}

FileDescriptor Mesh::receive(int peer, std::uint64_t key, Deadline deadline) {
  for (;;) {
    if (FileDescriptor fd = find_descriptor(peer, key)) return fd;
    if (Clock::now() > deadline) throw_late(peer);
    pause_for(std::chrono::microseconds(100));
  }
}

std::shared_ptr<SharedMemory> Mesh::receive(int peer, std::uint64_t key, std::size_t bytes,
                                            Deadline deadline) {
  if (!same_process(peer)) return SharedMemory::map(receive(peer, key, deadline), bytes);
  for (;;) {
    {
      ProcessMemory& m = process_memory();
      const std::lock_guard lock(m.mutex);
      if (const auto it = m.by_key.find(key); it != m.by_key.end()) {
        if (auto memory = it->second.lock()) return memory;
      }
    }
    if (Clock::now() > deadline) throw_late(peer);
    pause_for(std::chrono::microseconds(100));
  }
}

void Mesh::announce_freed() {
  for (const std::uint32_t id : freed_windows_since(freed_generation_)) {
    if (id >= announced_.size() || !announced_[id]) continue;
    for (Peer& peer : peers_) {
      if (peer.socket.fd() >= 0) post(peer, {Message::freed, id, 0, 0}, -1);
    }
  }
}

void Mesh::announce(const WindowMemory& window) {
  if (window.id == 0) return;
  const std::lock_guard lock(mutex_);
  if (window.id < announced_.size() && announced_[window.id]) return;
  for (Peer& peer : peers_) take_all(peer);
  announce_freed();
  if (window.id >= announced_.size()) announced_.resize(window.id + 1);
  announced_[window.id] = true;
  for (Peer& peer : peers_) {
    if (peer.socket.fd() >= 0) post(peer, {Message::window, window.id, 0, window.bytes}, window.fd);
  }
}

std::span<std::byte> Mesh::window(int peer, std::uint32_t id, Deadline deadline) {
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      auto it = p.windows.find(id);
      if (it == p.windows.end()) {
        take_all(p);
        it = p.windows.find(id);
      }
      if (it != p.windows.end()) return {it->second->data(), it->second->size()};
      if (p.closed) {
        throw Error(ErrorCode::peer_lost, fmt::format("rank {} (pid {}) died", peer, p.pid), peer);
      }
    }
    if (Clock::now() > deadline) {
      throw Error(ErrorCode::internal,
                  fmt::format("rank {} named window {} but never passed it", peer, id), peer);
    }
    pause_for(std::chrono::microseconds(50));
  }
}

void Mesh::drain() {
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) take_all(peer);
}

}  // namespace tutti
