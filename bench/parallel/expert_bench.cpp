// The costs of the way of tokens to their experts. Ranks are processes:
//
//     tutti run -n 4 build/bench/expert_bench MODE
//
// exchange: all_to_all_v beside all_to_all, in turn, with equal counts, with counts that change
// from call to call, and in memory of tutti::allocate() and of malloc(). layer: a layer with
// experts that do nothing, balanced, beside two bare all_to_alls of the same bytes: its calls alone
// (counts, dispatch, combine), on rows at rest as those of all_to_all are; and all of it, with the
// copies and sums of rows. Times are medians of turns, in us; the largest of the ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/median.h"
#include "parallel/expert/expert_parallel.h"
#include "tutti.h"

namespace {

using namespace tutti::parallel;
using tutti::Call;
using tutti::Collective;
using tutti::Communicator;
using tutti::DataType;
using tutti::median;
using Clock = std::chrono::steady_clock;

/// Median times of one call of each of `ways`, in turn.
std::vector<double> in_turn(Communicator& comm, int turns, int calls,
                            const std::vector<std::function<void()>>& ways) {
  std::vector<std::vector<double>> times(ways.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      comm.barrier();
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) ways[w]();
      double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls;
      comm.all_reduce(&us, &us, 1, DataType::float64, tutti::ReduceKind::max);
      if (turn > 0) times[w].push_back(us);  // the first one warms up
    }
  }
  std::vector<double> medians;
  for (auto& t : times) medians.push_back(median(t));
  return medians;
}

int calls_for(std::size_t bytes) {
  return static_cast<int>(
      std::clamp<std::size_t>((8u << 20) / std::max<std::size_t>(bytes, 1), 4, 400));
}

void exchange(Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  if (comm.rank() == 0) {
    fmt::print("{:>10} {:>8} {:>12} {:>14} {:>8} {:>14} {:>8}\n", "bytes", "memory", "all_to_all",
               "all_to_all_v", "ratio", "other counts", "ratio");
  }
  for (const bool window : {false, true}) {
    for (std::size_t bytes = 64; bytes <= 16u << 20; bytes *= 4) {
      const std::size_t block = bytes / ranks;
      const std::size_t room = 2 * bytes;
      std::vector<std::byte> plain_in(room), plain_out(room);
      std::vector<std::byte, tutti::Allocator<std::byte>> near_in(room), near_out(room);
      std::byte* const in = window ? near_in.data() : plain_in.data();
      std::byte* const out = window ? near_out.data() : plain_out.data();
      const std::vector<std::size_t> even(ranks, block);
      // As many bytes, in blocks that differ from call to call by one part in eight.
      std::vector<std::size_t> to(ranks), from(ranks);
      std::size_t call = 0;
      const auto count = [&](std::size_t a, std::size_t b) {
        const std::size_t part = (a * 5 + b * 3 + call) % 3;  // 0, 1, 2
        return block - block / 8 + part * (block / 8);
      };
      const auto self = static_cast<std::size_t>(comm.rank());
      const auto m =
          in_turn(comm, 12, calls_for(bytes),
                  {[&] { comm.all_to_all(in, out, block, DataType::uint8); },
                   [&] { comm.all_to_all_v(in, even, {}, out, even, {}, DataType::uint8); },
                   [&] {
                     ++call;
                     for (std::size_t r = 0; r < ranks; ++r)
                       to[r] = count(self, r), from[r] = count(r, self);
                     comm.all_to_all_v(in, to, {}, out, from, {}, DataType::uint8);
                   }});
      if (comm.rank() != 0) continue;
      fmt::print("{:>10} {:>8} {:>12.2f} {:>14.2f} {:>8.2f} {:>14.2f} {:>8.2f}\n", bytes,
                 window ? "window" : "malloc", m[0], m[1], m[1] / m[0], m[2], m[2] / m[0]);
    }
  }
}

void layer(Communicator& comm) {
  CommunicatorAxis axis(comm);
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto self = static_cast<std::size_t>(comm.rank());
  constexpr std::size_t kWidth = 1024;
  if (comm.rank() == 0) {
    fmt::print("{:>10} {:>8} {:>16} {:>12} {:>8} {:>10} {:>8}\n", "bytes", "experts",
               "2 all_to_alls", "its calls", "ratio", "layer", "ratio");
  }
  for (const std::size_t local : {1u, 2u}) {
    for (std::size_t tokens = 64; tokens <= 4096; tokens *= 4) {
      expert::ExpertParallel moe(
          axis, {.name = "moe", .experts = local * ranks, .width = kWidth, .top_k = 1},
          {.overlap = false});
      expert::Routing routing;
      for (std::size_t t = 0; t < tokens; ++t) {
        routing.experts.push_back(static_cast<std::int64_t>(t % (local * ranks)));
        routing.weights.push_back(1);
      }
      using Rows = std::vector<float, tutti::Allocator<float>>;
      Rows x(tokens * kWidth, 1), y(x.size()), sent(x.size()), arrived(x.size()), results(x.size());
      expert::Saved saved;
      const std::size_t block = x.size() / ranks, wave = x.size() / local;
      const std::vector<std::size_t> whole(ranks, wave / ranks);
      std::vector<std::size_t> but_own = whole, offsets(ranks);
      but_own[self] = 0;
      for (std::size_t r = 0; r < ranks; ++r) offsets[r] = r * whole[r];
      std::vector<std::uint64_t> counts(ranks * (local + 1)), its_counts(counts.size());
      // Experts that take no time: what is measured is the way.
      const expert::Forward nothing = [](std::size_t, const void*, std::size_t, void*) {};
      const auto m = in_turn(
          comm, 12, calls_for(x.size() * sizeof(float)),
          {[&] {
             comm.all_to_all(x.data(), y.data(), block, DataType::float32);
             comm.all_to_all(y.data(), x.data(), block, DataType::float32);
           },
           [&] {
             comm.all_to_all(counts.data(), its_counts.data(), local + 1, DataType::uint64);
             for (std::size_t at = 0; at < x.size(); at += wave) {
               comm.all_to_all_v(&sent[at], but_own, offsets, &arrived[at], but_own, offsets,
                                 DataType::float32);
               comm.all_to_all_v(&results[at], whole, {}, &sent[at], whole, {}, DataType::float32);
             }
           },
           [&] { moe.forward(x.data(), routing, nothing, y.data(), saved); }});
      if (comm.rank() != 0) continue;
      fmt::print("{:>10} {:>8} {:>16.1f} {:>12.1f} {:>8.2f} {:>10.1f} {:>8.2f}\n",
                 x.size() * sizeof(float), local * ranks, m[0], m[1], m[1] / m[0], m[2],
                 m[2] / m[0]);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto comm = Communicator::from_environment();
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "exchange") return exchange(comm), 0;
    if (mode == "layer") return layer(comm), 0;
    fmt::print(stderr, "expert_bench: give a mode: exchange or layer\n");
    return 2;
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "expert_bench: {}\n", error.what());
    return 1;
  }
}
