// What ring attention hides, over a link as slow as the kernel. Ranks are processes:
//
//     tutti run -n 4 build/bench/sequence_bench [TURNS]
//
// The kernel sleeps, so that ranks need no cores of their own: as long for a block as the link
// needs for the block's keys, and in the backward twice as long, since keys and their gradients
// travel. A causal mask in contiguous order leaves ranks without work, which no overlap can help;
// the table has it for comparison, and all-gathered keys, which hide nothing. Ways take turns; the
// table has their medians.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "parallel/sequence/attention.h"
#include "parallel/throttled_axis.h"
#include "tutti.h"

namespace {

using namespace std::chrono_literals;
using namespace tutti::parallel;
using sequence::KeysTravel;
using sequence::SequenceOrder;
using tutti::Communicator;
using tutti::DataType;

constexpr std::size_t kRows = 1024, kDim = 8;
constexpr std::chrono::duration<double> kBlock = 100ms;  // the kernel with a block, forward

/// A block is as many pairs of queries and keys as a rank of a zigzag ring has in a step.
void sleep_for(const sequence::Block& b, double times, std::size_t pairs_of_block) {
  const auto n = static_cast<double>(b.queries), m = static_cast<double>(b.keys);
  const double pairs = n * m - (b.causal ? n * n / 2 : 0);
  std::this_thread::sleep_for(times * kBlock * (pairs / static_cast<double>(pairs_of_block)));
}

struct Way {
  const char* name;
  bool causal;
  sequence::AttentionOptions options;
};
const Way kWays[] = {
    {"ring, no mask", false, {}},
    {"ring, causal, zigzag", true, {.order = SequenceOrder::zigzag}},
    {"ring, causal, contiguous", true, {}},
    {"all_gather, causal, zigzag",
     true,
     {.keys = KeysTravel::all_gather, .order = SequenceOrder::zigzag}},
};

struct Times {
  double step = 0, waited = 0;  // ms
};

/// A forward, or a backward, of the slowest rank.
Times time_of(Communicator& comm, Axis& axis, const std::function<void()>& call) {
  comm.barrier();
  axis.reset_traffic();
  const auto start = std::chrono::steady_clock::now();
  call();
  const auto milliseconds = [](auto d) {
    return std::chrono::duration<double, std::milli>(d).count();
  };
  double times[2] = {milliseconds(std::chrono::steady_clock::now() - start),
                     milliseconds(axis.traffic().waited)};
  comm.all_reduce(times, times, 2, DataType::float64, tutti::ReduceKind::max);
  return {times[0], times[1]};
}

Times median(std::vector<Times> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end(),
                   [](const Times& a, const Times& b) { return a.waited < b.waited; });
  return *middle;
}

void overlap(Communicator& comm, int turns) {
  constexpr std::size_t kWayCount = std::size(kWays);
  std::vector<Times> times[kWayCount][2];
  const auto ranks = static_cast<std::size_t>(comm.size());
  CommunicatorAxis beneath(comm);
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t w = 0; w < kWayCount; ++w) {
      const Way& way = kWays[w];
      // The block's keys and values, in the time of a block.
      ThrottledAxis axis(beneath, {.bytes_per_second = 2 * kRows * kDim * 4 / kBlock.count()});
      const std::size_t pairs = way.causal ? kRows * kRows / 2 : kRows * kRows;
      const sequence::Kernel kernel{
          .forward = [&](const sequence::ForwardBlock& f) { sleep_for(f.block, 1, pairs); },
          .backward = [&](const sequence::BackwardBlock& g) { sleep_for(g.block, 2, pairs); }};
      sequence::ContextParallelAttention layer(
          {.keys = &axis},
          {.name = way.name, .sequence = kRows * ranks, .dim = kDim, .causal = way.causal}, kernel,
          way.options);
      std::vector<float> q(kRows * kDim), out(q.size()), dq(q.size()), dk(q.size()), dv(q.size());
      sequence::ContextParallelAttention::Saved saved;
      times[w][0].push_back(time_of(
          comm, axis, [&] { layer.forward(q.data(), q.data(), q.data(), out.data(), saved); }));
      times[w][1].push_back(time_of(
          comm, axis, [&] { layer.backward(out.data(), saved, dq.data(), dk.data(), dv.data()); }));
    }
  }
  if (comm.rank() != 0) return;
  fmt::print("{} ranks, a block of {:.0f} ms, {} turns\n{:>28} {:>9} {:>8} {:>8} {:>10} {:>10}\n",
             comm.size(), 1e3 * kBlock.count(), turns, "", "", "ms", "link ms", "waited ms",
             "exposed");
  for (std::size_t w = 0; w < kWayCount; ++w) {
    for (const bool backward : {false, true}) {
      const Times t = median(times[w][backward]);
      // Hops of a block's keys; backward of their gradients too, as often and once more. Gathered
      // keys come, and in the backward their gradients leave.
      const auto hops = static_cast<double>(
          !backward ? ranks - 1
                    : (kWays[w].options.keys == KeysTravel::ring ? 2 * ranks - 1 : 2 * ranks - 2));
      const double link = hops * 1e3 * kBlock.count();
      fmt::print("{:>28} {:>9} {:>8.1f} {:>8.0f} {:>10.1f} {:>8.1f} %\n", kWays[w].name,
                 backward ? "backward" : "forward", t.step, link, t.waited, 100 * t.waited / link);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto comm = Communicator::from_environment();
    overlap(comm, argc > 1 ? std::max(1, std::atoi(argv[1])) : 5);
  } catch (const std::exception& e) {
    fmt::print(stderr, "sequence_bench: {}\n", e.what());
    return 1;
  }
}
