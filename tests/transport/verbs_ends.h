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

#include "tests/transport/wire_ends.h"
#include "transport/verbs/verbs_endpoint.h"

namespace tutti::test {

/// The first port that can be used, or that of `device`; none: there is no RDMA here.
inline std::optional<VerbsPort> usable_port(const std::string& device = "") {
  for (const VerbsPort& port : verbs_ports()) {
    if (port.objection.empty() && (device.empty() || port.device == device)) return port;
  }
  return std::nullopt;
}

class VerbsTestNetwork final : public TestNetwork {
 public:
  explicit VerbsTestNetwork(const VerbsPort& port, const VerbsOptions& options = {})
      : device(VerbsDevice::open(port)), options_(options) {}
  std::unique_ptr<Endpoint> make(int side, Endpoint::Sink& sink) override {
    return std::make_unique<VerbsEndpoint>(sink, std::make_shared<VerbsWindows>(device), 1 - side,
                                           options_);
  }
  const std::shared_ptr<VerbsDevice> device;

 private:
  const VerbsOptions options_;
};

/// One end, whose peer is rank `peer`.
inline Wire::MakeEndpoint over(std::shared_ptr<VerbsDevice> device, int peer) {
  return [device, peer](Endpoint::Sink& sink) {
    return std::make_unique<VerbsEndpoint>(sink, std::make_shared<VerbsWindows>(device), peer);
  };
}

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

}  // namespace tutti::test
