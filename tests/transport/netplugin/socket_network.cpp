// How connections over sockets are made, and move messages.
#include "socket_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>

namespace tutti::test {

Logger logger = nullptr;

// --- What a test wants to go wrong ---------------------------------------------------------------

bool is_to_fail(const char* function) {
  static std::mutex mutex;
  static std::map<std::string, int> calls;
  const char* const wanted = std::getenv("TUTTI_TEST_PLUGIN_FAIL");
  if (wanted == nullptr) return false;
  const std::string text(wanted);
  const std::size_t colon = text.find(':');
  if (text.substr(0, colon) != function) return false;
  const int which = colon == std::string::npos ? 1 : std::atoi(text.c_str() + colon + 1);
  const std::lock_guard lock(mutex);
  return ++calls[function] >= which;
}

namespace {

bool is_stalled() {
  static std::atomic<int> done{0};
  const char* const after = std::getenv("TUTTI_TEST_PLUGIN_STALL");
  return after != nullptr && done++ >= std::atoi(after);
}

/// The same in every run, and another for every connection.
struct Dice {
  std::minstd_rand engine;
  bool one_in(unsigned n) { return engine() % n == 0; }
};

// --- Connections ---------------------------------------------------------------------------------

constexpr std::size_t kMostRequests = 32, kHandle = 128, kMostWrite = 40000;

void unblock(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

struct Listener {
  int fd = -1;
  int accepted = -1;
  std::uint64_t secret = 0, heard = 0;
  std::size_t got = 0;
};

/// What a handle has in it.
struct Handle {
  std::uint32_t magic;
  std::uint16_t port;
  std::uint64_t secret;
  // The connecting side's notes.
  int fd_plus_one;
  bool sent;
};
static_assert(sizeof(Handle) <= kHandle);
constexpr std::uint32_t kMagic = 0x70357574;

struct Connection;
struct Request {
  Connection* connection = nullptr;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;   // to send, or room
  std::uint64_t length = 0;  // in front of the message
  std::size_t moved = 0;     // of both
  bool done = false, started = false;
};

struct Memory {
  Connection* connection;
  std::byte* begin;
  std::size_t bytes;
};

struct Connection {
  int fd = -1;
  bool sends = false;
  int status = kSuccess;
  std::deque<std::unique_ptr<Request>> requests;  // in order
  std::map<Memory*, std::unique_ptr<Memory>> memory;
  Dice dice;
  std::atomic_flag used = ATOMIC_FLAG_INIT;
};

/// Ends the process where two threads are in one connection.
class OneThread {
 public:
  explicit OneThread(Connection& c) : connection_(c) {
    if (c.used.test_and_set()) std::abort();
  }
  ~OneThread() { connection_.used.clear(); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  Connection& connection_;
};

/// Moves what can be moved of one request. False: no more now.
bool move(Connection& c, Request& r) {
  while (!r.done) {
    const bool in_length = r.moved < sizeof r.length;
    const std::uint64_t total = sizeof r.length + (c.sends || !in_length ? r.length : 0);
    std::byte* const at = in_length ? reinterpret_cast<std::byte*>(&r.length) + r.moved
                                    : r.data + (r.moved - sizeof r.length);
    std::size_t count = (in_length ? sizeof r.length : total) - r.moved;
    if (c.sends) count = std::min<std::size_t>(count, 1 + c.dice.engine() % kMostWrite);
    if (count > 0) {
      const ssize_t n = c.sends ? send(c.fd, at, count, MSG_NOSIGNAL) : recv(c.fd, at, count, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      if (n == 0) {
        c.status = fail(kRemote, "the peer at socket %d is gone", c.fd);
        return false;
      }
      if (n < 0) {
        c.status = fail(kSystem, "socket %d: %s", c.fd, std::strerror(errno));
        return false;
      }
      r.started = true;
      r.moved += static_cast<std::size_t>(n);
    }
    if (r.moved < sizeof r.length) continue;
    if (r.length > r.bytes) {
      c.status = fail(kUsage, "a message of %lu bytes does not fit into %lu", r.length, r.bytes);
      return false;
    }
    r.done = r.moved == sizeof r.length + r.length;
    // So much for now.
    if (c.sends && !r.done && c.dice.one_in(3)) return false;
  }
  return true;
}

void progress(Connection& c) {
  for (const auto& request : c.requests) {
    if (c.status != kSuccess) return;
    if (!request->done && !move(c, *request)) return;
  }
}

int begin(Connection& c, void* data, std::size_t bytes, void* registration, void** request) {
  const OneThread alone(c);
  *request = nullptr;
  const auto found = c.memory.find(static_cast<Memory*>(registration));
  auto* const at = static_cast<std::byte*>(data);
  if (found == c.memory.end() || at < found->second->begin ||
      at + bytes > found->second->begin + found->second->bytes) {
    return fail(kInternal, "%lu bytes at %p are not registered", bytes, data);
  }
  if (c.requests.size() >= kMostRequests) return fail(kInternal, "too many requests");
  if (c.status != kSuccess) return c.status;
  if (c.dice.one_in(4)) return kSuccess;  // not now
  auto r = std::make_unique<Request>();
  *r = {&c, at, bytes, c.sends ? bytes : 0, 0, false, false};
  *request = r.get();
  c.requests.push_back(std::move(r));
  progress(c);
  return kSuccess;
}

Connection* new_connection(int fd, bool sends, std::uint64_t secret) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto* const c = new Connection;
  c->fd = fd;
  c->sends = sends;
  c->dice.engine.seed(static_cast<unsigned>(secret));
  return c;
}

}  // namespace

// --- The functions of all versions ---------------------------------------------------------------

int devices(int* count) {
  if (is_to_fail("devices")) return fail(kSystem, "told to fail");
  *count = 2;
  return kSuccess;
}

int listen_at(int device, void* handle, void** listener) {
  if (is_to_fail("listen")) return fail(kSystem, "told to fail");
  if (device < 0 || device > 1) return fail(kInternal, "there is no device %d", device);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto l = std::make_unique<Listener>();
  l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unblock(l->fd);
  if (bind(l->fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(l->fd, 4) != 0 ||
      getsockname(l->fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail(kSystem, "listening: %s", std::strerror(errno));
  }
  l->secret = std::random_device{}() | std::uint64_t{1} << 40;
  const Handle h{kMagic, ntohs(address.sin_port), l->secret, 0, false};
  std::memcpy(handle, &h, sizeof h);
  *listener = l.release();
  return kSuccess;
}

int connect_to(int device, void* handle, void** sender) {
  *sender = nullptr;
  if (is_to_fail("connect")) return fail(kSystem, "told to fail");
  if (device < 0 || device > 1) return fail(kInternal, "there is no device %d", device);
  Handle h{};
  std::memcpy(&h, handle, sizeof h);
  if (h.magic != kMagic) return fail(kInternal, "this is no handle of mine");
  if (is_to_fail("stall")) return kSuccess;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(h.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (h.fd_plus_one == 0) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unblock(fd);
    h.fd_plus_one = fd + 1;
    std::memcpy(handle, &h, sizeof h);
  }
  const int fd = h.fd_plus_one - 1;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno != EISCONN) {
    if (errno == EINPROGRESS || errno == EALREADY) return kSuccess;
    return fail(kSystem, "connecting: %s", std::strerror(errno));
  }
  if (send(fd, &h.secret, sizeof h.secret, MSG_NOSIGNAL) != sizeof h.secret) {
    return fail(kSystem, "greeting: %s", std::strerror(errno));
  }
  *sender = new_connection(fd, true, h.secret);
  return kSuccess;
}

int accept_one(void* listener, void** receiver, void**) {
  *receiver = nullptr;
  if (is_to_fail("accept")) return fail(kSystem, "told to fail");
  auto& l = *static_cast<Listener*>(listener);
  if (l.accepted < 0) {
    l.accepted = accept4(l.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (l.accepted < 0) return kSuccess;
  }
  const ssize_t n =
      recv(l.accepted, reinterpret_cast<std::byte*>(&l.heard) + l.got, sizeof l.heard - l.got, 0);
  if (n > 0) l.got += static_cast<std::size_t>(n);
  if (l.got < sizeof l.heard) return kSuccess;
  if (l.heard != l.secret) return fail(kRemote, "a stranger has connected");
  *receiver = new_connection(l.accepted, false, l.secret);
  return kSuccess;
}

int register_memory(void* connection, void* data, std::size_t bytes, int kind, void** handle) {
  auto& c = *static_cast<Connection*>(connection);
  const OneThread alone(c);
  if (is_to_fail("regMr")) return fail(kSystem, "told to fail");
  if (kind != 1) return fail(kInternal, "memory of kind %d", kind);
  auto m = std::make_unique<Memory>(Memory{&c, static_cast<std::byte*>(data), bytes});
  *handle = m.get();
  c.memory.emplace(m.get(), std::move(m));
  return kSuccess;
}

int deregister(void* connection, void* handle) {
  auto& c = *static_cast<Connection*>(connection);
  const OneThread alone(c);
  return c.memory.erase(static_cast<Memory*>(handle)) == 1
             ? kSuccess
             : fail(kInternal, "%p is no registration of this connection", handle);
}

int send_message(void* sender, void* data, std::size_t bytes, void* memory, void** request) {
  if (is_to_fail("isend")) return fail(kSystem, "told to fail");
  return begin(*static_cast<Connection*>(sender), data, bytes, memory, request);
}

int receive_message(void* receiver, void* data, std::size_t bytes, void* memory, void** request) {
  return begin(*static_cast<Connection*>(receiver), data, bytes, memory, request);
}

int test(void* request, int* done, int* bytes) {
  auto* const r = static_cast<Request*>(request);
  Connection& c = *r->connection;
  const OneThread alone(c);
  *done = 0;
  if (is_to_fail("test")) return fail(kSystem, "told to fail");
  progress(c);
  if (!r->done) return c.status;
  if (is_stalled()) return kSuccess;
  *done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(r->length);
  std::erase_if(c.requests, [&](const auto& other) { return other.get() == r; });
  return kSuccess;
}

int close_connection(void* connection) {
  auto* const c = static_cast<Connection*>(connection);
  if (!c->memory.empty() && c->status == kSuccess) {
    return fail(kUsage, "closed with %lu registrations", c->memory.size());
  }
  close(c->fd);
  delete c;
  return kSuccess;
}

int close_listener(void* listener) {
  auto* const l = static_cast<Listener*>(listener);
  close(l->fd);
  delete l;
  return kSuccess;
}

}  // namespace tutti::test
