// What a byte costs: on the link between two jobs, and for the coder. Measured when they meet, as
// it decides whether coding pays.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "parallel/weights/block.h"
#include "parallel/weights/session.h"

namespace tutti::parallel::weights {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kWarm = std::size_t{256} << 10;  // fills buffers and opens TCP's window
constexpr std::size_t kMeasured = std::size_t{2} << 20;
constexpr std::size_t kParts = 4;  // the first is the warm one
constexpr std::size_t kAll = kWarm + (kParts - 1) * kMeasured;

/// Where part `p` begins, and its bytes.
std::pair<std::size_t, std::size_t> part_of(std::size_t p) {
  return p == 0 ? std::pair(std::size_t{0}, kWarm)
                : std::pair(kWarm + (p - 1) * kMeasured, kMeasured);
}

/// By rank: to which rank of another host it sends first; -1: to none, or it is no sender.
std::vector<int> targets_of(const reshard::Plan& plan, int senders) {
  std::vector<int> targets(plan.hosts.size(), -1);
  for (const reshard::Message& m : plan.messages) {
    const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
    if (m.from < senders && targets[from] < 0 && plan.hosts[from] != plan.hosts[to]) {
      targets[from] = m.to;
    }
  }
  return targets;
}

Call message(void* data, std::size_t bytes, int peer, bool sends) {
  Call call;
  call.collective = Collective::send_recv;
  if (sends) {
    call.in = data;
  } else {
    call.out = data;
  }
  call.count = bytes;
  call.peer = peer;
  call.sends = sends;
  return call;
}

/// Sends; the receiver answers each part when it is there. The shortest time counts, as others use
/// the machine, too.
Pace send_and_time(Communicator& comm, int target, std::vector<std::byte>& data) {
  std::byte answer{};
  auto least = std::chrono::nanoseconds::max();
  for (std::size_t p = 0; p < kParts; ++p) {
    const auto [at, bytes] = part_of(p);
    const auto start = Clock::now();
    Future part = comm.start(message(data.data() + at, bytes, target, true));
    comm.run(message(&answer, 1, target, false));
    if (p > 0) least = std::min<std::chrono::nanoseconds>(least, Clock::now() - start);
    part.wait();
  }
  return Pace(static_cast<double>(least.count()) / kMeasured);
}

void receive_from(Communicator& comm, const std::vector<int>& senders) {
  std::vector<std::vector<std::byte>> data(senders.size(), std::vector<std::byte>(kAll));
  std::vector<std::array<Future, kParts>> parts(senders.size());
  for (std::size_t s = 0; s < senders.size(); ++s) {
    for (std::size_t p = 0; p < kParts; ++p) {
      const auto [at, bytes] = part_of(p);
      parts[s][p] = comm.start(message(data[s].data() + at, bytes, senders[s], false));
    }
  }
  std::byte answer{};
  for (std::size_t p = 0; p < kParts; ++p) {
    for (std::size_t s = 0; s < senders.size(); ++s) {
      parts[s][p].wait();
      comm.run(message(&answer, 1, senders[s], true));
    }
  }
}

}  // namespace

Pace measure_link(Communicator& comm, const reshard::Plan& plan, int senders) {
  const std::vector<int> targets = targets_of(plan, senders);
  const int target = targets[static_cast<std::size_t>(comm.rank())];
  if (target >= 0) {
    std::vector<std::byte> data(kAll);
    std::minstd_rand random(static_cast<unsigned>(comm.rank()) + 1);
    for (std::byte& b : data) b = static_cast<std::byte>(random());
    return send_and_time(comm, target, data);
  }
  std::vector<int> mine;
  for (int r = 0; r < senders; ++r) {
    if (targets[static_cast<std::size_t>(r)] == comm.rank()) mine.push_back(r);
  }
  if (!mine.empty()) receive_from(comm, mine);
  return {};
}

Pace measure_coder() {
  constexpr std::size_t kBlock = std::size_t{256} << 10, kBlocks = 16;  // more than a core's cache
  using Block = std::vector<std::byte>;
  std::vector<Block> now(kBlocks, Block(kBlock)), kept = now, present = now;
  std::minstd_rand random(1);
  for (Block& block : now) {
    for (std::size_t i = 0; i < kBlock; i += 2) block[i] = std::byte{random() % 50 == 0};
  }
  BlockCoder sender(DataType::bfloat16), receiver(DataType::bfloat16);
  Block plain(kBlock), coded;
  std::uint64_t sums = 0;
  auto least = std::chrono::nanoseconds::max();
  for (int turn = 0; turn < 3; ++turn) {
    const auto start = Clock::now();
    for (std::size_t b = 0; b < kBlocks; ++b) {
      sums += checksum_of(now[b]);
      const BlockHeader header = sender.encode(now[b], kept[b], {.planes = false});
      coded.assign(sender.content().begin(), sender.content().end());
      sender.decode(header, coded, kept[b]);
      std::ranges::copy(present[b], plain.begin());
      receiver.decode(header, coded, plain);
      sums += checksum_of(plain);
      std::ranges::copy(plain, present[b].begin());
    }
    least = std::min<std::chrono::nanoseconds>(least, Clock::now() - start);
    for (std::size_t b = 0; b < kBlocks; ++b) {
      std::ranges::fill(kept[b], std::byte{});
      std::ranges::fill(present[b], std::byte{});
    }
  }
  const double ns = static_cast<double>(least.count()) / (kBlock * kBlocks);
  return Pace(sums == 0 ? 0 : ns);  // so that nothing of it is left out
}

}  // namespace tutti::parallel::weights
