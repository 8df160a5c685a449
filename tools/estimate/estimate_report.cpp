#include "tools/estimate/estimate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "core/counted.h"
#include "tools/terminal.h"

namespace tutti {
namespace {

using namespace parallel::estimate;
using nlohmann::json;

double giga(double bytes) { return bytes / 1e9; }

/// Columns of the table, of a mix or (null) their heads, in two lines.
struct Columns {
  std::string above, text;
};

Columns batches_of(const Estimate* e) {
  if (e == nullptr) return {fmt::format("{:>10} {:>3}", "sequences", "re-"), " x batches cmp"};
  return {"", fmt::format("{:>3} x{:>5} {:>3}", e->mix.sequences, e->mix.micro_batches,
                          e->mix.recompute ? "yes" : "no")};
}

Columns memory_of(const Estimate* e) {
  if (e == nullptr) {
    return {fmt::format("{:^51}", "memory of a GPU (GB)"),
            fmt::format("{:>8}{:>7}{:>7}{:>7}{:>7}{:>7}{:>8}", "param", "grad", "optim", "in use",
                        "activ", "logits", "all")};
  }
  const MemoryByKind& m = e->memory;
  return {"", fmt::format("{:>8.1f}{:>7.1f}{:>7.1f}{:>7.1f}{:>7.1f}{:>7.1f}{:>8.1f}",
                          giga(m.parameters), giga(m.gradients), giga(m.optimizer), giga(m.in_use),
                          giga(m.activations), giga(m.logits), giga(m.total()))};
}

Columns time_of(const Estimate* e) {
  if (e == nullptr) {
    return {fmt::format("{:^49}", "a step (s)"),
            fmt::format("{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}", "compute", "tensor", "context", "experts",
                        "data", "bubble")};
  }
  const StepTime& t = e->time;
  return {"", fmt::format("{:>9.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}", t.compute, t.tensor,
                          t.context, t.experts, t.data_exposed, t.bubble)};
}

Columns whole_step_of(const Estimate* e) {
  if (e == nullptr)
    return {fmt::format("{:>9}{:>10}", "", "tokens"), fmt::format("{:>9}{:>10}", "all", "/s/GPU")};
  return {"", fmt::format("{:>9.2f}{:>10.0f}", e->time.total(),
                          e->tokens_per_second() / e->mix.ranks())};
}

Columns wall_of(const Estimate* e) {
  if (e == nullptr) return {"", "  wall"};
  return {"", fmt::format("  {}{}", e->fits ? "" : "does not fit: ", name(e->wall))};
}

using MakeColumns = Columns (*)(const Estimate*);

/// A table of all kinds of mixes, which `keys` name, and its heads in two lines.
std::string table_of(const EstimateReport& r, std::string_view head,
                     const std::vector<std::string>& keys,
                     std::initializer_list<MakeColumns> parts) {
  std::size_t width = head.size() + 1;
  for (const std::string& key : keys) width = std::max(width, key.size());
  std::string above = fmt::format("#{:<{}}", "", width - 1),
              heads = fmt::format("#{:<{}}", head, width - 1);
  for (const MakeColumns part : parts) {
    const Columns c = part(nullptr);
    above += c.above;
    heads += c.text;
  }
  std::string out = "#\n" + above.substr(0, above.find_last_not_of(' ') + 1) + "\n" + heads + "\n";
  for (std::size_t i = 0; i < keys.size(); ++i) {
    out += fmt::format("{:<{}}", keys[i], width);
    for (const MakeColumns part : parts) out += part(&r.result.kinds[i]).text;
    out += "\n";
  }
  return out;
}

/// Where one table of everything is wider than `columns` (0: it is not), memory and time are tables
/// of their own, and mixes have numbers there.
std::string tables_of(const EstimateReport& r, int columns) {
  std::vector<std::string> mixes, numbers, numbered;
  for (const Estimate& e : r.result.kinds) {
    mixes.push_back(e.mix.text() + "  ");
    numbers.push_back(fmt::format("{:>4}", mixes.size()));
    numbered.push_back(numbers.back() + "  " + mixes.back());
  }
  const std::string one =
      table_of(r, "mix", mixes, {batches_of, memory_of, time_of, whole_step_of, wall_of});
  std::size_t widest = 0;
  for (std::size_t begin = 0; begin < one.size();) {
    const std::size_t end = one.find('\n', begin);
    widest = std::max(widest, end - begin);
    begin = end + 1;
  }
  if (columns <= 0 || widest <= static_cast<std::size_t>(columns)) return one;
  return table_of(r, "     mix", numbered, {wall_of}) +
         table_of(r, "", numbers, {batches_of, memory_of}) +
         table_of(r, "", numbers, {time_of, whole_step_of});
}

/// Its lines, each as wide as the terminal at most.
std::string lines_of(std::string_view before, std::string_view text, int columns) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += wrapped(before, text.substr(0, end), columns);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string why_nothing_fits(const EstimateReport& r) {
  if (r.result.gpus_needed > static_cast<std::size_t>(r.cluster.gpus)) {
    return fmt::format(
        "Nothing fits. Parameters, gradients and the optimizer's state alone need {} of {:g} GB.\n",
        counted(r.result.gpus_needed, "GPU"), giga(r.cluster.memory));
  }
  const Estimate& e = r.result.kinds.front();  // lacks the least
  const MemoryByKind& m = e.memory;
  return fmt::format(
      "Nothing fits. {} lacks the least: it needs {:.1f} GB of the {:g}, of which {:.1f} are for "
      "parameters, gradients and the optimizer's state, {:.1f} for what is in use at a time, and "
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

std::string estimate_table(const EstimateReport& r, int columns) {
  std::string said = r.said;  // its later lines begin with "# "
  for (std::size_t at = 0; (at = said.find("\n# ", at)) != said.npos;) said.erase(++at, 2);
  const std::string head = fmt::format(
      "{}: {:.2f} billion parameters, {} of width {}\n"
      "{} of {:g} GB that reach{} {:.0f} TFLOP/s each: {}\n"
      "a step: {} of {} tokens; {} estimated\n",
      r.model.name, giga(static_cast<double>(r.model.parameters())),
      counted(r.model.blocks, "block"), r.model.width, counted(r.cluster.gpus, "GPU"),
      giga(r.cluster.memory), r.cluster.gpus == 1 ? "es" : "", r.cluster.flops / 1e12, said,
      counted(r.result.kinds.front().mix.all_sequences(), "sequence"), r.job.length,
      counted(r.result.tried, "mix"));
  return lines_of("# ", head, columns) + tables_of(r, columns) + "\n" +
         lines_of("", advice(r), columns);
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
  return all.dump(2, ' ', false, json::error_handler_t::replace) +
         "\n";  // file names are any bytes
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
