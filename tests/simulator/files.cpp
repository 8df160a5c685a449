// See files.h: what is not TCP, and the descriptors of a process.
#include "tests/simulator/files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tests/simulator/calls.h"

namespace tutti::simulator {
namespace {

std::map<std::pair<int, std::string>, Local*>& local_listeners() {
  static auto* const instance = new std::map<std::pair<int, std::string>, Local*>;
  return *instance;
}

void release(Object& object) {
  if (--object.references > 0) return;
  for (Epoll* const set : object.sets) {
    std::erase_if(set->watches, [&](const auto& w) { return w.second.object == &object; });
  }
  object.sets.clear();
  object.end();
}

}  // namespace

// --- epoll ---------------------------------------------------------------------------------------

std::uint32_t Epoll::ready_of(const Watch& watch) {
  if ((watch.event.events & EPOLLET) != 0 && watch.said == watch.object->changes) return 0;
  if (watch.off) return 0;
  return watch.object->ready() & (watch.event.events | EPOLLERR | EPOLLHUP);
}

std::uint32_t Epoll::ready() {
  for (const auto& [fd, watch] : watches) {
    if (ready_of(watch) != 0) return EPOLLIN;
  }
  return 0;
}

void Epoll::end() {
  for (const auto& [fd, watch] : watches) std::erase(watch.object->sets, this);
  watches.clear();
}

// --- sockets inside a host -----------------------------------------------------------------------

std::uint32_t Local::ready() {
  if (listens) return backlog.empty() ? 0U : EPOLLIN;
  if (!connected) return EPOLLOUT | EPOLLHUP;
  std::uint32_t is = EPOLLOUT;
  if (!packets.empty() || fin_came) is |= EPOLLIN;
  if (fin_came) is |= EPOLLRDHUP;
  if (fin_came && (fin_sent || peer->references == 0)) is |= EPOLLHUP;
  return is;
}

void Local::end() {
  if (listens) {
    local_listeners().erase({process->host, name});
    for (Local* const waiting : backlog) {
      waiting->peer->fin_came = true;
      waiting->peer->changed();
    }
  } else if (connected && !fin_sent) {
    peer->fin_came = true;
    peer->changed();
  }
  for (Packet& packet : packets) {
    for (Object* const object : packet.objects) release(*object);
    for (const int fd : packet.real_files) ::close(fd);
  }
}

int local_bind(Local& socket, const std::string& name) {
  if (!local_listeners().try_emplace({socket.process->host, name}, &socket).second) {
    return EADDRINUSE;
  }
  socket.name = name;
  return 0;
}

int local_connect(Local& socket, const std::string& name) {
  const auto found = local_listeners().find({socket.process->host, name});
  if (found == local_listeners().end() || !found->second->listens) return ECONNREFUSED;
  Local& listener = *found->second;
  auto* const server = new Local(*listener.process);
  server->connected = socket.connected = true;
  server->peer = &socket;
  socket.peer = server;
  listener.backlog.push_back(server);
  listener.changed();
  return 0;
}

// --- descriptors ---------------------------------------------------------------------------------

int add_file(Process& process, Object& object) {
  ++object.references;
  const auto free = std::ranges::find(process.files, nullptr);
  const auto at = free - process.files.begin();
  if (free == process.files.end()) {
    process.files.push_back(&object);
  } else {
    *free = &object;
  }
  return kFirstFile + static_cast<int>(at);
}

Object* file(Process& process, int fd) {
  const auto at = static_cast<std::size_t>(fd - kFirstFile);
  return fd >= kFirstFile && at < process.files.size() ? process.files[at] : nullptr;
}

void close_file(Process& process, int fd) {
  Object*& at = process.files[static_cast<std::size_t>(fd - kFirstFile)];
  Object& object = *at;
  at = nullptr;
  release(object);
}

void close_all(Process& process) {
  if (process.silent) {  // its peers hear nothing
    process.files.clear();
    return;
  }
  for (std::size_t f = 0; f < process.files.size(); ++f) {
    if (process.files[f] != nullptr) close_file(process, kFirstFile + static_cast<int>(f));
  }
}

std::string name_of_real_file(int fd) {
  char name[256] = "?";
  const auto length =
      REAL(readlink)(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name - 1);
  return {name, length > 0 ? static_cast<std::size_t>(length) : 1};
}

std::string open_files(const Process& process) {
  std::string text;
  for (std::size_t f = 0; f < process.files.size(); ++f) {
    const Object* const object = process.files[f];
    if (object == nullptr) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(kFirstFile + static_cast<int>(f));
    if (object->kind == Object::Kind::tcp) {
      const auto& tcp = static_cast<const Tcp&>(*object);
      text += tcp.state == Tcp::State::listening
                  ? " (tcp, listens at " + text_of(tcp.local) + ")"
                  : " (tcp, " + text_of(tcp.local) + " to " + text_of(tcp.remote) + ")";
    } else {
      constexpr const char* kNames[] = {"tcp", "local", "datagram", "eventfd", "epoll", "pidfd"};
      text += std::string(" (") + kNames[static_cast<int>(object->kind)] + ")";
    }
  }
  return text;
}

}  // namespace tutti::simulator
