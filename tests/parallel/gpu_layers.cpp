#include "tests/parallel/gpu_layers.h"

#include <cstdint>
#include <utility>

#include "core/convert.h"
#include "parallel/hybrid/shared_gradients.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"

namespace tutti::test {
namespace {

using namespace parallel;
using namespace parallel::tensor;

/// Matrices of a rank on its program's device.
class Numbers {
 public:
  explicit Numbers(Program& program)
      : device_(program.device()), pool_(MemoryPool::Reuse::no, device_) {}

  float* zeros(std::size_t count) {
    memory_.push_back(pool_.zeros(count * sizeof(float)));
    return reinterpret_cast<float*>(memory_.back().data());
  }
  /// Whole numbers from -3 to 3; `seed` tells matrices and ranks apart.
  float* whole(std::size_t count, std::size_t seed) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((5 * i + 11 * seed + i * i % 13) % 7) - 3;
    }
    float* const memory = zeros(count);
    device_.copy(memory, values.data(), count * sizeof(float));
    return memory;
  }
  /// Puts them at the end of the result.
  void keep(const float* data, std::size_t count) {
    std::vector<float> values(count);
    device_.read(values.data(), data, count * sizeof(float));
    result_.insert(result_.end(), values.begin(), values.end());
  }
  std::vector<float> result() { return std::move(result_); }

 private:
  Device& device_;
  MemoryPool pool_;
  std::vector<Buffer> memory_;
  std::vector<float> result_;
};

}  // namespace

std::vector<float> pass_tensor_layers(Program& program, Axis& axis, const TensorWay& way) {
  constexpr std::size_t kRows = 12, kWidth = 8, kHidden = 16, kTokens = 10;
  Numbers n(program);
  const auto rank = static_cast<std::size_t>(axis.rank());
  const auto ranks = static_cast<std::size_t>(axis.size());
  VocabularyEmbedding embedding(axis, "tokens", kTokens, kWidth, DataType::float32,
                                {.sequence = way.sequence});
  ColumnParallelLinear up(axis, {"up", kWidth, kHidden},
                          {way.whole_between, way.sequence, way.pieces});
  RowParallelLinear down(axis, {"down", kHidden, kWidth},
                         {!way.whole_between, way.sequence, way.pieces});
  const std::size_t mine = way.sequence ? kRows / ranks : kRows;
  const std::size_t hidden = way.whole_between ? kHidden : up.local_out();
  const std::vector<Token> ids{3, 9, 0, 3, 7, 1, 3, 9, 5, 2, 8, 3};
  const float *const table = n.whole(embedding.weight_count(), 10 + rank),
                     *const w1 = n.whole(up.weight_count(), 20 + rank),
                     *const b1 = n.whole(up.local_out(), 30 + rank),
                     *const w2 = n.whole(down.weight_count(), 40 + rank),
                     *const b2 = n.whole(kWidth, 50),
                     *const dy = n.whole(mine * kWidth, way.sequence ? 60 + rank : 60);
  float *const x = n.zeros(mine * kWidth), *const h = n.zeros(kRows * hidden),
               *const t = n.zeros(kRows * hidden), *const y = n.zeros(mine * kWidth);
  float* const gathered = way.keeps_gathered ? n.zeros(kRows * kWidth) : nullptr;
  embedding.forward(ids, table, x);
  up.forward(x, kRows, {w1, b1}, h, gathered);
  program.launch({.name = "double", .a = h, .b = h, .to = t, .count = kRows * hidden});
  down.forward(t, kRows, {w2, b2}, y);

  float *const dt = n.zeros(kRows * hidden), *const dh = n.zeros(kRows * hidden),
               *const dx = n.zeros(mine * kWidth),
               *const dtable = n.zeros(embedding.weight_count());
  float *const dw1 = n.whole(up.weight_count(), 70), *const db1 = n.whole(up.local_out(), 71),
               *const dw2 = n.whole(down.weight_count(), 72), *const db2 = n.whole(kWidth, 73);
  down.backward(dy, t, kRows, {w2, b2}, dt, {dw2, db2, way.adds});
  program.launch({.name = "double back", .a = dt, .b = dt, .to = dh, .count = kRows * hidden});
  up.backward(dh, x, kRows, {w1, b1}, dx, {dw1, db1, way.adds}, gathered);
  embedding.backward(ids, dx, dtable);

  Mapper mapper(axis);
  float* const slice = n.zeros(kRows * kWidth / ranks);
  mapper.run(Operation::reduce_scatter, n.whole(kRows * kWidth, 80 + rank), slice,
             {3, kRows / 3, kWidth}, DataType::float32);

  n.keep(y, mine * kWidth);
  n.keep(dx, mine * kWidth);
  n.keep(dw1, up.weight_count());
  n.keep(db1, up.local_out());
  n.keep(dw2, down.weight_count());
  n.keep(db2, kWidth);
  n.keep(dtable, embedding.weight_count());
  n.keep(slice, kRows * kWidth / ranks);
  return n.result();
}

std::vector<float> pass_cross_entropy(Program& program, Axis& axis) {
  constexpr std::size_t kTokens = 150;
  const std::vector<Token> targets{3, 149, -100, 77, 0, 148};
  Numbers n(program);
  VocabularyCrossEntropy loss(axis, "loss", kTokens, DataType::float32, {.multiple = 8});
  const std::size_t count = targets.size() * loss.vocabulary().local;
  float* const logits = n.whole(count, 90 + static_cast<std::size_t>(axis.rank()));
  VocabularyCrossEntropy::Saved saved;
  loss.forward(logits, targets, saved);
  loss.backward(logits, targets, saved, 1.0 / static_cast<double>(saved.counted), logits);
  n.keep(logits, count);
  std::vector<float> result = n.result();
  for (const double l : saved.loss) result.push_back(static_cast<float>(l));
  return result;
}

std::vector<float> pass_attention(Program& program, sequence::AttentionAxes axes,
                                  const sequence::Kernel& kernel, const AttentionWay& way) {
  constexpr std::size_t kSequence = 24, kBatch = 2, kHeads = 4, kDim = 4;
  const std::size_t heads_rank =
      axes.heads == nullptr ? 0 : static_cast<std::size_t>(axes.heads->rank());
  const std::size_t rank =
      10 * heads_rank + (axes.keys == nullptr ? 0 : static_cast<std::size_t>(axes.keys->rank()));
  Device& device = program.device();
  MemoryPool pool(MemoryPool::Reuse::no, device);
  std::vector<float> result;
  {
    sequence::ContextParallelAttention layer(axes,
                                             {.name = "layer",
                                              .sequence = kSequence,
                                              .batch = kBatch,
                                              .heads = kHeads,
                                              .kv_heads = way.kv_heads,
                                              .dim = kDim,
                                              .type = way.type},
                                             kernel, way.options);
    const std::size_t queries = layer.rows() * kBatch * kHeads * kDim,
                      keys = layer.rows() * kBatch * way.kv_heads * kDim;
    std::vector<Buffer> memory;
    const auto made = [&](std::size_t count, std::size_t seed) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>((5 * i + 11 * (seed + rank)) % 17) / 8 - 1;
      }
      std::vector<std::byte> typed(count * size_of(way.type));
      convert(values.data(), DataType::float32, typed.data(), way.type, count);
      memory.push_back(pool.zeros(typed.size()));
      device.copy(memory.back().data(), typed.data(), typed.size());
      return memory.back().data();
    };
    const auto keep = [&](const std::byte* data, std::size_t count) {
      std::vector<std::byte> typed(count * size_of(way.type));
      device.read(typed.data(), data, typed.size());
      std::vector<float> values(count);
      convert(typed.data(), way.type, values.data(), DataType::float32, count);
      result.insert(result.end(), values.begin(), values.end());
    };
    std::byte *const q = made(queries, 1), *const k = made(keys, 2), *const v = made(keys, 3),
                     *const dout = made(queries, 4), *const out = made(queries, 5),
                     *const dq = made(queries, 6), *const dk = made(keys, 7),
                     *const dv = made(keys, 8);
    for (int step = 0; step < 2; ++step) {
      sequence::ContextParallelAttention::Saved saved;
      layer.forward(q, k, v, out, saved);
      layer.backward(dout, saved, dq, dk, dv);
    }
    keep(out, queries);
    keep(dq, queries);
    keep(dk, keys);
    keep(dv, keys);
  }
  return result;
}

std::vector<float> pass_pipeline(Program& program, Axis& axis, const pipeline::Schedule& schedule) {
  constexpr std::size_t kCount = 200;
  Numbers n(program);
  const auto stages = static_cast<std::size_t>(schedule.stages());
  const auto batches = static_cast<std::size_t>(schedule.micro_batches);
  /// Of a stage and micro-batch: its input, and the gradient of its output.
  struct Kept {
    float *in, *gradient;
  };
  std::vector<std::vector<Kept>> kept(stages);
  std::vector<float*> weights, gradients, batch;
  for (std::size_t m = 0; m < batches; ++m) batch.push_back(n.whole(kCount, 10 + m));
  for (std::size_t s = 0; s < stages; ++s) {
    weights.push_back(n.whole(kCount, s));
    gradients.push_back(n.zeros(kCount));
    for (std::size_t m = 0; m < batches; ++m) {
      kept[s].push_back({n.zeros(kCount), n.zeros(kCount)});
    }
  }
  float* const losses = n.zeros(kCount);
  const auto place = [](int i) { return static_cast<std::size_t>(i); };
  pipeline::Stages functions;
  functions.forward = [&](int stage, int m, pipeline::Stages::In in, pipeline::Stages::Out out) {
    const std::size_t s = place(stage);
    const void* const x = in.empty() ? static_cast<const void*>(batch[place(m)]) : in.data();
    program.launch({.name = "keep", .b = x, .to = kept[s][place(m)].in, .count = kCount});
    program.launch({.name = "forward",
                    .a = x,
                    .b = weights[s],
                    .to = out.empty() ? static_cast<void*>(losses) : out.data(),
                    .adds = out.empty(),
                    .count = kCount});
  };
  functions.backward_inputs = [&](int stage, int m, pipeline::Stages::In in,
                                  pipeline::Stages::Out out) {
    const std::size_t s = place(stage);
    const Kept& k = kept[s][place(m)];
    const void* const dy = in.empty() ? static_cast<const void*>(k.in) : in.data();
    program.launch({.name = "keep gradient", .b = dy, .to = k.gradient, .count = kCount});
    if (out.empty()) return;
    program.launch({.name = "backward",
                    .a = dy,
                    .b = weights[s],
                    .scale = 2,
                    .to = out.data(),
                    .count = kCount});
  };
  functions.backward_weights = [&](int stage, int m) {
    const std::size_t s = place(stage);
    const Kept& k = kept[s][place(m)];
    program.launch({.name = "backward of weights",
                    .a = k.in,
                    .b = k.gradient,
                    .scale = 3,
                    .to = gradients[s],
                    .adds = true,
                    .count = kCount});
  };
  pipeline::Executor executor(
      axis, schedule, std::vector<std::size_t>(stages - 1, kCount * sizeof(float)), functions);
  for (int step = 0; step < 2; ++step) executor.step();
  for (float* const gradient : gradients) n.keep(gradient, kCount);
  n.keep(losses, kCount);
  return n.result();
}

std::vector<float> pass_experts(Program& program, Axis& axis,
                                const expert::ExpertOptions& options) {
  constexpr std::size_t kExperts = 8, kWidth = 6, kTop = 2;
  Numbers n(program);
  const auto rank = static_cast<std::size_t>(axis.rank());
  const std::size_t tokens = axis.size() > 1 && axis.rank() == axis.size() - 1 ? 0 : 20 + rank;
  expert::ExpertParallel layer(
      axis, {.name = "e", .experts = kExperts, .width = kWidth, .top_k = kTop}, options);
  expert::Routing routing{.top_k = kTop, .experts = {}, .weights = {}};
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t first = (3 * t + rank) % kExperts;
    for (const std::size_t e : {first, (first + 1 + t % 5) % kExperts}) {
      routing.experts.push_back(static_cast<std::int64_t>(e));
    }
    routing.weights.insert(routing.weights.end(), {0.5, 0.25});
  }
  const std::size_t count = tokens * kWidth;
  float *const x = n.whole(count + 1, rank), *const dy = n.whole(count + 1, 30 + rank),
               *const y = n.zeros(count + 1), *const dx = n.zeros(count + 1);
  std::vector<double> dweights(routing.weights.size());
  expert::Saved saved;
  std::vector<float> weights;
  for (int step = 0; step < 2; ++step) {
    layer.forward(
        x, routing,
        [&](std::size_t e, const void* rows, std::size_t got, void* results) {
          program.launch({.name = "expert",
                          .a = rows,
                          .b = rows,
                          .scale = static_cast<float>(e + layer.first_expert()),
                          .to = results,
                          .count = got * kWidth});
        },
        y, saved);
    layer.backward(
        dy,
        [&](std::size_t, const void* rows, const void* dresults, std::size_t got, void* drows) {
          program.launch({.name = "expert back",
                          .a = rows,
                          .b = dresults,
                          .scale = 2,
                          .to = drows,
                          .count = got * kWidth});
        },
        saved, dx, dweights);
    for (const double w : dweights) weights.push_back(static_cast<float>(w));
  }
  n.keep(y, count);
  n.keep(dx, count);
  std::vector<float> result = n.result();
  result.insert(result.end(), weights.begin(), weights.end());
  return result;
}

std::vector<float> pass_shared_gradients(Program& program, Axis& axis) {
  constexpr std::size_t kCounts[] = {40, 7, 60};
  Numbers n(program);
  SharedGradients shared(
      {.tensor = &axis},
      {{"norm", Copies::partial}, {"own", Copies::none}, {"bias", Copies::equal}});
  std::vector<SharedGradients::Run> values, gradients;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto rank = static_cast<std::size_t>(axis.rank());
    values.push_back({n.whole(kCounts[i], 10 * i + rank), kCounts[i]});
    gradients.push_back({n.whole(kCounts[i], 10 * i + (i == 2 ? 0 : rank)), kCounts[i]});
  }
  shared.begin(values);
  std::vector<float> norms;
  Axis* const axes[] = {&axis};
  for (int step = 0; step < 2; ++step) {
    shared.reduce(gradients);
    norms.push_back(static_cast<float>(shared.norm(gradients, axes)));
  }
  for (const auto& runs : {values, gradients}) {
    for (const SharedGradients::Run& run : runs) n.keep(static_cast<float*>(run.data), run.count);
  }
  std::vector<float> result = n.result();
  result.insert(result.end(), norms.begin(), norms.end());
  return result;
}

std::vector<float> pass_halo(Program& program, Axis& axis, const domain::HaloShape& shape) {
  Numbers n(program);
  domain::Halo halo(axis, shape);
  const std::size_t own_count = halo.elements(halo.own()), count = halo.elements(halo.padded());
  float *const own = n.whole(own_count, static_cast<std::size_t>(axis.rank())),
               *const field = n.whole(count, 50), *const seen = n.zeros(count);
  for (int step = 0; step < 2; ++step) {
    halo.insert(own, field);
    halo.start(field);
    program.launch({.name = "interior", .b = own, .to = seen, .adds = true, .count = own_count});
    halo.finish();
    program.launch({.name = "border", .b = field, .to = seen, .adds = true, .count = count});
    halo.start_backward(field);
    halo.finish();
    halo.extract(field, own);
  }
  n.keep(own, own_count);
  n.keep(seen, count);
  return n.result();
}

}  // namespace tutti::test
