// Two ends of a wire over RDMA for tests: in one process, or in two that are connected by a socket.
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/verbs/verbs_endpoint.h"
#include "transport/wire.h"

namespace tutti::test {

/// The first port that can be used, or that of `device`; none: there is no RDMA here.
inline std::optional<VerbsPort> usable_port(const std::string& device = "") {
  for (const VerbsPort& port : verbs_ports()) {
    if (port.objection.empty() && (device.empty() || port.device == device)) return port;
  }
  return std::nullopt;
}

/// One end, and what its wire has said.
struct End final : Wire::Owner {
  explicit End(std::shared_ptr<VerbsDevice> device, int peer,
               const VerbsOptions& options = VerbsOptions::from_settings())
      : windows(std::make_shared<VerbsWindows>(std::move(device))),
        wire(*this, [&](Endpoint::Sink& sink) {
          return std::make_unique<VerbsEndpoint>(sink, windows, peer, options);
        }) {}
  void on_left(std::uint64_t group) override { left.push_back(group); }
  void on_closed(const std::string& why) override {
    is_closed = true;
    why_closed = why;
  }
  void on_polled() override {}

  Sender& sender(std::uint64_t channel, const ConnectionShape& shape, std::uint64_t group = 1) {
    return wire.out({group, channel}, shape, doorbell).sender();
  }
  /// Receiving end of a link, which rings its sender when it has freed.
  InLink& in(std::uint64_t channel, const ConnectionShape& shape, std::uint64_t group = 1) {
    return wire.in({group, channel}, shape, doorbell);
  }
  OutLink& out(std::uint64_t channel, const ConnectionShape& shape, std::uint64_t group = 1) {
    return wire.out({group, channel}, shape, doorbell);
  }

  Doorbell doorbell{};
  std::vector<std::uint64_t> left;
  bool is_closed = false;
  std::string why_closed;
  const std::shared_ptr<VerbsWindows> windows;
  Wire wire;
};

/// Ranks 0 and 1.
struct TwoEnds {
  explicit TwoEnds(const VerbsPort& port,
                   const VerbsOptions& options = VerbsOptions::from_settings())
      : device(VerbsDevice::open(port)), a(device, 1, options), b(device, 0, options) {
    a.wire.connect(b.wire.address());
    b.wire.connect(a.wire.address());
    a.wire.start();
    b.wire.start();
  }
  void poll() {
    a.wire.poll_and_tell();
    b.wire.poll_and_tell();
  }
  /// Polls both until then; false after `limit`.
  bool until(const std::function<bool()>& condition,
             std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      poll();
    }
    return true;
  }

  std::shared_ptr<VerbsDevice> device;
  End a, b;
};

/// Connects `end` to the one in the process at the other end of `socket`.
inline void meet(End& end, int socket) {
  const auto exchange = [&](const void* mine, void* theirs, std::size_t bytes) {
    if (::send(socket, mine, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes) ||
        ::recv(socket, theirs, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) {
      throw Error(ErrorCode::peer_lost, "the other process of this test is gone");
    }
  };
  const std::vector<std::byte> mine = end.wire.address();
  std::vector<std::byte> theirs(mine.size());
  exchange(mine.data(), theirs.data(), mine.size());
  end.wire.connect(theirs);
  char ready = 1, other = 0;
  exchange(&ready, &other, 1);
  end.wire.start();
}

/// A child of this process, with a socket to it; killed at the end, if it still runs.
class Child {
 public:
  /// `work` returns the child's exit code.
  explicit Child(const std::function<int(int socket)>& work) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw_system_error("socketpair");
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      int code = 99;
      try {
        code = work(ends[1]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "child: %s\n", error.what());
      }
      _exit(code);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  ~Child() {
    if (process_ > 0) kill();
    close(socket_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int socket() const { return socket_; }
  void kill() {
    ::kill(process_, SIGKILL);
    wait();
  }
  /// Its exit code; -1: it was killed.
  int wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = -1;
  int socket_ = -1;
};

/// Differs by message and by position.
inline std::byte pattern(std::uint64_t message, std::size_t i) {
  return static_cast<std::byte>((message * 31 + i * 7 + (i >> 8) * 13 + (i >> 16)) & 0xff);
}
inline void fill(std::byte* to, std::uint64_t message, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = pattern(message, i);
}
/// The first position that is wrong; `bytes`: none is.
inline std::size_t first_wrong(const std::byte* at, std::uint64_t message, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (at[i] != pattern(message, i)) return i;
  }
  return bytes;
}

inline bool try_send(OutLink& link, std::uint64_t message, std::size_t bytes) {
  Sender& sender = link.sender();
  if (!sender.ready(bytes)) return false;
  fill(sender.slot(bytes), message, bytes);
  sender.publish(static_cast<std::uint32_t>(message), static_cast<std::uint32_t>(bytes));
  link.rung();
  return true;
}

/// True: message `message` of `bytes` was there, and right. Throws where it is not right.
inline bool try_receive(InLink& link, std::uint64_t message, std::size_t bytes) {
  Receiver& receiver = link.receiver();
  if (!receiver.ready()) return false;
  if (receiver.tag() != static_cast<std::uint32_t>(message) || receiver.bytes() != bytes) {
    throw Error(ErrorCode::internal, "a message has another tag or length");
  }
  const std::size_t wrong = first_wrong(receiver.slot(bytes), message, bytes);
  if (wrong != bytes) {
    throw Error(ErrorCode::internal, "message " + std::to_string(message) + " of " +
                                         std::to_string(bytes) + " bytes is wrong at " +
                                         std::to_string(wrong));
  }
  receiver.free();
  link.rung();
  return true;
}

}  // namespace tutti::test
