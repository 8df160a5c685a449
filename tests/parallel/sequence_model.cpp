#include "tests/parallel/sequence_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "parallel/agreement.h"
#include "parallel/data_parallel/data_parallel.h"
#include "parallel/mesh.h"
#include "parallel/sharded/sharded.h"
#include "parallel/tensor/linear.h"

namespace tutti::test {
namespace {

using namespace parallel;

constexpr DataType kType = DataType::float64;
// 4 key heads: 3 ranks get 1, 1 and 2 of them, and 8 ranks share them.
constexpr std::size_t kSequence = 48, kSamples = 2, kWidth = 6, kHeads = 8, kKeyHeads = 4, kDim = 4;
constexpr std::size_t kQueries = kHeads * kDim, kKeys = kKeyHeads * kDim;
constexpr std::size_t kSteps = 5;
constexpr double kRate = 0.2;

double number(std::size_t seed, std::size_t i) {
  return std::sin(static_cast<double>(seed) * 12.9898 + static_cast<double>(i) * 0.7371) *
         std::cos(static_cast<double>(i * i % 97) + static_cast<double>(seed));
}

/// The input of a position of a sample, and what the layer should make of it.
double input(std::size_t position, std::size_t sample, std::size_t column) {
  return number(1, (position * kSamples + sample) * kWidth + column);
}
double target(std::size_t position, std::size_t sample, std::size_t column) {
  return number(2, (position * kSamples + sample) * kWidth + column);
}

/// q, k and v have a row for each output, of kWidth; o has kWidth rows of an input each.
constexpr std::size_t kRowsOf[4] = {kQueries, kKeys, kKeys, kWidth};
constexpr std::size_t kColumnsOf[4] = {kWidth, kWidth, kWidth, kQueries};

/// A rank's part of weight `i` of `ranks` that share it: rows, or of o, columns.
std::vector<double> part_of(const std::vector<double>& weight, std::size_t i, std::size_t rank,
                            std::size_t ranks) {
  const std::size_t rows = kRowsOf[i], columns = kColumnsOf[i];
  std::vector<double> part;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const bool mine = i < 3 ? r * ranks / rows == rank : c * ranks / columns == rank;
      if (mine) part.push_back(weight[r * columns + c]);
    }
  }
  return part;
}

std::vector<double> weight(std::size_t i) {
  std::vector<double> w(kRowsOf[i] * kColumnsOf[i]);
  for (std::size_t j = 0; j < w.size(); ++j) w[j] = number(3 + i, j);
  return w;
}

tensor::Product product(std::size_t rows, std::size_t columns, std::size_t inner, const double* a,
                        const double* b, double* c) {
  return {.type = kType, .rows = rows, .columns = columns, .inner = inner, .a = a, .b = b, .c = c};
}

/// y = x w', and the gradients.
std::vector<double> apply(const std::vector<double>& x, const std::vector<double>& w,
                          std::size_t inner) {
  const std::size_t rows = x.size() / inner, columns = w.size() / inner;
  std::vector<double> y(rows * columns);
  tensor::Product p = product(rows, columns, inner, x.data(), w.data(), y.data());
  p.transpose_b = true;
  tensor::multiply(p);
  return y;
}
std::vector<double> back(const std::vector<double>& dy, const std::vector<double>& w,
                         std::size_t inner) {
  const std::size_t columns = w.size() / inner, rows = dy.size() / columns;
  std::vector<double> dx(rows * inner);
  tensor::multiply(product(rows, inner, columns, dy.data(), w.data(), dx.data()));
  return dx;
}
std::vector<double> gradient(const std::vector<double>& dy, const std::vector<double>& x,
                             std::size_t inner) {
  const std::size_t rows = x.size() / inner, columns = dy.size() / rows;
  std::vector<double> dw(columns * inner);
  tensor::Product p = product(columns, inner, rows, dy.data(), x.data(), dw.data());
  p.transpose_a = true;
  tensor::multiply(p);
  return dw;
}

/// Weights of a rank, and their gradients, in DDP or FSDP.
class Weights {
 public:
  Weights(Axis& axis, bool sharded, std::vector<std::vector<double>> start)
      : values_(std::move(start)) {
    if (sharded) {
      Unit unit{.name = "attention", .parameters = {}};
      for (const auto& v : values_) unit.parameters.push_back({.name = "w", .count = v.size()});
      fsdp_ = std::make_unique<ShardedDataParallel>(std::vector<Unit>{unit},
                                                    Policy::zero3(Precision::of(kType)),
                                                    ShardedAxes{.shard = &axis});
      for (std::size_t i = 0; i < 4; ++i) fsdp_->load({0, i}, values_[i].data());
      fsdp_->share_parameters();
      return;
    }
    std::vector<Parameter> parameters;
    for (const auto& v : values_) parameters.push_back({"w", {v.size()}, kType});
    ddp_ = std::make_unique<DataParallel>(axis, parameters);
  }

  void before_forward() {
    if (fsdp_) fsdp_->before_forward(0);
  }
  void before_backward() {
    if (ddp_) return ddp_->zero();
    fsdp_->after_forward(0);
    fsdp_->before_backward(0);
  }
  const double* value(std::size_t i) const {
    return fsdp_ ? static_cast<const double*>(fsdp_->parameter({0, i})) : values_[i].data();
  }
  void* gradient(std::size_t i) const {
    return fsdp_ ? fsdp_->gradient({0, i}) : ddp_->gradient(i);
  }
  void step() {
    if (fsdp_) {
      fsdp_->after_backward(0);
      fsdp_->finish_backward();
      fsdp_->step(Sgd({.learning_rate = kRate}));
      return;
    }
    for (std::size_t i = 4; i-- > 0;) ddp_->ready(i);
    (void)ddp_->finish();
    for (std::size_t i = 0; i < 4; ++i) {
      const auto* const g = static_cast<const double*>(ddp_->gradient(i));
      for (std::size_t j = 0; j < values_[i].size(); ++j) values_[i][j] -= kRate * g[j];
    }
  }
  /// Collective with FSDP.
  std::vector<std::vector<double>> all() {
    if (!fsdp_) return values_;
    std::vector<std::vector<double>> result;
    fsdp_->before_forward(0);
    for (std::size_t i = 0; i < 4; ++i) {
      result.emplace_back(value(i), value(i) + values_[i].size());
    }
    fsdp_->after_forward(0);
    return result;
  }

 private:
  std::vector<std::vector<double>> values_;
  std::unique_ptr<DataParallel> ddp_;
  std::unique_ptr<ShardedDataParallel> fsdp_;
};

}  // namespace

std::string SequenceCase::text() const {
  using parallel::sequence::KeysTravel;
  using parallel::sequence::SequenceOrder;
  return fmt::format("dp {} x tp{} {} x heads {} x ring {}, {}, {}, {}, {}", dp,
                     slices ? "+sp" : "", tp, heads, ring,
                     keys == KeysTravel::ring ? "ring" : "all_gather",
                     order == SequenceOrder::zigzag ? "zigzag" : "contiguous",
                     causal ? "causal" : "full", sharded ? "fsdp" : "ddp");
}

std::vector<double> train_alone(bool causal, std::size_t steps) {
  const std::size_t tokens = kSequence * kSamples;
  std::vector<double> w[4], x(tokens * kWidth);
  for (std::size_t i = 0; i < 4; ++i) w[i] = weight(i);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = number(1, i);
  const sequence::Kernel kernel = sequence::plain_kernel();
  for (std::size_t step = 0; step < steps; ++step) {
    const auto q = apply(x, w[0], kWidth), k = apply(x, w[1], kWidth), v = apply(x, w[2], kWidth);
    const sequence::Block block{.type = kType,
                                .batch = kSamples,
                                .heads = kHeads,
                                .kv_heads = kKeyHeads,
                                .dim = kDim,
                                .queries = kSequence,
                                .keys = kSequence,
                                .causal = causal,
                                .q = q.data(),
                                .k = k.data(),
                                .v = v.data()};
    std::vector<double> out(q.size()), lse(tokens * kHeads), delta(lse.size());
    kernel.forward({.block = block, .out = out.data(), .lse = lse.data()});
    std::vector<double> dy = apply(out, w[3], kQueries);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      dy[i] = (dy[i] - number(2, i)) / static_cast<double>(tokens);
    }
    const auto dout = back(dy, w[3], kQueries);
    for (std::size_t i = 0; i < delta.size(); ++i) {
      for (std::size_t d = 0; d < kDim; ++d) delta[i] += out[i * kDim + d] * dout[i * kDim + d];
    }
    std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
    kernel.backward({.block = block,
                     .out = out.data(),
                     .lse = lse.data(),
                     .dout = dout.data(),
                     .delta = delta.data(),
                     .dq = dq.data(),
                     .dk = dk.data(),
                     .dv = dv.data()});
    const std::vector<double> dw[4] = {gradient(dq, x, kWidth), gradient(dk, x, kWidth),
                                       gradient(dv, x, kWidth), gradient(dy, out, kQueries)};
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t j = 0; j < w[i].size(); ++j) w[i][j] -= kRate * dw[i][j];
    }
  }
  std::vector<double> all;
  for (const auto& v : w) all.insert(all.end(), v.begin(), v.end());
  return all;
}

TrainedSequence train_sequence(Communicator& world, const SequenceCase& c,
                               const std::vector<double>& alone) {
  Mesh mesh(world, {{"dp", c.dp}, {"ring", c.ring}, {"heads", c.heads}, {"tp", c.tp}},
            {{"dp", "ring", "heads"}});
  Axis& tp = mesh.axis("tp");
  const auto tp_rank = static_cast<std::size_t>(tp.rank()),
             tp_ranks = static_cast<std::size_t>(tp.size());
  const std::size_t samples = kSamples / static_cast<std::size_t>(c.dp);
  const std::size_t first = samples * static_cast<std::size_t>(mesh.coordinate("dp"));
  sequence::ContextParallelAttention attention(
      {.heads = &mesh.axis("heads"), .keys = &mesh.axis("ring")},
      {.name = "layer",
       .sequence = kSequence,
       .batch = samples,
       .heads = kHeads / tp_ranks,
       .kv_heads = kKeyHeads / tp_ranks,
       .dim = kDim,
       .type = kType,
       .causal = c.causal},
      sequence::plain_kernel(), {.keys = c.keys, .order = c.order});
  const tensor::ColumnOptions column{.sequence = c.slices};
  tensor::ColumnParallelLinear project[3] = {{tp, {"q", kWidth, kQueries, kType}, column},
                                             {tp, {"k", kWidth, kKeys, kType}, column},
                                             {tp, {"v", kWidth, kKeys, kType}, column}};
  tensor::RowParallelLinear combine(tp, {"o", kQueries, kWidth, kType}, {.sequence = c.slices});
  std::vector<std::vector<double>> start;
  for (std::size_t i = 0; i < 4; ++i) start.push_back(part_of(weight(i), i, tp_rank, tp_ranks));
  Weights weights(mesh.axis({"dp", "ring", "heads"}), c.sharded, start);

  const std::size_t tokens = attention.rows() * samples;
  const std::size_t own = c.slices ? tokens / tp_ranks : tokens;
  std::vector<double> x, t;
  for (std::size_t i = c.slices ? tp_rank * own : 0; x.size() < own * kWidth; ++i) {
    for (std::size_t j = 0; j < kWidth; ++j) {
      x.push_back(input(attention.position(i / samples), first + i % samples, j));
      t.push_back(target(attention.position(i / samples), first + i % samples, j));
    }
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    weights.before_forward();
    std::vector<double> projected[3], d[3];
    for (std::size_t i = 0; i < 3; ++i) {
      projected[i].resize(tokens * project[i].local_out());
      d[i].resize(projected[i].size());
      project[i].forward(x.data(), tokens, {weights.value(i), nullptr}, projected[i].data());
    }
    std::vector<double> out(projected[0].size()), dout(out.size()), y(x.size());
    sequence::ContextParallelAttention::Saved saved;
    attention.forward(projected[0].data(), projected[1].data(), projected[2].data(), out.data(),
                      saved);
    combine.forward(out.data(), tokens, {weights.value(3), nullptr}, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = (y[i] - t[i]) / static_cast<double>(tokens);
    weights.before_backward();
    combine.backward(y.data(), out.data(), tokens, {weights.value(3), nullptr}, dout.data(),
                     {weights.gradient(3), nullptr});
    attention.backward(dout.data(), saved, d[0].data(), d[1].data(), d[2].data());
    for (std::size_t i = 0; i < 3; ++i) {
      project[i].backward(d[i].data(), x.data(), tokens, {weights.value(i), nullptr}, nullptr,
                          {weights.gradient(i), nullptr});
    }
    weights.step();
  }

  TrainedSequence result;
  const auto all = weights.all();
  std::size_t at = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t count = kRowsOf[i] * kColumnsOf[i];
    const auto from = alone.begin() + static_cast<std::ptrdiff_t>(at);
    const auto should =
        part_of({from, from + static_cast<std::ptrdiff_t>(count)}, i, tp_rank, tp_ranks);
    at += count;
    for (std::size_t j = 0; j < should.size(); ++j) {
      const double off = std::abs(all[i][j] - should[j]) / std::max(std::abs(should[j]), 0.01);
      if (!(off <= result.worst)) result.worst = off;
      result.bits = mix(result.bits, std::bit_cast<std::uint64_t>(all[i][j]));
    }
  }
  return result;
}

}  // namespace tutti::test
