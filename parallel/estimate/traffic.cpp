#include "parallel/estimate/traffic.h"

#include <numeric>

#include "parallel/data_parallel/buckets.h"
#include "parallel/sequence/kernel.h"
#include "parallel/sharded/layout.h"

namespace tutti::parallel::estimate {
namespace {

/// Calls on an axis of `size` ranks; of one rank, nothing travels.
class Calls {
 public:
  Calls(Traffic& traffic, int size) : traffic_(traffic), size_(size) {}

  void add(Collective collective, std::size_t count, DataType type, std::size_t times = 1,
           bool sends = false) {
    if (size_ == 1) return;
    Call call;
    call.collective = collective;
    call.count = count;
    call.type = type;
    call.sends = sends;
    const Traffic::Count one = traffic_of(call, 0, size_);
    traffic_[collective] += {one.calls * times, one.sent * times, one.received * times};
  }

 private:
  Traffic& traffic_;
  const int size_;
};

class Counting {
 public:
  Counting(const Mix& mix, const Model& model, int stage, int shard)
      : mix_(mix),
        model_(model),
        stage_(stage),
        shard_(shard),
        units_(units_of(mix, model, stage)) {}

  StepTraffic all() {
    mix_.stage == 0 ? replicas() : shards();
    context();
    tensor();
    pipeline();
    norm();
    return traffic_;
  }

 private:
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ == mix_.pipeline - 1; }

  /// Buckets from the last parameter to the first. (The order that the engine learns may cut them
  /// elsewhere.)
  void replicas() {
    std::vector<Parameter> parameters;
    for (const HeldUnit& held : units_) {
      for (std::size_t i = 0; i < held.times; ++i) {
        for (const UnitParameter& p : held.unit.parameters) {
          parameters.push_back({p.name, {p.count}, mix_.precision.gradient});
        }
      }
    }
    std::vector<std::uint32_t> order(parameters.size());
    std::iota(order.rbegin(), order.rend(), 0U);
    Calls calls(traffic_.data, mix_.data());
    for (const Bucket& b : lay_out(parameters, order, DataParallelPolicy{}).buckets) {
      calls.add(Collective::all_reduce, b.count, b.type);
    }
  }

  void shards() {
    const Policy policy = mix_.policy();
    const Precision& types = mix_.precision;
    Calls data(traffic_.data, mix_.shards), replicas(traffic_.replicas, mix_.replicas);
    for (const HeldUnit& held : units_) {
      // Stage 3 gathers a unit for each use, and again for its backward.
      const std::size_t gathers =
          mix_.stage == 3 ? 2 * static_cast<std::size_t>(held.uses) * mix_.micro_batches : 1;
      const UnitLayout layout = layout_of(held, policy);
      for (const Piece& piece : layout.pieces()) {
        if (piece.block == 0) continue;
        data.add(Collective::all_gather, piece.block, types.compute, gathers * held.times);
        data.add(Collective::reduce_scatter, piece.block, types.reduce, held.times);
        replicas.add(Collective::all_reduce, piece.block, types.reduce, held.times);
      }
    }
    // The ranks agree that they have done the same.
    data.add(Collective::all_reduce, 2, DataType::uint64);
    replicas.add(Collective::all_reduce, 2, DataType::uint64);
  }

  /// The attention of each block: keys and values go round, and in the backward they and the sums
  /// of their gradients, which come home.
  void context() {
    const DataType type = mix_.precision.compute;
    const auto ranks = static_cast<std::size_t>(mix_.context);
    const std::size_t count =
        mix_.rows() * model_.kv_heads / static_cast<std::size_t>(mix_.tensor) * model_.head_size;
    const std::size_t backwards = blocks_of(mix_, model_, stage_) * mix_.micro_batches;
    const std::size_t rounds = backwards * (mix_.recompute ? 3 : 2);
    Calls calls(traffic_.context, mix_.context);
    for (const bool sends : {false, true}) {
      calls.add(Collective::send_recv, count, type, 2 * (ranks - 1) * rounds, sends);
      calls.add(Collective::send_recv, count, sequence::wide(type), 2 * ranks * backwards, sends);
    }
  }

  void tensor() {
    const std::size_t ranks = static_cast<std::size_t>(mix_.tensor), rows = mix_.rows();
    const std::size_t all = rows * model_.width;
    const DataType type = mix_.precision.compute;
    const std::size_t pairs =
        blocks_of(mix_, model_, stage_) * static_cast<std::size_t>(model_.block.pairs);
    Calls calls(traffic_.tensor, mix_.tensor);
    const auto each = [&](Collective collective, std::size_t count, std::size_t times,
                          DataType of) {
      calls.add(collective, count, of, times * mix_.micro_batches);
    };
    if (mix_.sequence) {
      // A pair: gathered and scattered, each way, and gathered again for the weights' gradient.
      // The embedding scatters, and gathers the gradient. The output gathers, as a pair does.
      const std::size_t gathers = 3 * pairs + (first() ? 1 : 0) + (last() ? 2 : 0);
      const std::size_t scatters = 2 * pairs + (first() ? 1 : 0) + (last() ? 1 : 0);
      each(Collective::all_gather, all / ranks, gathers + recomputed(pairs), type);
      each(Collective::reduce_scatter, all / ranks, scatters + recomputed(pairs), type);
      copies();
    } else {
      const std::size_t sums = 2 * pairs + (first() ? 1 : 0) + (last() ? 1 : 0);
      each(Collective::all_reduce, all, sums + recomputed(pairs), type);
    }
    if (last()) {  // of the loss: the largest logit of a row, and two sums
      each(Collective::all_reduce, rows, 1, DataType::float64);
      each(Collective::all_reduce, 2 * rows, 1, DataType::float64);
    }
  }
  std::size_t recomputed(std::size_t pairs) const { return mix_.recompute ? pairs : 0; }

  /// What each tensor-parallel rank has the gradient of for its own rows: one call for all of them.
  void copies() {
    std::size_t count = 0;
    for (const HeldUnit& held : units_) {
      const Part& part = part_of(held);
      for (std::size_t p = 0; p < part.parameters.size(); ++p) {
        if (part.parameters[p].divided == Divided::no) count += held.times * local(held, p);
      }
    }
    // The call is made if a shard has none of them, too.
    Calls(traffic_.tensor, mix_.tensor).add(Collective::all_reduce, count, gradient_type());
  }

  void pipeline() {
    Calls calls(traffic_.pipeline, mix_.pipeline);
    const std::size_t ranks = static_cast<std::size_t>(mix_.tensor);
    const std::size_t count = mix_.rows() / (mix_.sequence ? ranks : 1) * model_.width;
    const std::size_t sides = (first() ? 0 : 1) + (last() ? 0 : 1);
    for (const bool sends : {false, true}) {  // to each side one goes, and one comes from it
      calls.add(Collective::send_recv, count, mix_.precision.compute, sides * mix_.micro_batches,
                sends);
    }
    if (!model_.tied || mix_.pipeline == 1 || !(first() || last())) return;
    Calls(traffic_.ends, 2).add(Collective::all_reduce, local(units_.front(), 0), gradient_type());
  }

  /// One number of each rank of an axis that divides gradients.
  void norm() {
    if (mix_.stage > 0) one_number(traffic_.data, mix_.shards);
    one_number(traffic_.tensor, mix_.tensor);
    one_number(traffic_.pipeline, mix_.pipeline);
  }
  static void one_number(Traffic& traffic, int size) {
    Calls(traffic, size).add(Collective::all_gather, 1, DataType::float64);
  }

  /// Of gradients that the axis of the data has averaged.
  DataType gradient_type() const {
    return mix_.stage == 0 ? mix_.precision.gradient : mix_.precision.reduce;
  }
  const Part& part_of(const HeldUnit& held) const {
    return held.unit.name == model_.block.name    ? model_.block
           : held.unit.name == model_.output.name ? model_.output
                                                  : model_.embedding;
  }
  UnitLayout layout_of(const HeldUnit& held, const Policy& policy) const {
    return {held.unit, policy.layout, static_cast<std::size_t>(mix_.shards), policy.alignment};
  }
  /// Elements of a parameter whose gradient the rank has when the axis of the data is done.
  std::size_t local(const HeldUnit& held, std::size_t parameter) const {
    if (mix_.stage == 0) return held.unit.parameters[parameter].count;
    return layout_of(held, mix_.policy()).local(parameter, static_cast<std::size_t>(shard_)).count;
  }

  const Mix& mix_;
  const Model& model_;
  const int stage_, shard_;
  const std::vector<HeldUnit> units_;
  StepTraffic traffic_;
};

}  // namespace

Traffic::Count StepTraffic::total() const {
  Traffic::Count all;
  for (const Traffic* t : {&data, &replicas, &context, &tensor, &pipeline, &ends})
    all += t->total();
  return all;
}

StepTraffic traffic(const Mix& mix, const Model& model, int stage, int shard) {
  return Counting(mix, model, stage, shard).all();
}

}  // namespace tutti::parallel::estimate
