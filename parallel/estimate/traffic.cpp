#include "parallel/estimate/traffic.h"

#include <numeric>

#include "parallel/data_parallel/buckets.h"
#include "parallel/sequence/heads.h"
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
    add(collective, one, times);
  }
  void add_to_each(const std::vector<std::size_t>& in, const std::vector<std::size_t>& out,
                   DataType type, std::size_t times) {
    if (size_ == 1) return;
    Call call;
    call.collective = Collective::all_to_all_v;
    call.type = type;
    call.in_counts = in;
    call.out_counts = out;
    add(call.collective, traffic_of(call, 0, size_), times);
  }

 private:
  void add(Collective collective, const Traffic::Count& one, std::size_t times) {
    traffic_[collective] += {one.calls * times, one.sent * times, one.received * times};
  }

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
    reduce(mix_, units_, traffic_.data);
    const std::vector<HeldUnit> of_experts = expert_units_of(mix_, model_, stage_);
    if (!of_experts.empty()) {
      reduce(estimate::of_experts(mix_), of_experts, traffic_.same_experts);
    }
    context();
    heads();
    experts();
    tensor();
    pipeline();
    norm();
    return traffic_;
  }

 private:
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ == mix_.pipeline - 1; }

  void reduce(const Mix& mix, const std::vector<HeldUnit>& units, Traffic& data) {
    mix.stage == 0 ? replicas(mix, units, data) : shards(mix, units, data);
  }

  /// Buckets from the last parameter to the first. (The order that the engine learns may cut them
  /// elsewhere.)
  static void replicas(const Mix& mix, const std::vector<HeldUnit>& units, Traffic& data) {
    std::vector<Parameter> parameters;
    for (const HeldUnit& held : units) {
      for (std::size_t i = 0; i < held.times; ++i) {
        for (const UnitParameter& p : held.unit.parameters) {
          parameters.push_back({{}, {p.count}, mix.precision.gradient});
        }
      }
    }
    std::vector<std::uint32_t> order(parameters.size());
    std::iota(order.rbegin(), order.rend(), 0U);
    Calls calls(data, mix.data());
    for (const Bucket& b : lay_out(parameters, order, DataParallelPolicy{}).buckets) {
      calls.add(Collective::all_reduce, b.count, b.type);
    }
  }

  void shards(const Mix& mix, const std::vector<HeldUnit>& units, Traffic& of_data) {
    const Policy policy = mix.policy();
    const Precision& types = mix.precision;
    Calls data(of_data, mix.shards), replicas(traffic_.replicas, mix.replicas);
    for (const HeldUnit& held : units) {
      // Stage 3 gathers a unit for each use, and again for its backward.
      const std::size_t gathers =
          mix.stage == 3 ? 2 * static_cast<std::size_t>(held.uses) * mix.micro_batches : 1;
      const UnitLayout layout(held.unit, policy.layout, static_cast<std::size_t>(mix.shards),
                              policy.alignment);
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

  std::size_t backwards() const {  // of blocks
    return blocks_of(mix_, model_, stage_) * mix_.micro_batches;
  }
  std::size_t forwards() const { return backwards() * (mix_.recompute ? 2 : 1); }
  std::vector<sequence::HeadShare> head_shares() const {
    const auto tensor = static_cast<std::size_t>(mix_.tensor);
    return sequence::share_heads(model_.heads / tensor, model_.kv_heads / tensor,
                                 static_cast<std::size_t>(mix_.heads));
  }

  /// The attention of each block: keys and values go round, and in the backward they and the sums
  /// of their gradients, which come home.
  void context() {
    if (mix_.ring() == 1) return;
    const DataType type = mix_.precision.compute;
    const auto ranks = static_cast<std::size_t>(mix_.ring());
    const std::size_t count = mix_.rows() * static_cast<std::size_t>(mix_.heads) *
                              head_shares().front().keys.count * model_.head_size;
    Calls calls(traffic_.context, mix_.ring());
    for (const bool sends : {false, true}) {
      calls.add(Collective::send_recv, count, type, 2 * (ranks - 1) * (forwards() + backwards()),
                sends);
      calls.add(Collective::send_recv, count, sequence::wide(type), 2 * ranks * backwards(), sends);
    }
  }

  /// Of q, k, v and out: rows of all heads become all rows of some heads, or the other way round.
  void heads() {
    if (mix_.heads == 1) return;
    const std::vector<sequence::HeadShare> shares = head_shares();
    Calls calls(traffic_.heads, mix_.heads);
    const auto exchange = [&](sequence::Range sequence::HeadShare::*which, bool to_heads,
                              std::size_t times) {
      std::vector<std::size_t> counts;
      for (const sequence::HeadShare& s : shares) {
        counts.push_back(mix_.rows() * (s.*which).count * model_.head_size);
      }
      const std::vector<std::size_t> own(counts.size(), counts.front());
      if (counts == own) {
        calls.add(Collective::all_to_all, own.front(), mix_.precision.compute, times);
      } else if (to_heads) {
        calls.add_to_each(counts, own, mix_.precision.compute, times);
      } else {
        calls.add_to_each(own, counts, mix_.precision.compute, times);
      }
    };
    constexpr auto kQueries = &sequence::HeadShare::queries, kKeys = &sequence::HeadShare::keys;
    exchange(kQueries, true, forwards());  // q
    exchange(kKeys, true, 2 * forwards());
    exchange(kQueries, false, forwards());  // out
    exchange(kQueries, true, backwards());  // and its gradient
    exchange(kQueries, false, backwards());
    exchange(kKeys, false, 2 * backwards());
  }

  /// Rows of tokens go to experts and back, in the forward and in the backward, a wave for each
  /// expert of a rank.
  void experts() {
    if (model_.experts == 0) return;
    Calls(traffic_.balance, mix_.data())
        .add(Collective::all_reduce, 2 * model_.experts + 1, DataType::float64,
             mix_.balance ? forwards() : 0);
    const auto ranks = static_cast<std::size_t>(mix_.experts);
    const std::size_t own = model_.experts / ranks;
    const std::vector<std::size_t> rows(ranks,
                                        mix_.rows() * model_.top_k * model_.width / model_.experts);
    Calls calls(traffic_.experts, mix_.experts);
    calls.add(Collective::all_to_all, own + 1, DataType::uint64, forwards());
    calls.add_to_each(rows, rows, mix_.precision.compute, 2 * own * (forwards() + backwards()));
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
    const int groups = mix_.experts > 1 ? 2 : 1;  // of parameters that the same ranks have
    if (mix_.stage > 0) {
      one_number(traffic_.data, mix_.shards);
      if (groups == 2) one_number(traffic_.same_experts, mix_.shards / mix_.experts);
    }
    one_number(traffic_.experts, mix_.experts);
    for (int g = 0; g < groups; ++g) {
      one_number(traffic_.tensor, mix_.tensor);
      one_number(traffic_.pipeline, mix_.pipeline);
    }
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
  /// Elements of a parameter that the rank has the gradient of when the axis of the data is done.
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
  for (const Traffic* t : {&data, &replicas, &context, &heads, &experts, &balance, &same_experts,
                           &tensor, &pipeline, &ends})
    all += t->total();
  return all;
}

StepTraffic traffic(const Mix& mix, const Model& model, int stage, int shard) {
  return Counting(mix, model, stage, shard).all();
}

}  // namespace tutti::parallel::estimate
