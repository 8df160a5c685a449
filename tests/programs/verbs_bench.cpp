// How fast a link over RDMA is, between two processes on one device: to be compared with perftest's
// ib_write_lat and ib_write_bw on the same device (tests/rdma/bench.sh). As those do, it neither
// writes nor reads the messages' bytes.
//
// The sender runs on processor 1, the receiver on 0.
//
//     verbs_bench lat BYTES COUNT   half the median round trip, in us
//     verbs_bench bw BYTES COUNT    MB/s (10^6) in one direction; the receiver sleeps when idle
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/verbs_ends.h"

namespace {

using namespace tutti;
using namespace tutti::test;
using Clock = std::chrono::steady_clock;

ConnectionShape shape_for(std::size_t bytes) {
  return {32, std::max<std::size_t>((bytes + 63) / 64 * 64, 1024)};
}

void drive(End& end) {
  end.wire.poll();
  if (end.is_closed) throw Error(ErrorCode::peer_lost, end.why_closed);
}

void send(End& end, OutLink& link, std::size_t bytes) {
  while (!link.sender().ready(bytes)) drive(end);
  link.sender().publish(0, static_cast<std::uint32_t>(bytes));
  link.rung();
}

/// Sleeping, or polling, until something comes.
void receive(End& end, InLink& link, bool sleeps = false) {
  while (!link.receiver().ready()) {
    drive(end);
    if (!sleeps || link.receiver().ready()) continue;
    pollfd file{end.wire.descriptor(), POLLIN, 0};
    if (end.wire.arm()) ::poll(&file, 1, 1);
  }
  link.receiver().free();
  link.rung();
}

void flush(End& end) {
  while (!end.wire.is_delivered()) end.wire.poll_and_tell();
}

int run(int rank, int socket, bool latency, std::size_t bytes, int count) {
  cpu_set_t processor;
  CPU_ZERO(&processor);
  CPU_SET(1 - rank, &processor);
  sched_setaffinity(0, sizeof processor, &processor);
  const auto port = usable_port();
  End end(VerbsDevice::open(*port), 1 - rank);
  meet(end, socket);
  const ConnectionShape shape = shape_for(bytes);
  OutLink& out = end.out(0, shape);
  InLink& in = end.in(0, shape);
  std::vector<double> times;
  double seconds = 0;
  constexpr int kWarmUp = 20;
  if (latency) {
    for (int i = -kWarmUp; i < count; ++i) {
      const auto begin = Clock::now();
      if (rank == 0) send(end, out, bytes);
      receive(end, in);
      if (rank == 1) send(end, out, bytes);
      if (i >= 0) times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  } else {
    Clock::time_point begin;
    for (int i = -kWarmUp; i <= count; ++i) {
      if (i == 0) begin = Clock::now();
      if (rank == 0) {
        send(end, out, i < count ? bytes : 0);
      } else {
        receive(end, in, true);
      }
    }
    // Until the receiver has all.
    if (rank == 0) {
      receive(end, in);
    } else {
      send(end, out, 0);
    }
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  flush(end);
  char both = 0;
  if (::send(socket, &both, 1, MSG_NOSIGNAL) != 1 || ::recv(socket, &both, 1, 0) != 1) return 1;
  if (rank != 0) return 0;
  if (latency) {
    std::ranges::sort(times);
    std::printf("%.2f\n", times[times.size() / 2] / 2 * 1e6);
  } else {
    std::printf("%.2f\n", static_cast<double>(bytes) * count / seconds / 1e6);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 4 ? argv[1] : "";
  if (kind != "lat" && kind != "bw") {
    std::fprintf(stderr, "usage: verbs_bench lat|bw BYTES COUNT\n");
    return 2;
  }
  if (!usable_port()) {
    std::fprintf(stderr, "verbs_bench: no RDMA device that could be used\n");
    return 77;
  }
  const std::size_t bytes = std::strtoul(argv[2], nullptr, 10);
  const int count = std::atoi(argv[3]);
  try {
    Child child([&](int socket) { return run(1, socket, kind == "lat", bytes, count); });
    const int code = run(0, child.socket(), kind == "lat", bytes, count);
    return child.wait() == 0 ? code : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "verbs_bench: %s\n", error.what());
    return 1;
  }
}
