// Memory on its way between the ranks of a host: messages on the sockets between them that carry a
// memfd, and, between threads of one process, a table of what they share.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/as_error.h"
#include "core/error.h"
#include "core/fork.h"
#include "core/log.h"
#include "core/wait.h"
#include "transport/host/host_call.h"
#include "transport/host/host_peers.h"

namespace tutti {

namespace {

/// So long may a process that is being killed go on, from its first closed socket to its end.
constexpr auto kKilledWithin = std::chrono::milliseconds(200);

[[noreturn]] void throw_late(int peer, pid_t pid) {
  throw Error(ErrorCode::timed_out, fmt::format("process {} did not pass its memory in time", pid),
              peer);
}

std::string no_room_for_a_call() {
  return fmt::format("the call of a process of this host cannot be taken: {}",
                     out_of_descriptors());
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

void HostPeers::post(Peer& peer, const Message& message, int fd) {
  std::deque<Unsent>& unsent = exchange_with(peer).unsent;
  post_unsent(peer);
  if (unsent.empty() && try_to_post(peer, message, fd)) return;
  FileDescriptor copy;
  if (message.type == Message::segment) {
    copy = FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, fd));
    if (!copy) throw_system_error("cannot keep memory for a peer that is not taking it now");
    fd = copy.fd();
  }
  behind_.insert(&peer);
  unsent.push_back({message, fd, std::move(copy)});
}

void HostPeers::post_unsent(Peer& peer) {
  std::deque<Unsent>& unsent = peer.exchange->unsent;
  while (!unsent.empty()) {
    const Unsent& next = unsent.front();
    if (!try_to_post(peer, next.message, next.fd)) return;
    unsent.pop_front();
  }
}

bool HostPeers::try_to_post(Peer& peer, const Message& message, int fd) {
  Exchange& exchange = *peer.exchange;
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
  while (!exchange.out_ended) {
    if (!exchange.out && !call(peer)) return exchange.out_ended;
    if (sendmsg(exchange.out.fd(), &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: too many descriptors are on their way, as if the socket were full.
    if (errno == EAGAIN || errno == ETOOMANYREFS) return false;
    if (errno != EPIPE && errno != ECONNRESET) throw_system_error("cannot pass memory to a peer");
    exchange.out_ended = true;  // ranks that wait for it notice its death, and report it
  }
  return true;
}

bool HostPeers::take(Exchange& exchange) {
  if (!exchange.in) return false;
  Message message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = control.data();
  m.msg_controllen = control.size();
  const ssize_t n = recvmsg(exchange.in.fd(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
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
    exchange.in_ended = true;
    // Its end would be news for ever.
    epoll_ctl(incoming_.fd(), EPOLL_CTL_DEL, exchange.in.fd(), nullptr);
    exchange.in.reset();
    return false;
  }
  // Without a descriptor that was sent, because this process could hold no more, the
  // message is kept all the same: a call that needs it says why it cannot have it.
  const bool had_one = fd || (m.msg_flags & MSG_CTRUNC) != 0;
  if (n == sizeof message && (had_one || message.type == Message::freed)) {
    keep(exchange, message, std::move(fd));
  }
  return true;
}

void HostPeers::keep(Exchange& exchange, const Message& message, FileDescriptor fd) {
  if (message.type == Message::segment) {
    exchange.segments[message.key] = std::move(fd);
  } else if (message.type == Message::freed) {
    const auto window = exchange.windows.find(message.window_id);
    if (window == exchange.windows.end()) return;
    // It stays mapped for those that have it from find_window(), which gives it to no more of them:
    // the lock is held.
    const std::shared_ptr<SharedMemory>& memory = window->second.memory;
    if (memory.use_count() > 1) memory->let_go();
    exchange.windows.erase(window);
  } else if (message.type == Message::window) {
    // What is wrong with a window matters only to a call that needs it.
    Window& window = exchange.windows[message.window_id];
    window = {};
    if (!fd) {
      window.trouble = out_of_descriptors();
      return;
    }
    try {
      window.memory = SharedMemory::map(std::move(fd), message.bytes);
    } catch (const std::exception& e) {
      window.trouble = as_error(e).what();
    }
  }
}

void HostPeers::take_all(Peer& peer) {
  if (!peer.exchange) return;
  while (take(*peer.exchange)) {
  }
}

void HostPeers::post_all_unsent() {
  std::erase_if(behind_, [&](Peer* peer) {
    post_unsent(*peer);
    return peer->exchange->unsent.empty();
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
  // What it has sent before it went is there then.
  const bool gone = p.is_gone();
  post_all_unsent();
  serve();
  take_all(p);
  if (p.exchange) {
    if (auto found = p.exchange->segments.extract(key)) {
      if (found.mapped()) return std::move(found.mapped());
      throw Error(ErrorCode::system,
                  fmt::format("the memory that process {} passes cannot be taken: {}", p.who->pid,
                              out_of_descriptors()),
                  number_);
    }
  }
  if (lacks_descriptors_) throw Error(ErrorCode::system, no_room_for_a_call(), number_);
  // A rank that lives calls again, where it has something to say.
  const bool hung_up = p.exchange && p.exchange->in_ended && p.state() != LifeWord::State::alive &&
                       (p.who->pid == 0 || process_has_ended(p.who->pid, p.started));
  if (gone || hung_up) {
    throw Error(ErrorCode::peer_lost,
                fmt::format("process {} died while its memory was being connected", p.who->pid),
                peer);
  }
  return {};
}

FileDescriptor HostPeers::receive(int peer, std::uint64_t key, Deadline deadline) {
  const auto moment = [&] {
    const std::lock_guard lock(mutex_);
    return among(peers_.size(), kMoment);
  }();
  for (;;) {
    FileDescriptor fd = find_descriptor(peer, key);
    if (fd) return fd;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) throw_late(peer, this->peer(peer)->pid);
    throw_if_stopping();
    // Until something comes; what is left to be done without that can wait for a moment.
    wait_for(incoming_.fd(), POLLIN, std::min(deadline, now + moment));
  }
}

std::shared_ptr<SharedMemory> HostPeers::receive(int peer, std::uint64_t key, std::size_t bytes,
                                                 std::size_t mapped, Deadline deadline) {
  if (!this->peer(peer)->same_process) {
    return SharedMemory::map(receive(peer, key, deadline), bytes, mapped);
  }
  std::shared_ptr<SharedMemory> memory;
  const auto is_there = [&] {
    ProcessMemory& m = process_memory();
    const std::lock_guard lock(m.mutex);
    if (const auto it = m.by_key.find(key); it != m.by_key.end()) memory = it->second.lock();
    return memory != nullptr;
  };
  if (!wait_until(deadline, is_there)) throw_late(peer, this->peer(peer)->pid);
  return memory;
}

void HostPeers::note_refusal(std::uint64_t id, std::uint64_t because_of) {
  for (const auto& meeting : meetings_) {
    if (meeting->board) meeting->board->refuse(meeting->place, id, because_of);
  }
}

void HostPeers::refuse(std::uint64_t id, int because_of) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(because_of);
  note_refusal(id, found == peers_.end() ? 0 : found->second.who->identity);
}

void HostPeers::give_up(std::uint64_t id, std::uint64_t because_of) {
  const std::lock_guard lock(mutex_);
  note_refusal(id, because_of);
  meeting_.reset();
  settle();
  retire_meetings();
  find_neighbours();
}

std::optional<int> HostPeers::refusal(int peer, std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  for (const Seat* const seat : {&p.now, &p.before}) {
    if (seat->board() == nullptr) continue;
    const auto because_of = seat->board()->refusal(seat->place, id);
    if (because_of) return number_of(*because_of);
  }
  // A rank that did not get the board, and gave up, cannot say so there. But it refuses
  // connections, as does a process that is being killed, a moment before it has ended.
  const bool refuses = p.in_another_process() && p.now.board() != nullptr &&
                       p.now.state() == LifeWord::State::unborn && refuses_calls(p.now.socket);
  if (!refuses) {
    p.refused_since.reset();
    return std::nullopt;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!p.refused_since) p.refused_since = now;
  p.has_ended = p.who->pid > 0 && process_has_ended(p.who->pid, p.started);
  const bool has_given_up = !p.has_ended && now - *p.refused_since >= kKilledWithin;
  return has_given_up ? std::optional(-1) : std::nullopt;
}

bool HostPeers::has_refusals() {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(meetings_, [](const auto& meeting) {
    return meeting->board && meeting->board->has_refusals();
  });
}

void HostPeers::announce(const WindowMemory& window, std::span<const int> peers) {
  if (window.id == 0) return;
  const std::lock_guard lock(mutex_);
  for (const int p : peers) {
    Peer& peer = at(p);
    if (!peer.in_another_process() || exchange_with(peer).told.contains(window.id)) continue;
    take_all(peer);
    post(peer, {Message::window, window.id, 0, window.bytes}, window.fd);
    peer.exchange->told[window.id] = {window.bytes, window.fd};
  }
}

void HostPeers::window_freed(std::uint32_t id) noexcept {
  if (process_generation() != generation_) return;  // a child's copy of it is gone, nothing else
  const std::lock_guard lock(mutex_);
  for (auto& [p, peer] : peers_) {
    if (!peer.exchange || peer.exchange->told.erase(id) == 0) continue;
    try {
      std::deque<Unsent>& waiting = peer.exchange->unsent;
      const auto unsent =
          std::ranges::find_if(waiting, [&](const Unsent& u) { return u.message.window_id == id; });
      if (unsent != waiting.end()) {
        waiting.erase(unsent);
      } else {
        post(peer, {Message::freed, id}, -1);
      }
    } catch (const std::exception& e) {
      log().warn("rank {} cannot tell rank {} that window {} was freed: {}", number_, p, id,
                 e.what());
    }
  }
}

std::shared_ptr<SharedMemory> HostPeers::find_window(int peer, std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  Peer& p = at(peer);
  const auto find = [&]() -> std::shared_ptr<SharedMemory> {
    if (!p.exchange) return nullptr;
    const auto it = p.exchange->windows.find(id);
    return it == p.exchange->windows.end() ? nullptr : it->second.memory;
  };
  if (auto known = find()) return known;
  post_all_unsent();  // the peer may wait for one of ours
  serve();            // it may call only now
  take_all(p);
  return find();
}

std::string HostPeers::window_trouble(int peer, std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  const Peer& p = at(peer);
  if (p.exchange) {
    const auto it = p.exchange->windows.find(id);
    if (it != p.exchange->windows.end()) return it->second.trouble;
  }
  if (lacks_descriptors_) return no_room_for_a_call();
  if (refused_user_ < 0 || !p.in_another_process()) return "";
  return fmt::format(
      "a process of user {} has called, and this one is user {}: ranks of a host are "
      "of one user, and if they give up privileges later, all of them do",
      refused_user_, own_user());
}

void HostPeers::drain() {
  if (!has_neighbours_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  post_all_unsent();
  serve();
}

}  // namespace tutti
