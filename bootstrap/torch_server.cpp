// The store where torchrun has no agent: a program, or its starter, has set RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT by itself. As in PyTorch, rank 0 is the server then. It serves the
// one key that it puts, to clients of PyTorch's TCPStore (torch_store.h), until all have met.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <utility>
#include <vector>

#include "bootstrap/torch_store.h"
#include "core/background.h"
#include "core/error.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostPeers = 256;
constexpr auto kForOnePeer = 5s;
constexpr auto kForOthersToTake = 10s;
constexpr auto kToLookAgain = 50ms;
constexpr int kLookForEndMilliseconds = 10;
constexpr std::size_t kLongestRequest = 1024;

/// Answers peers that ask for one key, and turns away all others.
class OneKeyServer {
 public:
  OneKeyServer(FileDescriptor listener, std::string key, std::string value, Deadline deadline)
      : listener_(std::move(listener)),
        key_(std::move(key)),
        value_(std::move(value)),
        deadline_(deadline) {}

  /// Returns when the port is free again.
  void end() {
    ended_ = true;
    wait_until(
        Clock::now() + 2s, [&] { return finished_.load(); }, OnStop::ends);
  }

  void run(int stop_fd) {
    serve_until_end(stop_fd);
    peers_.clear();
    listener_.reset();
    finished_ = true;
  }

 private:
  void serve_until_end(int stop_fd) {
    while (!ended_ && Clock::now() < deadline_) {
      std::vector<pollfd> entries{{stop_fd, POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const Peer& peer : peers_) entries.push_back({peer.socket.fd(), POLLIN, 0});
      if (peers_.size() >= kMostPeers) entries[1].events = 0;
      if (::poll(entries.data(), entries.size(), kLookForEndMilliseconds) < 0 && errno != EINTR)
        throw_system_error("poll while handing out the unique id");
      if (entries[0].revents != 0) return;
      auto entry = entries.begin() + 2;
      for (auto peer = peers_.begin(); peer != peers_.end(); ++entry) {
        const bool stays =
            (entry->revents == 0 || serve(*peer)) && Clock::now() < peer->begun + kForOnePeer;
        peer = stays ? std::next(peer) : peers_.erase(peer);
      }
      if (entries[1].revents != 0) {
        if (FileDescriptor socket = accept_from(listener_))
          peers_.push_back({std::move(socket), "", Clock::now()});
      }
    }
  }

  struct Peer {
    FileDescriptor socket;
    std::string received;
    Clock::time_point begun;
  };

  /// False: the peer is to go.
  bool serve(Peer& peer) {
    std::array<char, kLongestRequest> piece;
    const ssize_t got = ::recv(peer.socket.fd(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    peer.received.append(piece.data(), static_cast<std::size_t>(got));
    if (peer.received.size() > kLongestRequest) return false;
    while (!peer.received.empty()) {
      const std::string waits = torch_wait_request(key_), gets = torch_get_request(key_);
      const std::string validates(kTorchGreeting);
      std::string answer;
      std::size_t used = 0;
      if (peer.received.starts_with(validates)) {
        used = validates.size();
      } else if (peer.received.starts_with(waits)) {
        used = waits.size();
        answer = std::string(1, '\0');
      } else if (peer.received.starts_with(gets)) {
        used = gets.size();
        answer = torch_text(value_);
      } else {
        // The rest of one of them may come.
        return std::ranges::any_of(std::array{validates, waits, gets}, [&](const auto& request) {
          return request.starts_with(peer.received);
        });
      }
      peer.received.erase(0, used);
      const ssize_t sent =
          ::send(peer.socket.fd(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent != static_cast<ssize_t>(answer.size())) return false;
    }
    return true;
  }

  FileDescriptor listener_;
  const std::string key_, value_;
  const Deadline deadline_;
  std::list<Peer> peers_;
  std::atomic<bool> ended_{false}, finished_{false};
};

class TorchServer final : public LauncherStore {
 public:
  TorchServer(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}
  ~TorchServer() override { end(); }

  std::string name() const override {
    return fmt::format("rank 0's store at {}:{} (MASTER_ADDR, MASTER_PORT)", host_, port_);
  }

  void put(const std::string& key, const std::string& value, Deadline deadline) override {
    const auto soon = std::min<Deadline>(deadline, Clock::now() + kForOthersToTake);
    FileDescriptor listener;
    while (!(listener = listen())) {
      if (errno != EADDRINUSE)
        throw_system_error(fmt::format("rank 0 cannot listen at port {}", port_));
      try {
        return torch_store(host_, port_)->put(key, value, soon);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::aborted) throw;
        // The rank 0 of another job, which ends when its ranks have met, or another server.
        if (Clock::now() < soon) {
          pause_for(kToLookAgain);
          continue;
        }
        throw Error(error.code(),
                    fmt::format("another server has port {} of this host, and it is not PyTorch's "
                                "store ({}): if it is rank 0 of another job, give each job a "
                                "MASTER_PORT of its own",
                                port_, error.what()));
      }
    }
    server_ = std::make_shared<OneKeyServer>(std::move(listener), key, value, deadline);
    run_in_background("tutti-store", [server = server_](int stop_fd) { server->run(stop_fd); });
  }

  std::string get(const std::string& key, Deadline deadline) override {
    return torch_store(host_, port_)->get(key, deadline);
  }

  void remove(const std::string& key) override {
    if (server_) return end();
    torch_store(host_, port_)->remove(key);
  }

 private:
  void end() {
    if (server_) server_->end();
  }

  /// At the host's own address, if its name stands for one alone that others reach; or else at all.
  FileDescriptor listen() const {
    std::vector<SocketAddress> own;
    for (const SocketAddress& address : addresses_of(host_, port_)) {
      if (!is_loopback(address) && !interface_of(address).empty()) own.push_back(address);
    }
    if (own.size() == 1) return listen_at(own.front(), true);
    FileDescriptor everywhere = listen_at(*parse_address("::", port_), true);
    if (everywhere || errno == EADDRINUSE) return everywhere;
    return listen_at(*parse_address("0.0.0.0", port_), true);  // a host without IPv6
  }

  const std::string host_;
  const std::uint16_t port_;
  std::shared_ptr<OneKeyServer> server_;
};

}  // namespace

std::shared_ptr<LauncherStore> torch_server(const std::string& host, std::uint16_t port) {
  return std::make_shared<TorchServer>(host, port);
}

}  // namespace tutti
