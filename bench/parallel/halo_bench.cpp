// What an exchange of halos costs beside the bare sends and receives of its bytes, which lie packed
// in memory. Ranks are processes:
//
//     tutti run -n 4 build/bench/halo_bench
//
// Fields with periodic edges, the channels first or last in memory. In turn: bare messages; the
// same with the loops that a program would write by hand to pack and unpack them; the halo forward;
// the halo backward; and bare messages with all neighbours at once, corners too, in place of one
// dimension after the other. Medians; the rank that takes longest counts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "parallel/domain/halo.h"
#include "parallel/memory_pool.h"
#include "tutti.h"

namespace {

using namespace tutti::parallel;
using namespace tutti::parallel::domain;
using tutti::Communicator;
using tutti::DataType;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 41;

struct Message {
  int peer;
  std::size_t turn, bytes;
};

/// Messages of the same sizes, from memory that needs no packing.
class Bare {
 public:
  Bare(Axis& axis, std::vector<Message> sends, std::vector<Message> receives)
      : axis_(axis), sends_(std::move(sends)), receives_(std::move(receives)) {
    for (const auto* messages : {&receives_, &sends_}) {
      for (const Message& m : *messages) {
        buffers_.push_back(memory_.zeros(m.bytes));
        turns_ = std::max(turns_, m.turn + 1);
      }
    }
  }
  void run() {
    for (std::size_t turn = 0; turn < turns_; ++turn) {
      std::vector<Pending> pending;
      std::size_t i = 0;
      for (const Message& m : receives_) {
        auto* const data = buffers_[i++].data();
        if (m.turn == turn) pending.push_back(axis_.recv(data, m.bytes, DataType::uint8, m.peer));
      }
      for (const Message& m : sends_) {
        auto* const data = buffers_[i++].data();
        if (m.turn == turn) pending.push_back(axis_.send(data, m.bytes, DataType::uint8, m.peer));
      }
      for (Pending& p : pending) p.wait();
    }
  }

 private:
  Axis& axis_;
  const std::vector<Message> sends_, receives_;
  MemoryPool memory_;
  std::vector<Buffer> buffers_;
  std::size_t turns_ = 0;
};

Bare same_messages(Axis& axis, const HaloLayout& layout, std::size_t cell) {
  std::vector<Message> sends, receives;
  const auto bytes = [&](const HaloMessage& m) {
    return static_cast<std::size_t>(cells(m.target)) * cell;
  };
  for (const HaloMessage& m : layout.from(axis.rank())) {
    sends.push_back({m.to, m.dimension, bytes(m)});
  }
  for (const HaloMessage& m : layout.to(axis.rank())) {
    if (m.from != m.to) receives.push_back({m.from, m.dimension, bytes(m)});
  }
  return {axis, sends, receives};
}

/// The 3^d - 1 neighbours, with halos one cell wide.
Bare all_neighbours(Axis& axis, const HaloLayout& layout, std::size_t cell) {
  const Box own = layout.input().box(axis.rank());
  const std::vector<int> at = layout.input().grid().coordinates(axis.rank());
  std::vector<Message> sends, receives;
  std::size_t offsets = 1;
  for (std::size_t d = 0; d < own.size(); ++d) offsets *= 3;
  for (std::size_t code = 0; code < offsets; ++code) {
    std::vector<int> to = at, from = at;
    std::size_t bytes = cell, rest = code;
    for (std::size_t d = 0; d < own.size(); ++d, rest /= 3) {
      const int step = static_cast<int>(rest % 3) - 1;
      const int ranks = layout.input().dimensions()[d].ranks;
      to[d] = (at[d] + step + ranks) % ranks;
      from[d] = (at[d] - step + ranks) % ranks;
      if (step == 0) bytes *= static_cast<std::size_t>(own[d].size());
    }
    const int rank = layout.input().grid().rank(to);
    if (rank == axis.rank()) continue;  // itself, around a dimension of one rank or none
    sends.push_back({rank, 0, bytes});
    receives.push_back({layout.input().grid().rank(from), 0, bytes});
  }
  return {axis, sends, receives};
}

/// The halo in plain loops, for one element type and up to 3 dimensions.
class ByHand {
 public:
  ByHand(Axis& axis, const HaloLayout& layout, std::size_t outer, std::size_t inner)
      : axis_(axis),
        outer_(static_cast<std::int64_t>(outer)),
        inner_(static_cast<std::int64_t>(inner)),
        box_(three(layout.padded(axis.rank()))) {
    for (const bool sends : {false, true}) {
      for (HaloMessage& m : sends ? layout.from(axis.rank()) : layout.to(axis.rank())) {
        if (m.from == m.to) continue;
        turns_ = std::max(turns_, m.dimension + 1);
        const Box part = three(sends ? m.source : m.target);
        const auto count = outer * inner * static_cast<std::size_t>(cells(part));
        messages_.push_back({sends, sends ? m.to : m.from, m.dimension, part, count,
                             memory_.zeros(count * sizeof(float))});
      }
    }
  }
  void run(float* block) {
    for (std::size_t turn = 0; turn < turns_; ++turn) {
      std::vector<Pending> pending;
      for (Part& m : messages_) {
        if (m.turn != turn) continue;
        auto* const packed = reinterpret_cast<float*>(m.packed.data());
        if (m.sends) each(m.box, [&](std::int64_t at, std::size_t i) { packed[i] = block[at]; });
        pending.push_back(m.sends ? axis_.send(packed, m.count, DataType::float32, m.peer)
                                  : axis_.recv(packed, m.count, DataType::float32, m.peer));
      }
      for (Pending& p : pending) p.wait();
      for (Part& m : messages_) {
        if (m.turn != turn || m.sends) continue;
        const auto* const packed = reinterpret_cast<const float*>(m.packed.data());
        each(m.box, [&](std::int64_t at, std::size_t i) { block[at] = packed[i]; });
      }
    }
  }

 private:
  struct Part {
    bool sends;
    int peer;
    std::size_t turn;
    Box box;
    std::size_t count;
    Buffer packed;
  };
  static Box three(Box box) {
    while (box.size() < 3) box.insert(box.begin(), {0, 1});
    return box;
  }
  template <class Use>
  void each(const Box& part, const Use& use) const {
    std::size_t i = 0;
    for (std::int64_t o = 0; o < outer_; ++o) {
      for (std::int64_t z = part[0].begin; z < part[0].end; ++z) {
        for (std::int64_t y = part[1].begin; y < part[1].end; ++y) {
          const std::int64_t row =
              (o * box_[0].size() + z - box_[0].begin) * box_[1].size() + y - box_[1].begin;
          const std::int64_t at = (row * box_[2].size() + part[2].begin - box_[2].begin) * inner_;
          for (std::int64_t x = 0; x < part[2].size() * inner_; ++x) use(at + x, i++);
        }
      }
    }
  }
  Axis& axis_;
  const std::int64_t outer_, inner_;
  const Box box_;
  MemoryPool memory_;
  std::vector<Part> messages_;
  std::size_t turns_ = 0;
};

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

/// The medians of the slowest rank's times, of each body; bodies run in turn.
std::vector<double> medians(Communicator& comm, const std::vector<std::function<void()>>& bodies,
                            int calls) {
  std::vector<std::vector<double>> times(bodies.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      bodies[i]();  // warms up
      comm.barrier();
      const auto start = Clock::now();
      for (int call = 0; call < calls; ++call) bodies[i]();
      double time = microseconds(Clock::now() - start) / calls;
      comm.all_reduce(&time, &time, 1, DataType::float64, tutti::ReduceKind::max);
      times[i].push_back(time);
    }
  }
  std::vector<double> result;
  for (auto& t : times) {
    std::ranges::nth_element(t, t.begin() + kRounds / 2);
    result.push_back(t[kRounds / 2]);
  }
  return result;
}

void measure(Communicator& comm, int dimensions, std::int64_t side, std::size_t channels,
             bool last) {
  CommunicatorAxis axis(comm);
  HaloShape shape{.name = "bench", .outer = last ? 1 : channels, .inner = last ? channels : 1};
  const char* const names[] = {"z", "y", "x"};
  int left = comm.size();
  for (int d = 0; d < dimensions; ++d) {
    int ranks = left;
    if (d + 1 < dimensions) {
      ranks = static_cast<int>(std::lround(std::pow(left, 1.0 / (dimensions - d))));
      while (left % ranks != 0) --ranks;
    }
    left /= ranks;
    shape.dimensions.push_back({names[3 - dimensions + d], side * ranks, ranks, Edge::periodic});
    shape.stencils.push_back({.kernel = 3, .padding = 1});
  }
  Halo halo(axis, shape);
  const std::size_t bytes = halo.elements(halo.padded()) * size_of(shape.type);
  MemoryPool memory;
  const Buffer block = memory.zeros(bytes);
  Bare bare = same_messages(axis, halo.layout(), channels * size_of(shape.type)),
       all = all_neighbours(axis, halo.layout(), channels * size_of(shape.type));
  ByHand by_hand(axis, halo.layout(), shape.outer, shape.inner);
  auto* const numbers = reinterpret_cast<float*>(block.data());
  axis.reset_traffic();
  halo.exchange(block.data());
  const std::size_t sent = axis.traffic().total().sent;
  const auto t = medians(
      comm,
      {[&] { bare.run(); }, [&] { by_hand.run(numbers); }, [&] { halo.exchange(block.data()); },
       [&] { halo.exchange_backward(block.data()); }, [&] { all.run(); }},
      sent < 100'000 ? 50 : 10);
  if (comm.rank() != 0) return;
  fmt::print(
      "{} {:>5} {:>3} {:<5} {:>8} {:>8.1f} {:>8.1f} {:>8.1f} {:>7.2f} {:>7.2f} {:>8.1f} {:>8.1f}\n",
      dimensions, side, channels, last ? "last" : "first", sent, t[0], t[1], t[2], t[2] / t[0],
      t[2] / t[1], t[3], t[4]);
}

}  // namespace

int main() {
  try {
    auto comm = Communicator::from_environment();
    if (comm.rank() == 0) {
      fmt::print("{} {:>5} {:<9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7} {:>8} {:>8}\n", "d", "block",
                 "channels", "B sent", "bare us", "by hand", "halo", "to bare", "to hand",
                 "backward", "at once");
    }
    for (const std::int64_t side : {32, 256, 1024}) {
      for (const std::size_t channels : {1u, 16u}) {
        measure(comm, 2, side, channels, false);
        if (channels > 1) measure(comm, 2, side, channels, true);
      }
    }
    for (const std::int64_t side : {16, 64}) {
      for (const bool last : {false, true}) measure(comm, 3, side, 16, last);
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
