// How fast messages between hosts are, between two processes: of one link over RDMA, to be compared
// with perftest's ib_write_lat and ib_write_bw on the same device (tests/rdma/bench.sh); and of a
// communicator over any transport, to be compared with what else uses that, as ucx_perftest.
//
// The sender runs on processor 1, the receiver on 0.
//
//     wire_bench lat BYTES COUNT        half the median round trip over a link, in us
//     wire_bench bw BYTES COUNT         MB/s (10^6) in one direction; the receiver sleeps when idle
//     wire_bench comm_lat BYTES COUNT   the same of a communicator's send() and recv()
//     wire_bench comm_bw BYTES COUNT
//     wire_bench sum_lat BYTES COUNT    the median all_reduce of float32, in us
//
// A link's messages are neither written nor read, as those of perftest. A communicator's lie in a
// window, which devices reach.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "core/memory.h"
#include "tests/transport/verbs_ends.h"

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
    pollfd file{end.wire.descriptors()[0], POLLIN, 0};
    if (end.wire.arm()) ::poll(&file, 1, 1);
  }
  link.receiver().free();
  link.rung();
}

void flush(End& end) {
  while (!end.wire.is_delivered()) end.wire.poll_and_tell();
}

void pin(int rank) {
  cpu_set_t processor;
  CPU_ZERO(&processor);
  CPU_SET(1 - rank, &processor);
  sched_setaffinity(0, sizeof processor, &processor);
}

constexpr int kWarmUp = 20;

double median_us(std::vector<double>& seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2] * 1e6;
}

/// A communicator of two ranks on two hosts, each on its processor.
Communicator join(int rank, int socket) {
  std::array<char, 512> text{};  // of the id
  if (rank == 0) {
    to_string(make_unique_id()).copy(text.data(), text.size() - 1);
    if (::send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0) throw_system_error("send()");
  } else if (::recv(socket, text.data(), text.size(), MSG_WAITALL) <= 0) {
    throw_system_error("recv()");
  }
  Options options;
  options.host_id = "host" + std::to_string(rank);
  Communicator comm = Communicator::create(unique_id_from_string(text.data()), rank, 2, options);
  pin(rank);
  return comm;
}

int run_sums(int rank, int socket, std::size_t bytes, int count) {
  Communicator comm = join(rank, socket);
  std::vector<float, Allocator<float>> in(std::max<std::size_t>(bytes / sizeof(float), 1), 1.0f);
  std::vector<float, Allocator<float>> out(in.size());
  std::vector<double> times;
  for (int i = -kWarmUp; i < count; ++i) {
    const auto begin = Clock::now();
    comm.all_reduce(in, out);
    if (i >= 0) times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  if (rank == 0) std::printf("%.2f\n", median_us(times));
  return out.back() == 2 ? 0 : 1;
}

/// With send() and recv() of a communicator.
int run_ranks(int rank, int socket, bool latency, std::size_t bytes, int count) {
  Communicator comm = join(rank, socket);
  std::vector<std::uint8_t, Allocator<std::uint8_t>> memory(bytes + 1, 1);
  const auto send = [&](std::size_t n) { comm.send(memory.data(), n, DataType::uint8, 1 - rank); };
  const auto receive = [&](std::size_t n) {
    comm.recv(memory.data(), n, DataType::uint8, 1 - rank);
  };
  std::vector<double> times;
  Clock::time_point begin;
  for (int i = -kWarmUp; i < count; ++i) {
    if (latency || i == 0) begin = Clock::now();
    if (rank == 0) send(bytes);
    if (rank == 1 || latency) receive(bytes);
    if (rank == 1 && latency) send(bytes);
    if (latency && i >= 0) {
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / 2);
    }
  }
  if (rank == 1) {
    send(1);
  } else {
    receive(1);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::printf("%.2f\n",
                latency ? median_us(times) : static_cast<double>(bytes) * count / seconds / 1e6);
  }
  return 0;
}

int run(int rank, int socket, bool latency, std::size_t bytes, int count) {
  pin(rank);
  const auto port = usable_port();
  End end(over(VerbsDevice::open(*port), 1 - rank));
  meet(end, socket);
  const ConnectionShape shape = shape_for(bytes);
  OutLink& out = end.out(0, shape);
  InLink& in = end.in(0, shape);
  std::vector<double> times;
  double seconds = 0;
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
    std::printf("%.2f\n", median_us(times) / 2);
  } else {
    std::printf("%.2f\n", static_cast<double>(bytes) * count / seconds / 1e6);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 4 ? argv[1] : "";
  const bool latency = kind.ends_with("lat"), ranks = kind.starts_with("comm_");
  const bool sums = kind == "sum_lat";
  if (kind != "lat" && kind != "bw" && kind != "comm_lat" && kind != "comm_bw" && !sums) {
    std::fprintf(stderr, "usage: wire_bench lat|bw|comm_lat|comm_bw|sum_lat BYTES COUNT\n");
    return 2;
  }
  if (!ranks && !sums && !usable_port()) {
    std::fprintf(stderr, "wire_bench: no RDMA device that could be used\n");
    return 77;
  }
  const std::size_t bytes = std::strtoul(argv[2], nullptr, 10);
  const int count = std::atoi(argv[3]);
  try {
    const auto work = [&](int rank, int socket) {
      if (sums) return run_sums(rank, socket, bytes, count);
      return (ranks ? run_ranks : run)(rank, socket, latency, bytes, count);
    };
    Child child([&](int socket) { return work(1, socket); });
    const int code = work(0, child.socket());
    return child.wait() == 0 ? code : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wire_bench: %s\n", error.what());
    return 1;
  }
}
