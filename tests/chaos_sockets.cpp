// See chaos_sockets.h. The functions of libc that the library calls are defined again here; a
// program's own definitions come first.
#include "tests/chaos_sockets.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

/// The function that would have been called without this file.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

/// One end of a connection.
struct End {
  bool tcp = false;
  std::uint64_t received = 0, struck_at = 0;  // bytes; 0: never
  Clock::time_point sends{}, receives{};      // not before
};

struct State {
  std::mutex mutex;
  Chaos chaos;
  std::mt19937 random;
  std::unordered_map<int, End> ends;
  std::uint64_t received = 0;
  bool struck = false;
};
State& state() {
  static auto* const instance = new State;
  return *instance;
}
std::atomic<bool> raging{false};

End& end_of(State& s, int fd) {
  const auto [found, fresh] = s.ends.try_emplace(fd);
  if (fresh) {
    int domain = 0;
    socklen_t length = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length);
    found->second.tcp = domain == AF_INET || domain == AF_INET6;
  }
  return found->second;
}

/// How much of `bytes` may go now: all sizes are likely, short ones as well as long ones. None:
/// nothing at all, until `not_before`.
std::size_t draw(State& s, Clock::time_point& not_before, std::size_t bytes) {
  const auto now = Clock::now();
  if (now < not_before) return 0;
  const unsigned what = s.random() % 16;
  if (what == 0) {
    // Now and then for long, so that other connections get ahead.
    const unsigned most = s.random() % 16 == 0 ? 3000 : 100;
    not_before = now + std::chrono::microseconds(s.random() % most);
    return 0;
  }
  if (what < 6 || bytes <= 1) return bytes;
  std::size_t most = 1;
  while (most < bytes && s.random() % 8 != 0) most *= 2;
  return 1 + s.random() % std::min(most, bytes);
}

/// The parts of a message, cut to so many bytes in all.
class Cut {
 public:
  Cut(const msghdr& whole, std::size_t bytes) : message(whole) {
    message.msg_iov = parts_.data();
    message.msg_iovlen = 0;
    for (std::size_t p = 0; p < whole.msg_iovlen && bytes > 0 && p < parts_.size(); ++p) {
      iovec& part = parts_[message.msg_iovlen++];
      part = whole.msg_iov[p];
      part.iov_len = std::min(part.iov_len, bytes);
      bytes -= part.iov_len;
    }
  }
  msghdr message;

 private:
  std::array<iovec, 128> parts_;
};

std::size_t bytes_of(const msghdr& message) {
  std::size_t bytes = 0;
  for (std::size_t p = 0; p < message.msg_iovlen; ++p) bytes += message.msg_iov[p].iov_len;
  return bytes;
}

/// How much may be sent or received; all: this socket is left alone.
enum class Way : std::uint8_t { out, in };
std::optional<std::size_t> allowed(int fd, Way way, std::size_t bytes) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  End& end = end_of(s, fd);
  if (!end.tcp) return std::nullopt;
  return draw(s, way == Way::out ? end.sends : end.receives, bytes);
}

void break_connection(int fd, Chaos::Strike strike) {
  if (strike == Chaos::Strike::hang_up) {
    ::shutdown(fd, SHUT_RDWR);
    return;
  }
  // Disconnecting sends a reset.
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  ::connect(fd, &none, sizeof none);
}

/// Byte `at` of those that have come is struck. What is returned is returned.
ssize_t strike(State& s, Chaos::Strike what, int fd, const msghdr& message, ssize_t bytes,
               std::size_t at) {
  if (what != Chaos::Strike::flip) {
    break_connection(fd, what);
    if (what == Chaos::Strike::hang_up) return bytes;
    errno = ECONNRESET;
    return -1;
  }
  for (std::size_t p = 0; p < message.msg_iovlen; ++p) {
    const iovec& part = message.msg_iov[p];
    if (at < part.iov_len) {
      static_cast<std::byte*>(part.iov_base)[at] ^= std::byte{1} << s.random() % 8;
      break;
    }
    at -= part.iov_len;
  }
  return bytes;
}

/// So many bytes of `message` have come.
ssize_t came(int fd, const msghdr& message, ssize_t bytes) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (bytes <= 0) return bytes;
  const auto count = static_cast<std::uint64_t>(bytes);
  End& end = end_of(s, fd);
  const std::uint64_t here = std::exchange(end.received, end.received + count);
  if (end.struck_at > here && end.struck_at <= end.received) {
    return strike(s, static_cast<Chaos::Strike>(s.random() % 3), fd, message, bytes,
                  end.struck_at - 1 - here);
  }
  const std::uint64_t before = std::exchange(s.received, s.received + count);
  if (s.struck || s.chaos.strikes_at == 0 || s.received < s.chaos.strikes_at) return bytes;
  s.struck = true;
  return strike(s, s.chaos.strike, fd, message, bytes, s.chaos.strikes_at - 1 - before);
}

// --- Dials ---------------------------------------------------------------------------------------

// What the acceptor sends before it says of the connection that it takes it: a greeting and a MAC.
constexpr std::uint64_t kBeforeAnswer = 80;

/// A port of this host that turns connections away, or one that does not answer.
sockaddr_in port_that(bool turns_away) {
  static std::array<sockaddr_in, 2> ports{};
  sockaddr_in& port = ports[turns_away ? 0 : 1];
  if (port.sin_port != 0) return port;
  port.sin_family = AF_INET;
  port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof port;
  auto* const address = reinterpret_cast<sockaddr*>(&port);
  const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bind(held, address, length);
  getsockname(held, address, &length);
  if (turns_away) return port;
  // A listener whose queue is full drops what else comes.
  listen(held, 0);
  static auto* const real = next<decltype(connect)>("connect");
  for (int i = 0; i < 4; ++i) {
    const int waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    real(waiting, address, length);
  }
  return port;
}

/// Where a dial goes instead, if it is a rank's to another host: those have an address of their own
/// before they connect.
std::optional<sockaddr_in> diverted(int fd, const sockaddr* to) {
  sockaddr_in own{};
  socklen_t length = sizeof own;
  if (to->sa_family != AF_INET ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      own.sin_family != AF_INET || own.sin_addr.s_addr == 0) {
    return std::nullopt;
  }
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const std::uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(to)->sin_port);
  if (std::ranges::count(s.chaos.closed_ports, port) > 0) return port_that(s.chaos.turns_away);
  const unsigned fate = s.random() % 16;
  if (fate < s.chaos.turned_away) return port_that(true);
  if (fate < s.chaos.turned_away + s.chaos.unanswered) return port_that(false);
  if (fate < s.chaos.turned_away + s.chaos.unanswered + s.chaos.struck) {
    end_of(s, fd).struck_at = 1 + s.random() % kBeforeAnswer;
  }
  return std::nullopt;
}

ssize_t not_now() {
  errno = EAGAIN;
  return -1;
}

}  // namespace

void begin_chaos(const Chaos& chaos) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.chaos = chaos;
  s.random.seed(chaos.seed);
  s.received = 0;
  s.struck = false;
  s.ends.clear();
  raging = true;
}

bool end_chaos() {
  raging = false;
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.struck;
}

namespace {
[[maybe_unused]] const bool asked_for = [] {
  const char* const seed = std::getenv("TUTTI_TEST_CHAOS");
  if (seed != nullptr) begin_chaos({.seed = static_cast<unsigned>(std::atoi(seed))});
  return seed != nullptr;
}();
}  // namespace

}  // namespace tutti::test

extern "C" {

using tutti::test::allowed;
using tutti::test::came;
using tutti::test::Cut;
using tutti::test::not_now;
using tutti::test::raging;
using tutti::test::Way;

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static auto* const real = tutti::test::next<decltype(sendmsg)>("sendmsg");
  if (!raging) return real(fd, message, flags);
  const auto bytes = allowed(fd, Way::out, tutti::test::bytes_of(*message));
  if (!bytes) return real(fd, message, flags);
  if (*bytes == 0) return not_now();
  const Cut cut(*message, *bytes);
  return real(fd, &cut.message, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const real = tutti::test::next<decltype(recvmsg)>("recvmsg");
  if (!raging) return real(fd, message, flags);
  const auto bytes = allowed(fd, Way::in, tutti::test::bytes_of(*message));
  if (!bytes) return real(fd, message, flags);
  if (*bytes == 0) return not_now();
  Cut cut(*message, *bytes);
  return came(fd, *message, real(fd, &cut.message, flags));
}

ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  iovec part{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return sendmsg(fd, &message, flags);
}

ssize_t recv(int fd, void* data, std::size_t bytes, int flags) {
  iovec part{data, bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return recvmsg(fd, &message, flags);
}

int connect(int fd, const sockaddr* to, socklen_t length) {
  static auto* const real = tutti::test::next<decltype(connect)>("connect");
  if (!raging) return real(fd, to, length);
  const auto elsewhere = tutti::test::diverted(fd, to);
  if (!elsewhere) return real(fd, to, length);
  return real(fd, reinterpret_cast<const sockaddr*>(&*elsewhere), sizeof *elsewhere);
}

// The number may be another socket's next.
int close(int fd) {
  static auto* const real = tutti::test::next<decltype(close)>("close");
  if (raging) {
    const std::lock_guard lock(tutti::test::state().mutex);
    tutti::test::state().ends.erase(fd);
  }
  return real(fd);
}

}  // extern "C"
