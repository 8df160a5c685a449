#include "tools/estimate/estimate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using namespace parallel::estimate;
using nlohmann::json;

double giga(double bytes) { return bytes / 1e9; }

std::string line_of(const Estimate& e, std::size_t width) {
  const MemoryByKind& m = e.memory;
  const StepTime& t = e.time;
  return fmt::format(
      "{:<{}}{:>3} x{:>5} {:>3}{:>8.1f}{:>7.1f}{:>7.1f}{:>7.1f}{:>7.1f}{:>7.1f}{:>8.1f}"
      "{:>9.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>9.2f}{:>10.0f}  {}{}\n",
      e.mix.text(), width, e.mix.sequences, e.mix.micro_batches, e.mix.recompute ? "yes" : "no",
      giga(m.parameters), giga(m.gradients), giga(m.optimizer), giga(m.in_use), giga(m.activations),
      giga(m.logits), giga(m.total()), t.compute, t.tensor, t.context, t.experts, t.data_exposed,
      t.bubble, t.total(), e.tokens_per_second() / e.mix.ranks(),
      e.fits ? "" : "does not fit: ", name(e.wall));
}

std::string why_nothing_fits(const EstimateReport& r) {
  if (r.result.gpus_needed > static_cast<std::size_t>(r.cluster.gpus)) {
    return fmt::format(
        "Nothing fits. Parameters, gradients and the optimizer's state alone need {} GPUs of "
        "{:g} GB.\n",
        r.result.gpus_needed, giga(r.cluster.memory));
  }
  const Estimate& e = r.result.kinds.front();  // lacks the least
  const MemoryByKind& m = e.memory;
  return fmt::format(
      "Nothing fits. {} lacks the least: it needs {:.1f} GB of the {:g}, of which {:.1f} are for "
      "parameters, gradients\nand the optimizer's state, {:.1f} for what is in use at a time, and "
      "{:.1f} for activations and logits. The wall is: {}.\n",
      e.mix.text(), giga(m.total()), giga(r.cluster.memory), giga(m.state()), giga(m.in_use),
      giga(m.activations + m.logits), name(e.wall));
}

std::string advice(const EstimateReport& r) {
  if (!r.result.best) return why_nothing_fits(r);
  const Estimate& e = *r.result.best;
  std::string text = fmt::format("Use {}", e.mix.text());
  if (e.mix.pipeline > 1) text += ", with the schedule 1f1b";
  text +=
      fmt::format(", {} micro-batch{} of {} sequence{}{}: the fastest of the mixes that fit.\n",
                  e.mix.micro_batches, e.mix.micro_batches == 1 ? "" : "es", e.mix.sequences,
                  e.mix.sequences == 1 ? "" : "s", e.mix.recompute ? ", recomputing blocks" : "");
  if (e.wall != Wall::none) {
    text += fmt::format("What limits it is {}: {:.0f} % of the step is not computing.\n",
                        name(e.wall), 100 * (1 - e.time.compute / e.time.total()));
  }
  return text;
}

json traffic_json(const parallel::Traffic& t) {
  json all = json::object();
  for (std::size_t i = 0; i < kCollectives; ++i) {
    const auto& count = t.of[i];
    if (count.calls == 0) continue;
    all[std::string(name(static_cast<Collective>(i)))] = {
        {"calls", count.calls}, {"sent", count.sent}, {"received", count.received}};
  }
  return all;
}

json json_of(const Estimate& e) {
  const MemoryByKind& m = e.memory;
  const StepTime& t = e.time;
  return {{"mix", e.mix.text()},
          {"replicas", e.mix.replicas},
          {"shards", e.mix.shards},
          {"stage", e.mix.stage},
          {"tensor", e.mix.tensor},
          {"sequence", e.mix.sequence},
          {"context", e.mix.context},
          {"heads", e.mix.heads},
          {"experts", e.mix.experts},
          {"pipeline", e.mix.pipeline},
          {"sequences", e.mix.sequences},
          {"micro_batches", e.mix.micro_batches},
          {"recompute", e.mix.recompute},
          {"fits", e.fits},
          {"wall", name(e.wall)},
          {"memory",
           {{"parameters", m.parameters},
            {"gradients", m.gradients},
            {"optimizer", m.optimizer},
            {"in_use", m.in_use},
            {"activations", m.activations},
            {"logits", m.logits},
            {"total", m.total()}}},
          {"traffic",
           {{"data", traffic_json(e.traffic.data)},
            {"replicas", traffic_json(e.traffic.replicas)},
            {"context", traffic_json(e.traffic.context)},
            {"heads", traffic_json(e.traffic.heads)},
            {"experts", traffic_json(e.traffic.experts)},
            {"balance", traffic_json(e.traffic.balance)},
            {"same_experts", traffic_json(e.traffic.same_experts)},
            {"tensor", traffic_json(e.traffic.tensor)},
            {"pipeline", traffic_json(e.traffic.pipeline)},
            {"ends", traffic_json(e.traffic.ends)}}},
          {"seconds",
           {{"compute", t.compute},
            {"tensor", t.tensor},
            {"context", t.context},
            {"experts", t.experts},
            {"data", t.data},
            {"data_exposed", t.data_exposed},
            {"bubble", t.bubble},
            {"latency", t.latency},
            {"total", t.total()}}},
          {"tokens_per_second", e.tokens_per_second()}};
}

}  // namespace

std::string estimate_table(const EstimateReport& r) {
  std::string out = fmt::format(
      "# {}: {:.2f} billion parameters, {} blocks of width {}\n# {} GPUs of {:g} GB that reach "
      "{:.0f} TFLOP/s each: {}\n# a step: {} sequences of {} tokens; {} mixes estimated\n",
      r.model.name, giga(static_cast<double>(r.model.parameters())), r.model.blocks, r.model.width,
      r.cluster.gpus, giga(r.cluster.memory), r.cluster.flops / 1e12, r.said,
      r.result.kinds.front().mix.all_sequences(), r.job.length, r.result.tried);
  std::size_t width = 12;
  for (const Estimate& e : r.result.kinds) width = std::max(width, e.mix.text().size() + 2);
  out += fmt::format("#\n#{:<{}}{:>10} {:>3}{:^51}{:^58}{:>10}\n", "", width - 1, "sequences",
                     "re-", "memory of a GPU (GB)", "a step (s)", "tokens");
  out += fmt::format(
      "#{:<{}}{:>10} {:>3}{:>8}{:>7}{:>7}{:>7}{:>7}{:>7}{:>8}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}"
      "{:>9}{:>10}  {}\n",
      "mix", width - 1, "x batches", "cmp", "param", "grad", "optim", "in use", "activ", "logits",
      "all", "compute", "tensor", "context", "experts", "data", "bubble", "all", "/s/GPU", "wall");
  for (const Estimate& e : r.result.kinds) out += line_of(e, width);
  return out + "\n" + advice(r);
}

std::string estimate_json(const EstimateReport& r) {
  json all = {{"model", r.model.name},    {"parameters", r.model.parameters()},
              {"gpus", r.cluster.gpus},   {"gpu_memory", r.cluster.memory},
              {"flops", r.cluster.flops}, {"cluster", r.said},
              {"length", r.job.length},   {"tried", r.result.tried},
              {"kinds", json::array()},   {"pareto", json::array()}};
  all["best"] = r.result.best ? json_of(*r.result.best) : json();
  if (!r.result.best) all["gpus_needed"] = r.result.gpus_needed;
  for (const Estimate& e : r.result.kinds) all["kinds"].push_back(json_of(e));
  for (const Estimate& e : r.result.pareto) all["pareto"].push_back(json_of(e));
  return all.dump(2) + "\n";
}

std::string estimate_formulas() {
  return
      R"(P ranks divide what is said; N parameters of a rank (of its stage, divided by tensor); w the width,
a the width of all query heads, k that of key and value heads, h the MLP's, R tokens of a rank's micro-batch;
c, g, r, o bytes of a parameter, of its gradient, of what travels, of the master (2, 2, 2, 4).

parameters    c N (stage 3: c N / P), and o N / P of a master where o is another type (ZeRO, 2020)
gradients     g N (stages 2 and 3: r N / P)
optimizer     2 o N / P (AdamW)
in use        stage 2: gradients of 2 units; stage 3: parameters of 2 as well
activations   a block: R (c (2 a + 2 k + 3 h) / T + 4 c w / S + 4 heads / T), T tensor-parallel ranks, S = T
              with sequence parallelism, else 1; times the blocks of a stage, and the micro-batches under
              way (1F1B: stages - stage); recomputing: R c w / S a block, and one whole block
logits        8 R vocabulary / T: they and their gradient in float32
compute       3 (recomputing: 4) times 2 N + 2 a length (causal attention) for a token and layer, divided
              by what a GPU reaches (--tflops); with CP, 1 + 256 / part times as long, for parts of so many tokens
context       of ranks that share a sequence (CP), C of them in a ring: 2 (C - 1) R k a block, forward;
              2 (C - 1) R k and in float32 2 C R k, backward. Less what the attention hides. And H of them
              that exchange rows for heads: (H - 1) / H R (2 a + 2 k) each way
experts       of E ranks that divide them (EP), top n: 4 (E - 1) / E n R w a block, and counts; an all-reduce
              for their balance. (Experts: parameters and optimizer are shared by P / E ranks; a token keeps
              2 n rows of w and what n experts keep; in use 3 n R w a block)
tensor        a pair: two all-reduces of R w, or all-gathers and reduce-scatters (5 of R w in all)
data          DDP: 2 (P - 1) / P N; ZeRO-1, 2: the same; ZeRO-3: (2 m + 1) (P - 1) / P N of m
              micro-batches. Less what the backward hides (stage 3: forward and backward)
bubble        (stages - 1) / micro-batches of the rest (1F1B)
a call        latency + bytes / rate, predicted for the cluster at two sizes (docs/cost-model.md)
)";
}

}  // namespace tutti
