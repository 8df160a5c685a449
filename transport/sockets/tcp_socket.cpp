#include "transport/sockets/tcp_socket.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/host.h"
#include "core/settings.h"

namespace tutti {
namespace {

/// TCP sends data without an acknowledgement again after 0.2 s, and then each time after twice as
/// long. From now on it does so after a second at most, so that a connection goes on soon after an
/// outage. False: this kernel (before 6.15) cannot do so.
bool asks_every_second(int fd) {
  constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which headers may not have yet
  constexpr int kSecond = 1000;
  return ::setsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &kSecond, sizeof kSecond) == 0;
}

}  // namespace

void check_congestion_control() {
  const std::string wish = setting_text("TUTTI_TCP_CONGESTION");
  if (wish.empty() || wish == "system") return;
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, wish.data(),
                              static_cast<socklen_t>(wish.size())) == 0) {
    return;
  }
  const bool forbidden = errno == EPERM;
  const std::string names = first_line(fmt::format("/proc/sys/net/ipv4/tcp_{}_congestion_control",
                                                   forbidden ? "allowed" : "available"));
  throw Error(ErrorCode::invalid_argument,
              fmt::format("TUTTI_TCP_CONGESTION={}: {}: {}", wish,
                          forbidden ? "this process may not choose it; it may choose"
                                    : "the kernel of this host has no such congestion control; "
                                      "it has",
                          names));
}

std::string congestion_control_in_use() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tune_socket(socket);
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  ::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length);
  return name.data();
}

void tune_socket(const FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  asks_every_second(socket.fd());
  const std::string wish = setting_text("TUTTI_TCP_CONGESTION");
  const auto use = [&](std::string_view name) {
    return ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                        static_cast<socklen_t>(name.size())) == 0;
  };
  if (wish == "system") return;
  if (!wish.empty()) {
    use(wish);
  } else if (!use("cubic")) {  // which only a host's first network namespace may choose
    use("reno");
  }
}

std::chrono::milliseconds silence_limit() {
  using namespace std::chrono;
  const auto outage = duration_cast<milliseconds>(setting_seconds("TUTTI_PEER_TIMEOUT"));
  if (outage.count() == 0) return outage;
  static const bool often =
      asks_every_second(FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).fd());
  // The last answer may be a second old when the outage begins, and the next question comes a
  // second after its end, or after as long again as it has lasted.
  return outage + (often ? 0s : outage) + 2s;
}

void watch_over(int fd) {
  using namespace std::chrono;
  const auto limit = silence_limit();
  if (limit.count() == 0) return;
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  // An idle connection asks every second. It gives up when it is to ask again after the limit (on
  // kernels that do not go by that, after as many questions); one with something under way gives up
  // at the limit.
  const auto probes = std::max<std::int64_t>(1, limit.count() / 1000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(std::min<std::int64_t>(probes, 120)));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(std::min<std::int64_t>(limit.count(), INT32_MAX)));
}

void stop_watching_over(int fd) {
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off);
  watch_over_idle(fd);
}

void watch_over_idle(int fd) {
  const int off = 0;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &off, sizeof off);
}

void acknowledge(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

bool has_hung_up(int fd) {
  pollfd socket{fd, POLLRDHUP, 0};
  return ::poll(&socket, 1, 0) > 0;
}

bool has_ended(int fd) {
  char next = 0;
  const ssize_t got = ::recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool has_delivered(int fd) {
  int unsent = 0;
  return ::ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0 || has_hung_up(fd);
}

FileDescriptor begin_to_connect(const SocketAddress& address, const SocketAddress& from) {
  return start_connecting(address, [&](const FileDescriptor& socket) {
    tune_socket(socket);
    watch_over(socket.fd());
    if (from.family() != address.family()) return;
    // So that what the others see is the interface that was chosen; if that fails, any will do.
    const int on = 1;
    ::setsockopt(socket.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    const SocketAddress local = with_port(from, 0);
    [[maybe_unused]] const int bound = ::bind(socket.fd(), local.get(), local.length);
  });
}

}  // namespace tutti
