#include "parallel/estimate/memory.h"

#include <algorithm>

#include "parallel/sequence/heads.h"
#include "parallel/sequence/kernel.h"
#include "parallel/sharded/layout.h"

namespace tutti::parallel::estimate {
namespace {

/// The most elements of `run` units that follow each other, from units that are listed by kind.
double most_in_a_row(const std::vector<std::pair<std::size_t, std::size_t>>& size_and_times,
                     std::size_t run) {
  std::vector<std::size_t> sizes;  // no more of a kind than the run can have
  for (const auto& [size, times] : size_and_times) {
    sizes.insert(sizes.end(), std::min(times, run), size);
  }
  double most = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    double sum = 0;
    for (std::size_t k = i; k < std::min(i + run, sizes.size()); ++k) {
      sum += static_cast<double>(sizes[k]);
    }
    most = std::max(most, sum);
  }
  return most;
}

double kept(const Part& part, const Mix& mix, bool sequence) {
  const double tensor = mix.tensor, element = static_cast<double>(size_of(mix.precision.compute));
  return element * (part.kept_divided / tensor + part.kept_whole / (sequence ? tensor : 1)) +
         4 * part.kept_float32 / tensor;
}

/// What a call of the attention of a shared sequence holds at most, in its backward.
double attention_call(const Mix& mix, const Model& model) {
  if (mix.context == 1) return 0;
  const DataType type = mix.precision.compute, sums = sequence::wide(type);
  const double narrow = static_cast<double>(size_of(type)),
               wide = static_cast<double>(size_of(sums)),
               head = static_cast<double>(model.head_size), rows = static_cast<double>(mix.rows());
  const auto tensor = static_cast<std::size_t>(mix.tensor);
  const auto shares = sequence::share_heads(model.heads / tensor, model.kv_heads / tensor,
                                            static_cast<std::size_t>(mix.heads));
  // Of its heads a rank has the rows of all ranks that exchange.
  const double queries = rows * mix.heads * static_cast<double>(shares.front().queries.count),
               keys = rows * mix.heads * static_cast<double>(shares.front().keys.count);
  double bytes = queries * wide;  // the sum of out * dout of each head
  if (mix.ring() > 1) {
    bytes += keys * head * ((2.0 * std::min(2, mix.ring() - 1) + 2) * narrow + 4 * wide) +
             queries * head * (narrow + (type == sums ? 0 : wide));
  }
  if (mix.heads > 1) {
    double messages = rows * static_cast<double>(model.heads / tensor);
    for (const sequence::HeadShare& s : shares) {
      messages += 2 * rows * static_cast<double>(s.keys.count);
    }
    bytes += (messages + 2 * queries + 2 * keys) * head * narrow;
  }
  return bytes;
}

/// Rows of tokens, of a balanced layer of experts.
double expert_rows(const Mix& mix, const Model& model) {
  return static_cast<double>(mix.rows() * model.top_k_of());
}
double row_bytes(const Mix& mix, const Model& model) {
  return static_cast<double>(model.width * size_of(mix.precision.compute));
}

/// What a token keeps of a layer of experts: rows that came and results that returned, what the
/// experts keep, and the routing.
double kept_by_experts(const Mix& mix, const Model& model) {
  if (model.experts == 0) return 0;
  const auto k = static_cast<double>(model.top_k);
  const double routing = 8 * static_cast<double>(model.experts) + 4 * 8 * k;
  return k * (2 * row_bytes(mix, model) + kept(model.expert, mix, false)) + routing;
}

}  // namespace

MemoryByKind engine_memory(const Mix& mix, const std::vector<HeldUnit>& units) {
  const Precision& types = mix.precision;
  const double compute = static_cast<double>(size_of(types.compute)),
               gradient = static_cast<double>(size_of(types.gradient)),
               reduce = static_cast<double>(size_of(types.reduce)),
               master = static_cast<double>(size_of(types.master));
  const bool own_master = types.master != types.compute;
  const Policy policy = mix.policy();
  double full = 0, shard = 0;
  std::vector<std::pair<std::size_t, std::size_t>> sizes;
  for (const HeldUnit& held : units) {
    const UnitLayout layout(held.unit, policy.layout,
                            mix.stage == 0 ? 1 : static_cast<std::size_t>(mix.shards),
                            mix.stage == 0 ? 1 : policy.alignment);
    full += static_cast<double>(layout.full() * held.times);
    shard += static_cast<double>(layout.shard() * held.times);
    sizes.emplace_back(layout.full(), held.times);
  }
  MemoryByKind m;
  m.parameters = (mix.stage == 3 ? shard : full) * compute + (own_master ? shard * master : 0);
  m.optimizer = static_cast<double>(mix.optimizer_states) * shard * master;
  m.gradients = mix.stage <= 1 ? full * gradient : 0;
  // Stage 1 reduces where the gradients are, unless another type travels.
  if (mix.stage >= 2 || (mix.stage == 1 && types.reduce != types.gradient)) {
    m.gradients += shard * reduce;
  }
  if (mix.stage >= 2) m.in_use += gradient * most_in_a_row(sizes, policy.reductions_in_flight + 1);
  if (mix.stage == 3) m.in_use += compute * most_in_a_row(sizes, policy.prefetch_backward + 1);
  return m;
}

MemoryByKind memory(const Mix& mix, const Model& model, int stage) {
  MemoryByKind m = engine_memory(mix, units_of(mix, model, stage));
  if (mix.experts > 1) {
    const MemoryByKind e = engine_memory(of_experts(mix), expert_units_of(mix, model, stage));
    m.parameters += e.parameters;
    m.gradients += e.gradients;
    m.optimizer += e.optimizer;
    m.in_use += e.in_use;
  }
  const double rows = static_cast<double>(mix.rows());
  const double under_way =
      std::min(static_cast<double>(mix.pipeline - stage), static_cast<double>(mix.micro_batches));
  const auto blocks = static_cast<double>(blocks_of(mix, model, stage));
  const double block = kept(model.block, mix, mix.sequence) + kept_by_experts(mix, model);
  if (mix.recompute) {
    // Each block's input, and everything of the block that runs its backward.
    const double input = static_cast<double>(model.width * size_of(mix.precision.compute)) /
                         (mix.sequence ? mix.tensor : 1);
    m.activations = rows * (under_way * blocks * input + block);
  } else {
    m.activations = rows * under_way * blocks * block;
  }
  m.in_use += attention_call(mix, model);
  // Each layer's engine keeps the memory of its backward.
  m.in_use += blocks * 3 * expert_rows(mix, model) * row_bytes(mix, model);
  if (stage == mix.pipeline - 1) m.logits = rows * kept(model.output, mix, mix.sequence);
  return m;
}

MemoryByKind most_memory(const Mix& mix, const Model& model) {
  // In between, a stage has as many blocks as the first one or fewer, and less under way.
  MemoryByKind most = memory(mix, model, 0);
  if (mix.pipeline == 1) return most;
  const MemoryByKind last = memory(mix, model, mix.pipeline - 1);
  return last.total() > most.total() ? last : most;
}

}  // namespace tutti::parallel::estimate
