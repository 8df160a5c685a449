// A rank of a mesh of 2 x 2, which dies in the middle of an engine's step on the inner axis:
//
//     lost_rank layer|expert|stage|unit|bucket|attention|halo RANK
//
// RANK kills itself. The others exit with 0 where each of them is told that this rank is lost, by
// its number in the job: the one that shares the engine also in which layer, stage, unit, bucket or
// halo, the others at least by what that one says when it gives up.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/domain/halo.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/sequence/attention.h"
#include "parallel/sharded/sharded.h"
#include "parallel/tensor/linear.h"
#include "tutti.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;

using Step = std::function<void()>;
using Work = std::function<void()>;

Step layer(Axis& axis, const Work& work) {
  struct State {
    std::unique_ptr<tensor::RowParallelLinear> layer;
    std::vector<float> x, w, y;
  };
  auto s = std::make_shared<State>();
  s->layer = std::make_unique<tensor::RowParallelLinear>(
      axis, tensor::LinearShape{"down", 16, 32, DataType::float32},
      tensor::RowOptions{.sequence = true, .pieces = 4}, [work](const tensor::Product& p) {
        work();
        tensor::multiply(p);
      });
  s->x.resize(32 * s->layer->local_in(), 1);
  s->w.resize(s->layer->weight_count(), 1);
  s->y.resize(32 * 32);
  return [s] { s->layer->forward(s->x.data(), 32, {s->w.data(), nullptr}, s->y.data()); };
}

Step expert_layer(Axis& axis, const Work& work) {
  struct State {
    State(Axis& axis, expert::ExpertShape shape) : layer(axis, std::move(shape)) {}
    expert::ExpertParallel layer;
    expert::Saved saved;
    expert::Routing routing;
    std::vector<float> x, y;
    std::vector<double> dweights;
  };
  auto s =
      std::make_shared<State>(axis, expert::ExpertShape{.name = "moe", .experts = 4, .width = 16});
  for (const int e : {0, 1, 2, 3, 0, 1, 2, 3}) s->routing.experts.push_back(e);
  s->routing.weights.assign(8, 1);
  s->dweights.resize(8);
  s->x.resize(8 * 16);
  s->y.resize(8 * 16);
  return [s, work] {
    s->layer.forward(
        s->x.data(), s->routing, [&](std::size_t, auto, std::size_t, auto) { work(); }, s->y.data(),
        s->saved);
    s->layer.backward(
        s->x.data(), [&](std::size_t, auto, auto, std::size_t, auto) { work(); }, s->saved,
        s->y.data(), s->dweights);
  };
}

Step stage(Axis& axis, const Work& work) {
  pipeline::Stages stages;
  stages.forward = [work](int, int, auto, auto) { work(); };
  stages.backward = [work](int, int, auto, auto) { work(); };
  const auto schedule = pipeline::generate(*pipeline::find_generator("1f1b"), {axis.size(), 4});
  auto executor =
      std::make_shared<pipeline::Executor>(axis, schedule, std::vector<std::size_t>{1000}, stages);
  return [executor] { executor->step(); };
}

Step unit(Axis& axis, const Work& work) {
  const std::vector<Unit> units{{"block 0", {{"w", 1000}}}, {"block 1", {{"w", 1000}}}};
  auto model =
      std::make_shared<ShardedDataParallel>(units, Policy::zero3(), ShardedAxes{.shard = &axis});
  model->share_parameters();
  return [model, work] {
    for (const std::size_t u : {0u, 1u}) {
      model->before_forward(u);
      work();
      model->after_forward(u);
    }
    for (const std::size_t u : {1u, 0u}) {
      model->before_backward(u);
      work();
      model->after_backward(u);
    }
    model->finish_backward();
    model->step(AdamW());
  };
}

Step bucket(Axis& axis, const Work& work) {
  const std::vector<Parameter> parameters(4, Parameter{"w", {1000}});
  auto engine = std::make_shared<DataParallel>(
      axis, parameters, DataParallelPolicy{.bucket_bytes = 4000, .first_bucket_bytes = 4000});
  return [engine, work] {
    engine->zero();
    for (std::size_t i = engine->size(); i-- > 0;) {
      work();
      engine->ready(i);
    }
    (void)engine->finish();
  };
}

Step attention(Axis& axis, const Work& work) {
  struct State {
    std::unique_ptr<sequence::ContextParallelAttention> layer;
    std::vector<float> q, out;
    sequence::ContextParallelAttention::Saved saved;
  };
  const sequence::Kernel plain = sequence::plain_kernel();
  auto s = std::make_shared<State>();
  s->layer = std::make_unique<sequence::ContextParallelAttention>(
      sequence::AttentionAxes{.keys = &axis},
      sequence::AttentionShape{.name = "block0", .sequence = 64, .dim = 16},
      sequence::Kernel{.forward =
                           [work, plain](const sequence::ForwardBlock& b) {
                             work();
                             plain.forward(b);
                           },
                       .backward =
                           [work, plain](const sequence::BackwardBlock& b) {
                             work();
                             plain.backward(b);
                           }});
  s->q.resize(s->layer->rows() * 16, 1);
  s->out.resize(s->q.size());
  return [s] {
    std::vector<float> dq(s->q.size()), dk(s->q.size()), dv(s->q.size());
    s->layer->forward(s->q.data(), s->q.data(), s->q.data(), s->out.data(), s->saved);
    s->layer->backward(s->out.data(), s->saved, dq.data(), dk.data(), dv.data());
  };
}

Step halo(Axis& axis, const Work& work) {
  struct State {
    std::unique_ptr<domain::Halo> halo;
    std::vector<float> block;
  };
  auto s = std::make_shared<State>();
  const domain::Stencil three{.kernel = 3, .padding = 1};
  s->halo = std::make_unique<domain::Halo>(
      axis, domain::HaloShape{"field", {{"y", 16, 2}, {"x", 16}}, {three, three}});
  s->block.resize(s->halo->elements(s->halo->padded()));
  return [s, work] {
    for (int i = 0; i < 4; ++i) {
      s->halo->start(s->block.data());
      work();
      s->halo->finish();
      s->halo->start_backward(s->block.data());
      work();
      s->halo->finish();
    }
  };
}

bool train(Communicator& world, const std::string& way, int victim) {
  Mesh mesh(world, {{"outer", 2}, {"inner", 2}});
  int until = -1;  // the victim's end: sooner or later in a step
  if (world.rank() == victim) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    until = static_cast<int>(20 + now / 1000 % 16);
  }
  const Work work = [&until] {
    if (until-- == 0) std::raise(SIGKILL);
  };
  struct Way {
    Step (*make)(Axis&, const Work&);
    std::string names;  // what the error says
  };
  const std::map<std::string, Way> ways{
      {"layer", {layer, "linear 'down': "}},
      {"expert", {expert_layer, "experts 'moe': "}},
      {"stage", {stage, fmt::format("pipeline 1f1b, rank {}, ", world.rank())}},
      {"unit", {unit, "unit"}},
      {"attention", {attention, "attention 'block0', "}},
      {"bucket", {bucket, "bucket "}},
      {"halo", {halo, "halo 'field', "}},
  };
  const auto& [make, names] = ways.at(way);
  const std::string lost = fmt::format("rank {} of the job", victim);
  try {
    Axis& inner = mesh.axis("inner");
    const Step step = make(inner, work);
    for (int i = 0; i < 1000; ++i) {
      step();
      float sum = 1;
      mesh.axis("outer").run(call_of(Collective::all_reduce, &sum, &sum, 1, DataType::float32));
    }
  } catch (const Error& e) {
    mesh.abort(e.what());
    const std::string what = e.what();
    fmt::print("rank {}: {} of rank {}: {}\n", world.rank(), name(e.code()), e.rank(), what);
    const bool tells = what.find(lost) != std::string::npos;
    const bool is_peer = e.code() == ErrorCode::peer_lost && e.rank() == victim;
    const bool aborted = e.code() == ErrorCode::aborted;
    // It may have been so slow that it has heard of it before it came to the engine again.
    const bool mate =
        (world.rank() ^ 1) == victim && what.find("on axis outer") == std::string::npos;
    return tells && (mate ? is_peer && what.find(names) != std::string::npos : is_peer || aborted);
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    auto world = Communicator::from_environment();
    return train(world, argv[1], std::atoi(argv[2])) ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
