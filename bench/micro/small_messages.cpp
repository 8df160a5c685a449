// Small messages between hosts: an all_reduce of each size beside the least that TCP allows, which
// is half the round trip of a ping-pong of that size between the ranks 0 and 1, on sockets of their
// own. Both in one run, a turn of one after a turn of the other:
//
//     tutti run -H a,b small_messages ADDRESS [-b 256] [-e 256K] [-f 4] [-t turns] [-n calls]
//
// ADDRESS is one of rank 0's host by which the others reach it. The ping-pong waits in two ways,
// for the kernel to wake it and in a loop; the faster one counts. Prints the medians of the turns,
// and median and quartiles of their ratios. The all_reduce is checked at each size.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/median.h"
#include "tutti.h"

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) { tutti::throw_system_error(what); }

/// A TCP connection; waits for data in the kernel, or in a loop.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  void send(const std::vector<std::byte>& data, bool loops) {
    move(data.size(), [&](std::size_t at) {
      return ::send(fd_, data.data() + at, data.size() - at, loops ? MSG_DONTWAIT : 0);
    });
  }
  void receive(std::vector<std::byte>& data, bool loops) {
    move(data.size(), [&](std::size_t at) {
      return recv(fd_, data.data() + at, data.size() - at, loops ? MSG_DONTWAIT : 0);
    });
  }

 private:
  template <class Some>
  void move(std::size_t bytes, Some&& some) {
    for (std::size_t at = 0; at < bytes;) {
      const ssize_t moved = some(at);
      if (moved == 0) tutti::throw_system_error("small_messages: the other rank is gone", EPIPE);
      if (moved < 0 && errno != EAGAIN && errno != EINTR) fail("small_messages: a socket");
      if (moved > 0) at += static_cast<std::size_t>(moved);
    }
  }
  int fd_;
};

/// Rank 0's sockets to the others, in their order; of another rank that to rank 0.
std::vector<Socket> connect(tutti::Communicator& comm, const std::string& address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &place.sin_addr) != 1) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument, address + " is no IPv4 address");
  }
  std::vector<Socket> sockets;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("small_messages: socket()");
  if (comm.rank() > 0) {
    comm.broadcast(std::span(reinterpret_cast<std::uint8_t*>(&place.sin_port), 2), 0);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&place), sizeof place) != 0) {
      fail("small_messages: connect()");
    }
    sockets.emplace_back(fd);
    sockets.back().send({std::byte(comm.rank())}, false);
    return sockets;
  }
  socklen_t size = sizeof place;
  if (bind(fd, reinterpret_cast<sockaddr*>(&place), size) != 0 || listen(fd, 64) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    fail("small_messages: bind() to " + address);
  }
  comm.broadcast(std::span(reinterpret_cast<std::uint8_t*>(&place.sin_port), 2), 0);
  std::vector<int> of_rank(static_cast<std::size_t>(comm.size()), -1);
  for (int r = 1; r < comm.size(); ++r) {
    const int accepted = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
    std::byte rank{};
    if (accepted < 0 || recv(accepted, &rank, 1, MSG_WAITALL) != 1) fail("small_messages: accept");
    of_rank.at(static_cast<std::size_t>(rank)) = accepted;
  }
  close(fd);
  for (std::size_t r = 1; r < of_rank.size(); ++r) sockets.emplace_back(of_rank[r]);
  return sockets;
}

double microseconds(Clock::time_point begin, int calls) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

/// What the ranks 0 and 1 do on their socket.
enum class Bare { ping_pong, exchange };

/// us of one way of a ping-pong, or of an exchange: both ranks send, then both receive. The other
/// ranks wait in the kernel meanwhile.
double bare(int rank, std::vector<Socket>& sockets, std::size_t bytes, int calls, bool loops,
            Bare what) {
  std::vector<std::byte> data(bytes), start(1);
  if (rank > 1) {
    sockets[0].receive(start, false);
    return 0;
  }
  Socket& other = sockets[0];
  double us = 0;
  for (const int rounds : {3, calls}) {
    const auto begin = Clock::now();
    for (int i = 0; i < rounds; ++i) {
      if (rank == 0 || what == Bare::exchange) other.send(data, loops);
      other.receive(data, loops);
      if (rank == 1 && what == Bare::ping_pong) other.send(data, loops);
    }
    us = microseconds(begin, what == Bare::ping_pong ? 2 * rounds : rounds);
  }
  for (std::size_t r = 1; rank == 0 && r < sockets.size(); ++r) sockets[r].send(start, false);
  return us;
}

/// Memory of a rank that is the same in all calls, as an engine's is.
struct Sum {
  Sum(const tutti::Communicator& comm, std::size_t bytes)
      : ranks(static_cast<float>(comm.size() * (comm.size() + 1) / 2)),
        in(bytes / sizeof(float)),
        out(in.size()) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i] = static_cast<float>(comm.rank() + 1) * static_cast<float>(i % 1000 + 1);
    }
  }
  float ranks;
  std::vector<float, tutti::Allocator<float>> in, out;
};

/// us of one.
double all_reduce(tutti::Communicator& comm, Sum& sum, int calls) {
  double us = 0;
  for (const int rounds : {5, calls}) {
    comm.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < rounds; ++i) comm.all_reduce(sum.in, sum.out);
    us = microseconds(begin, rounds);
  }
  for (std::size_t i = 0; i < sum.out.size(); ++i) {
    if (sum.out[i] != sum.ranks * static_cast<float>(i % 1000 + 1)) {
      throw tutti::Error(tutti::ErrorCode::internal, fmt::format("sum {} is wrong", i));
    }
  }
  return us;
}

/// "ratio | lower quartile to upper quartile" of one to the other, turn by turn.
std::string ratio(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios(of.size());
  std::transform(of.begin(), of.end(), to.begin(), ratios.begin(), std::divides<>());
  std::sort(ratios.begin(), ratios.end());
  return fmt::format("{:.2f} | {:.2f} to {:.2f}", tutti::median(ratios), ratios[ratios.size() / 4],
                     ratios[3 * ratios.size() / 4]);
}

void measure(tutti::Communicator& comm, std::vector<Socket>& sockets, std::size_t bytes, int turns,
             int calls) {
  const auto of = [&](Bare what, bool loops) {
    return bare(comm.rank(), sockets, bytes, calls, loops, what);
  };
  // Which way of waiting is faster.
  const double woken = of(Bare::ping_pong, false), looping = of(Bare::ping_pong, true);
  std::uint8_t loops = looping < woken ? 1 : 0;
  comm.broadcast(std::span(&loops, 1), 0);
  // The first messages of a size meet new pages of the links, and calls that are new ask for
  // windows.
  Sum sum(comm, bytes);
  all_reduce(comm, sum, calls);
  std::vector<double> one_way, exchange, ours;
  for (int turn = 0; turn < turns; ++turn) {
    one_way.push_back(of(Bare::ping_pong, loops != 0));
    ours.push_back(all_reduce(comm, sum, calls));
    exchange.push_back(of(Bare::exchange, loops != 0));
  }
  if (comm.rank() > 0) return;
  fmt::print("| {} | {:.1f}{} | {:.1f} | {:.1f} | {} | {} |\n", bytes, tutti::median(one_way),
             loops != 0 ? "" : " (woken)", tutti::median(exchange), tutti::median(ours),
             ratio(ours, one_way), ratio(ours, exchange));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("An all_reduce of each size beside a ping-pong over TCP of that size.");
  std::string address;
  std::size_t least = 256, most = 256 << 10;
  int factor = 4, turns = 9, calls = 200;
  app.add_option("address", address, "of rank 0's host, for the others")->required();
  app.add_option("-b", least, "the least size")->transform(CLI::AsSizeValue(false));
  app.add_option("-e", most, "the largest")->transform(CLI::AsSizeValue(false));
  app.add_option("-f", factor, "the factor between them")->check(CLI::Range(2, 1024));
  app.add_option("-t", turns, "of both at each size")->check(CLI::Range(1, 1000));
  app.add_option("-n", calls, "of a turn")->check(CLI::Range(1, 1000000));
  CLI11_PARSE(app, argc, argv);
  try {
    auto comm = tutti::Communicator::from_environment();
    if (comm.size() < 2 || comm.size() > 128) {
      throw tutti::Error(tutti::ErrorCode::invalid_usage, "needs 2 to 128 ranks: `tutti run`");
    }
    auto sockets = connect(comm, address);
    if (comm.rank() == 0) {
      fmt::print(
          "| bytes | ping-pong, us one way | exchange, us | all_reduce of {} ranks, us | to the "
          "ping-pong | quartiles | to the exchange | quartiles |\n"
          "|---|---|---|---|---|---|---|---|\n",
          comm.size());
    }
    for (std::size_t bytes = std::max<std::size_t>(least, 4); bytes <= most;
         bytes *= static_cast<std::size_t>(factor)) {
      measure(comm, sockets, bytes, turns, calls);
    }
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "small_messages: {}\n", error.what());
    return 1;
  }
}
