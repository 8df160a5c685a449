// How: the latency and the cost of a signal as between two cores (measuring.h); sending with
// messages that find room, receiving with messages that have come before; the wire with long
// messages, by one pair of ranks and by all. The figures include the time of the memory: between
// hosts, messages are not copied, or the sender and the receiver copy them.
#include "tools/calibrate/measure_network.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include "comm/impl.h"
#include "tools/calibrate/measuring.h"

namespace tutti {
namespace {

constexpr double kKiB = 1024;
constexpr int kCalls = 10;
constexpr std::size_t kMessage = std::size_t{64} << 10;
constexpr int kMessages = 3;  // fewer than slots, and less than a socket holds: nobody waits
constexpr double kMoved = static_cast<double>(kMessage) / kKiB;
constexpr std::size_t kLong = std::size_t{4} << 20;

/// The ranks of rank 0's host and of the next one, in pairs; without a pair: none is.
struct Pairs {
  int count = 0;
  int mine = -1;  // of this rank
};

Pairs pairs_of(const RankGroup& group, int self, int size) {
  std::vector<int> here, there;
  for (int r = 0; r < size; ++r) {
    if (group.host(r) == group.host(0)) here.push_back(r);
    if (group.host(r) != group.host(0) &&
        (there.empty() || group.host(r) == group.host(there.front()))) {
      there.push_back(r);
    }
  }
  Pairs pairs{static_cast<int>(std::min(here.size(), there.size())), -1};
  for (int p = 0; p < pairs.count; ++p) {
    const auto i = static_cast<std::size_t>(p);
    if (here[i] == self || there[i] == self) pairs.mine = p;
  }
  return pairs;
}

/// Of one message, from when it is sent until the answer, a short one, is here; on the first rank.
double time_of_message(Communicator& pair, std::vector<std::byte>& buffer, std::size_t bytes) {
  std::byte answer{};
  return time_of_call(
      [&] {
        if (pair.rank() == 0) {
          pair.send(buffer.data(), bytes, DataType::uint8, 1);
          pair.recv(&answer, 1, DataType::uint8, 1);
        } else {
          pair.recv(buffer.data(), bytes, DataType::uint8, 0);
          pair.send(&answer, 1, DataType::uint8, 0);
        }
      },
      kCalls);
}

/// ns of a send that finds room, and of a receive of what has come `after_ns` later; on both ranks.
struct Ends {
  double send = 0, receive = 0;
};
Ends time_of_ends(Communicator& pair, std::vector<std::byte>& buffer, double after_ns) {
  std::vector<double> samples;
  for (int s = 0; s < 5 * kSamples; ++s) {
    pair.barrier();
    if (pair.rank() == 1) {
      const auto begun = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begun <
             std::chrono::duration<double, std::nano>(after_ns)) {
      }
    }
    samples.push_back(time_ns([&] {
                        for (int i = 0; i < kMessages; ++i) {
                          if (pair.rank() == 0) {
                            pair.send(buffer.data(), kMessage, DataType::uint8, 1);
                          } else {
                            pair.recv(buffer.data(), kMessage, DataType::uint8, 0);
                          }
                        }
                      }) /
                      kMessages);
  }
  Ends ends;
  (pair.rank() == 0 ? ends.send : ends.receive) = median(std::move(samples));
  pair.all_reduce(&ends, &ends, 2, DataType::float64);
  return ends;
}

}  // namespace

NetworkRates measure_network(Communicator& comm, Machine& m) {
  const RankGroup& group = *comm.impl().group;
  const Pairs pairs = pairs_of(group, comm.rank(), comm.size());
  NetworkRates rates;
  rates.pairs = pairs.count;
  if (pairs.count == 0) return rates;
  Communicator pair = comm.split(pairs.mine, comm.rank());
  std::vector<std::byte> buffer(kLong);
  const auto rate_of_long = [&] {
    return static_cast<double>(kLong) / time_of_message(pair, buffer, kLong);
  };
  if (pairs.mine == 0) {
    const double one_way = measure_one_way(pair, kCalls);
    const double signal = measure_signal(pair, kCalls);
    rates.one = rate_of_long();  // so sockets have grown to their size
    const double late = 2 * time_of_message(pair, buffer, kMessages * kMessage);
    const Ends ends = time_of_ends(pair, buffer, late);
    m.net_message_ns = std::max(signal / 2 - m.step_ns - m.link_ns, 1.0);
    m.net_latency_ns = std::max(one_way - 2 * (m.step_ns + m.link_ns + m.net_message_ns), 1.0);
    const double overhead = m.call_ns + m.step_ns + m.link_ns + m.net_message_ns;
    m.net_send = std::max((ends.send - overhead) / kMoved, 1.0);
    m.net_receive = std::max((ends.receive - overhead) / kMoved, 1.0);
  }
  // All pairs at once, each with a clock of its own; the wire's rate is the sum of theirs.
  comm.barrier();
  double rate = pairs.mine >= 0 ? rate_of_long() : 0;
  if (pair && pair.rank() != 0) rate = 0;  // one of a pair counts
  comm.all_reduce(&rate, &rate, 1, DataType::float64);
  rates.all = std::max(rate, rates.one);
  if (comm.rank() != 0) return rates;
  m.net_wire = kKiB / rates.all;
  // Where it is the cores that take so long, the wire is faster. By how much, nobody can see; and
  // it matters little, as they remain the limit.
  const double of_cores = std::max(m.net_send, m.net_receive) / pairs.count;
  if (m.net_wire < 1.25 * of_cores) m.net_wire /= 2;
  return rates;
}

}  // namespace tutti
