#include "parallel/estimate/time.h"

#include <algorithm>

namespace tutti::parallel::estimate {
namespace {

/// Less than this part of a step is no wall.
constexpr double kNoWall = 0.05;

/// Ranks that share a sequence of so many tokens each compute half as fast as with whole sequences:
/// matrices and blocks of attention have fewer rows than fill a GPU. An assumption; without one,
/// the estimate would cut each sequence into parts of any size for nothing.
constexpr double kShortPart = 256;

/// The ranks of an axis of `size`, `stride` apart.
AxisPlace place(int size, int stride, const Cluster& c) {
  AxisPlace p;
  p.in_host = std::clamp(c.gpus_of_a_host / stride, 1, size);
  p.hosts = (size + p.in_host - 1) / p.in_host;
  p.sharing = std::max(1, std::min(c.gpus, c.gpus_of_a_host) / p.in_host);
  return p;
}

struct Spent {
  double seconds = 0, latency = 0;
};

Spent spent(const Traffic& traffic, const AxisPlace& at, const Cluster& c) {
  Spent all;
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const Traffic::Count& count = traffic.of[i];
    if (count.calls == 0) continue;
    const CallCost cost = c.cost(static_cast<Collective>(i), at);
    const double latency = static_cast<double>(count.calls) * cost.latency_us * 1e-6;
    all.latency += latency;
    all.seconds += latency + static_cast<double>(count.sent) / (cost.gb_per_s * 1e9);
  }
  return all;
}

StepTime time_of(const Mix& mix, const Model& model, const StepTraffic& traffic, const Cluster& c) {
  StepTime t;
  // The backward takes twice the forward, which recomputing adds once more.
  const double part = static_cast<double>(mix.length) / mix.context;
  const double slower = mix.context > 1 ? 1 + kShortPart / part : 1;
  const double forward = slower * model.forward_flops(mix.length) *
                         static_cast<double>(mix.rows() * mix.micro_batches) /
                         (mix.tensor * mix.pipeline * c.flops);
  t.compute = forward * (mix.recompute ? 4 : 3);
  const Spent tensor = spent(traffic.tensor, place(mix.tensor, 1, c), c);
  t.tensor = tensor.seconds;
  const Spent context = spent(traffic.context, place(mix.ring(), mix.tensor * mix.heads, c), c);
  const Spent heads = spent(traffic.heads, place(mix.heads, mix.tensor, c), c);
  const double attention =
      t.compute * model.attention_flops(mix.length) / model.forward_flops(mix.length);
  const double of_ring = std::max(0.0, context.seconds - attention);
  t.context = of_ring + heads.seconds;
  const Spent rows = spent(traffic.experts, place(mix.experts, mix.tensor * mix.context, c), c);
  const Spent balance = spent(traffic.balance, place(mix.data(), mix.tensor, c), c);
  t.experts = rows.seconds + balance.seconds;
  const int width = mix.stage == 0 ? mix.data() : mix.shards;
  const Spent data = spent(traffic.data, place(width, mix.tensor, c), c);
  const Spent replicas =
      spent(traffic.replicas, place(mix.replicas, mix.tensor * mix.shards, c), c);
  const Spent same =
      spent(traffic.same_experts, place(width / mix.experts, mix.tensor * mix.experts, c), c);
  t.data = data.seconds + replicas.seconds + same.seconds;
  // Stage 3 gathers during forward and backward. The others reduce during the backward alone, and
  // stages 1 and 2 gather after the step, when nothing computes.
  const double backward = t.compute - forward;
  if (mix.stage == 3) {
    t.data_exposed = std::max(0.0, t.data - t.compute);
  } else {
    const double after =
        mix.stage == 0 ? 0
                       : static_cast<double>(traffic.data[Collective::all_gather].sent) /
                             std::max<double>(1, static_cast<double>(traffic.data.total().sent)) *
                             data.seconds;
    // Only the last micro-batch's backward has gradients to reduce.
    const double hides = backward / static_cast<double>(mix.micro_batches);
    t.data_exposed = after + std::max(0.0, t.data - after - hides);
  }
  // The first gather, or the last bucket, has nothing to hide behind.
  const auto calls = static_cast<double>(traffic.data.total().calls);
  if (calls > 0) t.data_exposed = std::max(t.data_exposed, t.data / calls);
  t.latency = tensor.latency;
  t.latency += heads.latency + rows.latency + balance.latency;
  if (of_ring > 0) t.latency += of_ring * context.latency / context.seconds;
  if (t.data > 0) {
    t.latency += t.data_exposed * (data.latency + replicas.latency + same.latency) / t.data;
  }
  // 1F1B: (p - 1) micro-batches' time, and their messages.
  const auto stages = static_cast<double>(mix.pipeline), m = static_cast<double>(mix.micro_batches);
  if (mix.pipeline > 1) {
    const Spent messages =
        spent(traffic.pipeline, place(mix.pipeline, mix.tensor * mix.data(), c), c);
    t.bubble = (stages - 1) / m * (t.compute + t.tensor + t.context + t.experts + messages.seconds);
  }
  return t;
}

Wall wall_of(const Estimate& e, const Cluster& c) {
  if (!e.fits) {
    if (e.memory.state() > c.memory) return Wall::state;
    return e.memory.state() + e.memory.in_use > c.memory ? Wall::layer : Wall::activations;
  }
  const double bandwidth = e.time.exposed() - e.time.latency;
  const double most = std::max({bandwidth, e.time.latency, e.time.bubble});
  if (most < kNoWall * e.time.total()) return Wall::none;
  return most == e.time.bubble ? Wall::bubble : most == bandwidth ? Wall::bandwidth : Wall::latency;
}

}  // namespace

std::string_view name(Wall wall) {
  switch (wall) {
    case Wall::none:
      return "none";
    case Wall::state:
      return "state";
    case Wall::activations:
      return "activations";
    case Wall::layer:
      return "one layer";
    case Wall::bandwidth:
      return "bandwidth";
    case Wall::latency:
      return "latency";
    case Wall::bubble:
      return "bubble";
  }
  return "none";
}

double Estimate::tokens_per_second() const {
  return static_cast<double>(mix.rows() * mix.micro_batches) * mix.data() / time.total();
}

Estimate estimate(const Mix& mix, const Model& model, const Cluster& cluster) {
  check(mix, model);
  Estimate e{.mix = mix, .memory = most_memory(mix, model), .traffic = {}, .time = {}};
  e.fits = e.memory.total() <= cluster.memory;
  e.traffic = traffic(mix, model, 0);
  if (mix.pipeline > 1) {
    const StepTraffic last = traffic(mix, model, mix.pipeline - 1);
    if (last.total().sent >= e.traffic.total().sent) e.traffic = last;
  }
  e.time = time_of(mix, model, e.traffic, cluster);
  e.wall = wall_of(e, cluster);
  return e;
}

}  // namespace tutti::parallel::estimate
