#include "tests/parallel/gpu_model.h"

#include "core/convert.h"

namespace tutti::test {
namespace {

using parallel::Buffer;
using parallel::MemoryPool;
using parallel::ShardedDataParallel;

constexpr std::size_t kUnits = 3;
constexpr std::size_t kCounts[2] = {96, 8};  // elements of a unit's parameters

std::vector<float> as_float(DataType type, const void* data, std::size_t count) {
  std::vector<float> values(count);
  if (data != nullptr) convert(data, type, values.data(), DataType::float32, count);
  return values;
}

/// What a parameter begins with.
std::vector<float> first_values(std::size_t unit, std::size_t parameter) {
  std::vector<float> values(kCounts[parameter]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((31 * unit + 17 * parameter + 5 * i) % 23) - 11;
  }
  return values;
}

/// What a rank's data say in a micro-batch.
std::vector<float> sample(int rank, int step, int batch) {
  std::vector<float> values(kCounts[0]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((7 * static_cast<std::size_t>(rank + 1) +
                                    13 * static_cast<std::size_t>(10 * step + batch) + 3 * i) %
                                   19) -
                9;
  }
  return values;
}

std::vector<parallel::Unit> units() {
  std::vector<parallel::Unit> all;
  for (std::size_t u = 0; u < kUnits; ++u) {
    all.push_back({.name = "u" + std::to_string(u),
                   .parameters = {{"w", kCounts[0], 12}, {"b", kCounts[1], 8}}});
  }
  return all;
}

/// The activations of a micro-batch: x, then each unit's.
class Activations {
 public:
  Activations(Program& program, MemoryPool& pool) : program_(program) {
    for (std::size_t u = 0; u <= kUnits; ++u) {
      all_.push_back(pool.allocate(kCounts[0] * sizeof(float)));
    }
  }
  void begin(const std::vector<float>& x) {
    program_.device().copy(all_[0].data(), x.data(), x.size() * sizeof(float));
  }
  std::byte* of(std::size_t u) { return all_[u].data(); }

 private:
  Program& program_;
  std::vector<Buffer> all_;
};

void forward(Program& program, ShardedDataParallel& model, std::size_t u, Activations& h) {
  const DataType type = model.policy().precision.compute;
  model.before_forward(u);
  program.launch({.name = "forward " + std::to_string(u),
                  .a = h.of(u),
                  .b = model.parameter({u, 0}),
                  .to = h.of(u + 1),
                  .count = kCounts[0],
                  .type = type});
  program.launch({.name = "bias " + std::to_string(u),
                  .a = h.of(u + 1),
                  .b = model.parameter({u, 1}),
                  .to = h.of(u + 1),
                  .count = kCounts[1],
                  .type = type});
  model.after_forward(u);
}

void backward(Program& program, ShardedDataParallel& model, std::size_t u, Activations& h) {
  const parallel::Precision& types = model.policy().precision;
  model.before_backward(u);
  for (std::size_t p = 0; p < 2; ++p) {
    program.launch({.name = "backward " + std::to_string(u),
                    .a = h.of(u + 1 - p),
                    .b = model.parameter({u, p}),
                    .scale = 2,
                    .to = model.gradient({u, p}),
                    .adds = true,
                    .count = kCounts[p],
                    .type = types.compute,
                    .to_type = types.gradient});
  }
  model.after_backward(u);
}

}  // namespace

void run(const Kernel& k) {
  const std::vector<float> a = as_float(DataType::float32, k.a, k.count);
  const std::vector<float> b = as_float(k.type, k.b, k.count);
  std::vector<float> to = as_float(k.to_type, k.adds ? k.to : nullptr, k.count);
  for (std::size_t i = 0; i < k.count; ++i) to[i] = to[i] + (a[i] + k.scale * b[i]);
  convert(to.data(), DataType::float32, k.to, k.to_type, k.count);
}

std::vector<float> train_sharded(Program& program, const parallel::ShardedAxes& axes,
                                 const TrainingOnDevice& training) {
  parallel::Device& device = program.device();
  MemoryPool pool(MemoryPool::Reuse::no, device);
  std::vector<float> results, norms;
  {
    Activations h(program, pool);
    ShardedDataParallel model(units(), training.policy, axes);
    for (std::size_t u = 0; u < kUnits; ++u) {
      for (std::size_t p = 0; p < 2; ++p) model.load({u, p}, first_values(u, p).data());
    }
    model.share_parameters();
    const int rank = axes.shard->rank() +
                     (axes.replicate != nullptr ? axes.replicate->rank() * axes.shard->size() : 0);
    for (int step = 0; step < training.steps; ++step) {
      for (int batch = 0; batch < training.micro_batches; ++batch) {
        model.synchronise(training.reduces_each || batch == training.micro_batches - 1);
        h.begin(sample(rank, step, batch));
        for (std::size_t u = 0; u < kUnits; ++u) forward(program, model, u, h);
        for (std::size_t u = kUnits; u-- > 0;) backward(program, model, u, h);
        model.finish_backward();
      }
      if (training.clips) norms.push_back(static_cast<float>(model.clip_gradients(1e6)));
      model.step(*training.optimizer);
    }
    for (std::size_t u = 0; u < kUnits; ++u) {
      const std::size_t count = model.layout(u).full();
      const Buffer all = pool.zeros(count * sizeof(float));
      model.gather(u, ShardedDataParallel::Kept::parameters, all.data());
      std::vector<float> values(count);
      device.read(values.data(), all.data(), count * sizeof(float));
      for (std::size_t p = 0; p < 2; ++p) {
        const auto at = values.begin() + static_cast<std::ptrdiff_t>(model.layout(u).offset(p));
        results.insert(results.end(), at, at + static_cast<std::ptrdiff_t>(kCounts[p]));
      }
    }
  }
  results.insert(results.end(), norms.begin(), norms.end());
  return results;
}

std::vector<float> train_data_parallel(Program& program, parallel::Axis& axis,
                                       parallel::DataParallelPolicy policy, int steps) {
  constexpr std::size_t kParameters = 6;
  parallel::Device& device = program.device();
  MemoryPool pool(MemoryPool::Reuse::no, device);
  std::vector<parallel::Parameter> parameters;
  std::vector<Buffer> memory;
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < kParameters; ++i) {
    parameters.push_back({.name = "p" + std::to_string(i), .shape = {kCounts[0]}});
    memory.push_back(pool.zeros(kCounts[0] * sizeof(float)));
    pointers.push_back(memory.back().data());
    if (axis.rank() != 0) continue;
    const std::vector<float> values = first_values(i, 0);
    device.copy(pointers.back(), values.data(), values.size() * sizeof(float));
  }
  const Buffer data = pool.zeros(kCounts[0] * sizeof(float));
  parallel::DataParallel engine(axis, parameters, std::move(policy));
  engine.broadcast_parameters(pointers);
  std::vector<float> results;
  for (int step = 0; step < steps; ++step) {
    const std::vector<float> x = sample(axis.rank(), step, 0);
    device.copy(data.data(), x.data(), x.size() * sizeof(float));
    engine.zero();
    for (std::size_t n = 0; n < kParameters; ++n) {
      const std::size_t i = (n * 5 + 2) % kParameters;  // in an order to be learned
      program.launch({.name = "gradient " + std::to_string(i),
                      .a = data.data(),
                      .b = pointers[i],
                      .scale = 3,
                      .to = engine.gradient(i),
                      .adds = true,
                      .count = kCounts[0]});
      engine.ready(i);
    }
    (void)engine.finish();
    for (std::size_t i = 0; i < kParameters; ++i) {
      program.launch({.name = "update " + std::to_string(i),
                      .a = pointers[i],
                      .b = engine.gradient(i),
                      .scale = -0.25f,
                      .to = pointers[i],
                      .count = kCounts[0]});
      std::vector<float> values(kCounts[0]);
      device.read(values.data(), engine.gradient(i), values.size() * sizeof(float));
      results.insert(results.end(), values.begin(), values.end());
    }
  }
  return results;
}

std::vector<float> pass_messages(Program& program, parallel::Axis& axis) {
  constexpr std::size_t kCount = 400, kBytes = kCount * sizeof(float);
  parallel::Device& device = program.device();
  MemoryPool pool(MemoryPool::Reuse::no, device);
  const Buffer own = pool.zeros(kBytes), come = pool.zeros(kBytes), total = pool.zeros(kBytes),
               sum = pool.zeros(kBytes);
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>((7 * i + 100 * static_cast<std::size_t>(axis.rank())) % 31);
  }
  device.copy(own.data(), values.data(), kBytes);
  const int next = (axis.rank() + 1) % axis.size(),
            previous = (axis.rank() + axis.size() - 1) % axis.size();
  for (int step = 0; step < 3; ++step) {
    parallel::Pending recv = axis.recv(come.data(), kCount, DataType::float32, previous);
    program.launch(
        {.name = "make", .b = own.data(), .to = own.data(), .adds = true, .count = kCount});
    parallel::Pending send = axis.send(own.data(), kCount, DataType::float32, next);
    axis.all_reduce(own.data(), sum.data(), kCount, DataType::float32).wait();
    recv.wait();
    program.launch({.name = "use",
                    .a = come.data(),
                    .b = sum.data(),
                    .to = total.data(),
                    .adds = true,
                    .count = kCount});
    send.wait();
  }
  device.read(values.data(), total.data(), kBytes);
  return values;
}

}  // namespace tutti::test
