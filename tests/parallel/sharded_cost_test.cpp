// What sharding costs, to the byte: memory and traffic are what the formulas say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace parallel;
using test::run_thread_ranks;

// Four equal units that 2, 4 and 8 ranks divide without padding, in both layouts.
constexpr std::size_t kUnits = 4, kElements = 64 * 64 + 256, kAll = kUnits * kElements;

std::vector<Unit> even_units() {
  std::vector<Unit> units;
  for (std::size_t u = 0; u < kUnits; ++u) {
    units.push_back({.name = fmt::format("block{}", u),
                     .parameters = {{"weight", 64 * 64, 64}, {"bias", 256, 256}}});
  }
  return units;
}

/// A step without any arithmetic.
void pass(ShardedDataParallel& model) {
  for (std::size_t u = 0; u < model.units(); ++u) {
    model.before_forward(u);
    model.after_forward(u);
  }
  for (std::size_t u = model.units(); u-- > 0;) {
    model.before_backward(u);
    model.after_backward(u);
  }
}
void step(ShardedDataParallel& model, const Optimizer& optimizer) {
  pass(model);
  model.finish_backward();
  model.clip_gradients(1);
  model.step(optimizer);
}

/// Three steps; the peak is that of the last two, when the order is known.
ShardedStatistics after_steps(Communicator& comm, const Policy& policy, int replicas, int group,
                              const Optimizer& optimizer) {
  test::ShardedMesh mesh(comm, replicas, group);
  ShardedDataParallel model(even_units(), policy, mesh.axes());
  model.share_parameters();
  for (int i = 0; i < 3; ++i) step(model, optimizer);
  return model.statistics();
}

TEST(ShardedMemory, IsWhatTheFormulasSay) {
  constexpr std::size_t kUnit = 2 * kElements;  // bytes, in 16 bits
  for (const int ranks : {1, 2, 4, 8}) {
    const auto p = static_cast<std::size_t>(ranks);
    run_thread_ranks(ranks, [&](Communicator& comm) {
      const AdamW adamw;
      const auto state = [&](const Policy& policy) {
        return after_steps(comm, policy, 1, 0, adamw);
      };
      for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
        if (ranks == 8 && layout == Layout::by_parameter) continue;  // takes long on few cores
        Policy policy = Policy::zero1(Precision::mixed());
        policy.layout = layout;
        ShardedStatistics s = state(policy);
        EXPECT_EQ(s.full, kAll);
        EXPECT_EQ(s.gathered, kAll);
        EXPECT_EQ(s.shard, kAll / p);
        EXPECT_EQ(s.total.bytes, 4 * kAll + 12 * kAll / p);
        EXPECT_EQ(s.total.peak, 4 * kAll + 12 * kAll / p);  // nothing else
        EXPECT_EQ(s.total.reserved, s.total.peak);

        policy = Policy::zero2(Precision::mixed());
        policy.layout = layout;
        for (const std::size_t in_flight : {0, 1, 2}) {
          policy.reductions_in_flight = in_flight;
          s = state(policy);
          EXPECT_EQ(s.total.bytes, 2 * kAll + 14 * kAll / p);
          EXPECT_EQ(s.total.peak, s.total.bytes + (in_flight + 1) * kUnit);
        }

        policy = Policy::zero3(Precision::mixed());
        policy.layout = layout;
        for (const std::size_t ahead : {0, 1, 2}) {
          policy.prefetch_forward = policy.prefetch_backward = ahead;
          s = state(policy);
          EXPECT_EQ(s.total.bytes, 16 * kAll / p);
          EXPECT_EQ(s.most_unsharded, ahead + 1);
          EXPECT_EQ(s.total.peak, s.total.bytes + (ahead + 1 + 2) * kUnit);
          EXPECT_EQ(s.total.reserved, s.total.peak);
        }
      }
      // Other precisions: float32 alone, and Megatron's float32 gradients (6 and 12 / P).
      Policy policy = Policy::zero3();
      EXPECT_EQ(state(policy).total.bytes, 16 * kAll / p);
      policy = Policy::zero1();
      EXPECT_EQ(state(policy).total.peak, 8 * kAll + 8 * kAll / p);
      policy = Policy::zero1(Precision::mixed());
      policy.precision.gradient = policy.precision.reduce = DataType::float32;
      EXPECT_EQ(state(policy).total.peak, 6 * kAll + 12 * kAll / p);
      policy = Policy::zero3(Precision::mixed());
      policy.precision.reduce = DataType::float32;
      EXPECT_EQ(state(policy).total.bytes, 18 * kAll / p);
      // The optimizer's part on the host; and an optimizer that keeps nothing.
      policy = Policy::zero3(Precision::mixed());
      policy.offload_state = true;
      EXPECT_EQ(state(policy).host.peak, 12 * kAll / p);
      EXPECT_EQ(state(policy).window.bytes, 4 * kAll / p);
      EXPECT_EQ(after_steps(comm, policy, 1, 0, Sgd()).host.peak, 4 * kAll / p);
      // What stays from the forward for the backward: all; and a half of it in each of a pair.
      policy = Policy::zero3(Precision::mixed());
      policy.reshard_after_forward = Reshard::no;
      EXPECT_EQ(state(policy).most_unsharded, kUnits);
      if (ranks % 2 == 0) {
        policy.reshard_after_forward = Reshard::to_group;
        policy.prefetch_forward = policy.prefetch_backward = 0;
        const ShardedStatistics s = after_steps(comm, policy, 1, 2, adamw);
        EXPECT_EQ(s.most_unsharded, 1U);
        EXPECT_EQ(s.total.bytes, 16 * kAll / p);
        // The second backward: its unit, two units' gradients, the halves of three units.
        EXPECT_EQ(s.total.peak, s.total.bytes + 3 * kUnit + 3 * kUnit / 2);
      }
    });
  }
}

TEST(ShardedMemory, WholeGradientsStayWithoutSynchronising) {
  run_thread_ranks(4, [&](Communicator& comm) {
    for (const bool each : {false, true}) {
      test::ShardedMesh mesh(comm, 1, 0);
      ShardedDataParallel model(even_units(), Policy::zero3(Precision::mixed()), mesh.axes());
      model.share_parameters();
      const AdamW adamw;
      for (int i = 0; i < 3; ++i) {
        model.synchronise(each);
        pass(model);
        model.synchronise(true);
        step(model, adamw);
      }
      // Else the two units and two buffers that there are anyway.
      EXPECT_EQ(model.statistics().total.peak,
                4 * kAll + (each ? 8 * kElements : 4 * kElements + 2 * kAll));
    }
  });
}

// --- Traffic -------------------------------------------------------------------------------------

struct Carried {                                      // bytes sent, of one step
  std::uint64_t gathers = 0, scatters = 0, sums = 0;  // over the axis that shards
  std::uint64_t replica_sums = 0, group_gathers = 0;
  std::uint64_t calls = 0;  // gathers and scatters

  friend bool operator==(const Carried&, const Carried&) = default;
};
std::ostream& operator<<(std::ostream& out, const Carried& c) {
  return out << fmt::format("gathers {} scatters {} sums {} replicas {} group {} calls {}",
                            c.gathers, c.scatters, c.sums, c.replica_sums, c.group_gathers,
                            c.calls);
}

Carried carried(test::ShardedMesh& mesh) {
  Carried c;
  const Traffic& shard = mesh.shard().traffic();
  // One call gathers a number of each rank, for the norm.
  c.gathers =
      shard[Collective::all_gather].sent - 8 * static_cast<std::uint64_t>(mesh.shard().size() - 1);
  c.scatters = shard[Collective::reduce_scatter].sent;
  c.sums = shard[Collective::all_reduce].sent;
  c.calls = shard[Collective::all_gather].calls - 1 + shard[Collective::reduce_scatter].calls;
  if (mesh.replicate() != nullptr) {
    c.replica_sums = mesh.replicate()->traffic()[Collective::all_reduce].sent;
  }
  if (mesh.group() != nullptr) {
    c.group_gathers = mesh.group()->traffic()[Collective::all_gather].sent;
  }
  for (const auto& count : shard.of) EXPECT_EQ(count.sent, count.received);
  return c;
}

/// What the third step carries, of `micro_batches`.
Carried third_step(Communicator& comm, std::vector<Unit> units, const Policy& policy,
                   int replicas = 1, int group = 0, int micro_batches = 1, bool each = false) {
  test::ShardedMesh mesh(comm, replicas, group);
  ShardedDataParallel model(std::move(units), policy, mesh.axes());
  model.share_parameters();
  const AdamW adamw;
  for (int i = 0; i < 3; ++i) {
    mesh.shard().reset_traffic();
    if (mesh.replicate() != nullptr) mesh.replicate()->reset_traffic();
    if (mesh.group() != nullptr) mesh.group()->reset_traffic();
    for (int m = 1; m < micro_batches; ++m) {
      model.synchronise(each);
      pass(model);
    }
    model.synchronise(true);
    step(model, adamw);
  }
  return carried(mesh);
}

TEST(ShardedTraffic, IsWhatTheFormulasSay) {
  constexpr std::uint64_t kBytes = 2 * kAll;  // Phi, in 16 bits
  for (const int ranks : {1, 2, 4, 8}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    const std::uint64_t once = kBytes / p * (p - 1);  // (P - 1) / P of it
    // 16 bytes on which the ranks agree at the end.
    const std::uint64_t sums = 2 * (p - 1) * 16 / p;
    run_thread_ranks(ranks, [&](Communicator& comm) {
      for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
        if (ranks == 8 && layout == Layout::by_parameter) continue;  // takes long on few cores
        const std::uint64_t calls = layout == Layout::flat ? kUnits : 2 * kUnits;
        const auto with = [&](Policy policy) {
          policy.layout = layout;
          return policy;
        };
        const Policy zero1 = with(Policy::zero1(Precision::mixed())),
                     zero2 = with(Policy::zero2(Precision::mixed()));
        Policy zero3 = with(Policy::zero3(Precision::mixed()));
        const auto units = even_units();
        const Carried two{.gathers = once, .scatters = once, .sums = sums, .calls = 2 * calls};
        EXPECT_EQ(third_step(comm, units, zero1), two);
        EXPECT_EQ(third_step(comm, units, zero2), two);
        const Carried three{
            .gathers = 2 * once, .scatters = once, .sums = sums, .calls = 3 * calls};
        for (const std::size_t ahead : {0, 1, 3}) {
          zero3.prefetch_forward = zero3.prefetch_backward = ahead;
          EXPECT_EQ(third_step(comm, units, zero3), three) << ahead;
          EXPECT_EQ(third_step(comm, units, zero3, 1, 0, 3).gathers, 6 * once) << ahead;
        }
        // Kept from the forward for the backward: all units, or the last.
        Policy kept = zero3;
        kept.reshard_after_forward = Reshard::no;
        EXPECT_EQ(third_step(comm, units, kept), two);
        auto last_kept = units;
        last_kept.back().reshard = Reshard::no;
        EXPECT_EQ(third_step(comm, last_kept, zero3).gathers, 2 * once - once / kUnits);
        // Accumulation: gradients travel once, or each time; parameters with each micro-batch.
        EXPECT_EQ(third_step(comm, units, zero1, 1, 0, 3), two);
        EXPECT_EQ(third_step(comm, units, zero2, 1, 0, 3, true).scatters, 3 * once);
        EXPECT_EQ(third_step(comm, units, zero3, 1, 0, 3).scatters, once);
        if (ranks % 2 != 0) continue;
        // HSDP: S shards, R replicas.
        for (const int replicas : {2, ranks}) {
          const std::uint64_t r = static_cast<std::uint64_t>(replicas), s = p / r;
          const Carried hybrid = third_step(comm, units, zero3, replicas);
          EXPECT_EQ(hybrid.gathers, 2 * (kBytes / s * (s - 1)));
          EXPECT_EQ(hybrid.scatters, kBytes / s * (s - 1));
          EXPECT_EQ(hybrid.replica_sums, 2 * (r - 1) * (kBytes / s) / r + 2 * (r - 1) * 16 / r);
        }
        // hpZ: the backward's gather among pairs.
        Policy grouped = zero3;
        grouped.reshard_after_forward = Reshard::to_group;
        const Carried pairs = third_step(comm, units, grouped, 1, 2);
        EXPECT_EQ(pairs.gathers, once);
        EXPECT_EQ(pairs.scatters, once);
        EXPECT_EQ(pairs.group_gathers, kBytes / 2);
      }
    });
  }
}

// Where ranks do not divide a unit, the traffic is that of statistics(), with padding: flat units
// less than `ranks` times the alignment, others a row of each parameter for each rank.
TEST(ShardedTraffic, PaddingIsStated) {
  const std::vector<Unit> units = {
      {.name = "odd", .parameters = {{"w", 35 * 11, 35}, {"empty", 0, 0}, {"b", 35, 35}}}};
  for (const int ranks : {3, 5}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    run_thread_ranks(ranks, [&](Communicator& comm) {
      for (Policy policy : {Policy::zero3(), Policy::fsdp()}) {
        for (const std::size_t alignment : {1, 32}) {
          policy.alignment = alignment;
          CommunicatorAxis axis(comm);
          const ShardedDataParallel model(units, policy, {.shard = &axis});
          const ShardedStatistics s = model.statistics();
          EXPECT_EQ(s.parameters, 35U * 12);
          EXPECT_EQ(s.total.bytes, 4 * (s.shard + s.shard));  // parameters and gradients so far
          if (policy.layout == Layout::flat) {
            EXPECT_LT(s.gathered - s.parameters, p * alignment + alignment);
          } else {
            EXPECT_EQ(s.gathered, (35 + p - 1) / p * p * 12);
          }
          const Carried c = third_step(comm, units, policy);
          EXPECT_EQ(c.gathers, 2 * 4 * s.gathered / p * (p - 1));
          EXPECT_EQ(c.scatters, 4 * s.gathered / p * (p - 1));
        }
      }
    });
  }
}

// The first step, in which everything is new, agrees on each event: 16 bytes.
TEST(ShardedTraffic, TheOrderIsAgreedOnOnce) {
  run_thread_ranks(4, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel model(even_units(), Policy::zero3(), {.shard = &axis});
    model.share_parameters();
    const Sgd sgd;
    std::vector<std::uint64_t> calls;
    for (int i = 0; i < 4; ++i) {
      axis.reset_traffic();
      step(model, sgd);
      calls.push_back(axis.traffic()[Collective::all_reduce].calls);
    }
    // The start of the second step follows on a finish for the first time.
    EXPECT_EQ(calls, (std::vector<std::uint64_t>{2 * kUnits + 1, 2, 1, 1}));
  });
}

// --- docs/sharded.md --------------------------------------------------------------------

TEST(ShardedTable, PrintsTheBytesOfEachParameter) {
  run_thread_ranks(4, [&](Communicator& comm) {
    const auto row = [&](const std::string& name, const Policy& policy, int replicas = 1,
                         int group = 0) {
      const ShardedStatistics s = after_steps(comm, policy, replicas, group, AdamW());
      const Carried c = third_step(comm, even_units(), policy, replicas, group);
      if (comm.rank() != 0) return;
      const auto each = [](std::uint64_t bytes) {
        return static_cast<double>(bytes) / static_cast<double>(kAll);
      };
      fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", name, each(s.total.bytes),
                 each(s.total.peak), each(c.gathers), each(c.scatters),
                 each(c.replica_sums + c.group_gathers));
    };
    const Precision mixed = Precision::mixed();
    row("`zero1`", Policy::zero1(mixed));
    row("`zero2`", Policy::zero2(mixed));
    row("`zero3`, `fsdp`", Policy::zero3(mixed));
    Policy policy = Policy::zero3(mixed);
    policy.reshard_after_forward = Reshard::no;
    row("`zero3`, `Reshard::no`", policy);
    policy.reshard_after_forward = Reshard::to_group;
    row("`zero3`, `Reshard::to_group`, pairs", policy, 1, 2);
    row("`zero3`, two replicas of two shards", Policy::zero3(mixed), 2);
    Policy wide = Policy::zero3();
    row("`zero3`, float32 alone", wide);
  });
}

}  // namespace
}  // namespace tutti
