// Two engines of one shape on one axis that a rank calls in another order than the others: all
// ranks are told so, whatever the engines are, and no engine gets another one's data.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/data_parallel/data_parallel.h"
#include "parallel/domain/halo.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/sequence/attention.h"
#include "parallel/sharded/sharded.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::error_of;
using test::run_thread_ranks;

using Step = std::function<void()>;  // of an engine
using Make = std::function<Step(Axis&, const std::string& name)>;

/// A step of an engine that is made of `arguments`, with memory for it.
template <class Engine, class Body, class... Arguments>
Step step_of(const Body& body, Arguments&&... arguments) {
  const auto engine = std::make_shared<Engine>(std::forward<Arguments>(arguments)...);
  return [engine, body, memory = std::make_shared<std::vector<float>>(1024)] {
    body(*engine, memory->data());
  };
}

void expect_told_apart(const Make& make) {
  for (const char* const second : {"a", "b"}) {  // the first one is called a
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const Step one = make(axis, "a"), other = make(axis, second);
      for (const Step& step : {one, other, one, other}) step();
      const Error e = error_of([&] {
        comm.rank() == 0 ? one() : other();
        comm.rank() == 0 ? other() : one();
        comm.barrier();
      });
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
    });
  }
}

TEST(EngineOrder, Attention) {
  using namespace sequence;
  for (const KeysTravel keys : {KeysTravel::ring, KeysTravel::all_gather}) {
    for (const bool of_heads : {false, true}) {
      if (of_heads && keys == KeysTravel::all_gather) continue;
      expect_told_apart([&](Axis& axis, const std::string& name) {
        const AttentionAxes axes{.heads = of_heads ? &axis : nullptr,
                                 .keys = of_heads ? nullptr : &axis};
        const auto body = [](ContextParallelAttention& layer, float* x) {
          ContextParallelAttention::Saved saved;
          layer.forward(x, x + 64, x + 128, x + 192, saved);
          layer.backward(x, saved, x + 256, x + 320, x + 384);
        };
        return step_of<ContextParallelAttention>(
            body, axes, AttentionShape{.name = name, .sequence = 8, .heads = 2, .dim = 2},
            plain_kernel(), AttentionOptions{.keys = keys});
      });
    }
  }
}

TEST(EngineOrder, Halos) {
  using namespace domain;
  expect_told_apart([](Axis& axis, const std::string& name) {
    const auto body = [](Halo& halo, float* x) {
      halo.exchange(x);
      halo.exchange_backward(x);
    };
    return step_of<Halo>(body, axis,
                         HaloShape{name, {{"x", 8, 2}}, {Stencil{.kernel = 3, .padding = 1}}});
  });
}

TEST(EngineOrder, LayersOfTensorParallelism) {
  using namespace tensor;
  expect_told_apart([](Axis& axis, const std::string& name) {
    const auto body = [](RowParallelLinear& layer, float* x) {
      layer.forward(x, 2, {x + 64, nullptr}, x + 128);
    };
    return step_of<RowParallelLinear>(body, axis, LinearShape{.name = name, .in = 4, .out = 4});
  });
  expect_told_apart([](Axis& axis, const std::string& name) {
    const auto body = [](ColumnParallelLinear& layer, float* x) {
      layer.forward(x, 2, {x + 64, nullptr}, x + 128);
    };
    return step_of<ColumnParallelLinear>(body, axis, LinearShape{.name = name, .in = 4, .out = 4},
                                         ColumnOptions{.gather_output = true});
  });
  expect_told_apart([](Axis& axis, const std::string& name) {
    const auto body = [](VocabularyEmbedding& layer, float* x) {
      const std::vector<Token> ids{1, 3};
      layer.forward(ids, x, x + 64);
    };
    return step_of<VocabularyEmbedding>(body, axis, name, std::size_t{4}, std::size_t{2},
                                        DataType::float32);
  });
  expect_told_apart([](Axis& axis, const std::string& name) {
    const auto body = [](VocabularyCrossEntropy& layer, float* x) {
      const std::vector<Token> targets{1, 3};
      VocabularyCrossEntropy::Saved saved;
      layer.forward(x, targets, saved);
    };
    return step_of<VocabularyCrossEntropy>(body, axis, name, std::size_t{4}, DataType::float32);
  });
}

TEST(EngineOrder, DataParallel) {
  expect_told_apart([](Axis& axis, const std::string&) {
    const auto body = [](DataParallel& engine, float*) {
      engine.ready(0);
      (void)engine.finish();
    };
    return step_of<DataParallel>(body, axis, std::vector<Parameter>{{"w", {6}}});
  });
}

TEST(EngineOrder, Shards) {
  expect_told_apart([](Axis& axis, const std::string& name) {
    const auto body = [](ShardedDataParallel& engine, float*) {
      engine.before_forward(0);
      engine.after_forward(0);
    };
    const auto engine = [](ShardedDataParallel& e) { e.share_parameters(); };
    const Step step = step_of<ShardedDataParallel>(
        [=, first = std::make_shared<bool>(true)](ShardedDataParallel& e, float* x) {
          if (std::exchange(*first, false)) engine(e);
          body(e, x);
        },
        std::vector<Unit>{{.name = name, .parameters = {{"w", 6, 3}}}}, Policy::zero3(),
        ShardedAxes{.shard = &axis});
    return step;
  });
}

TEST(EngineOrder, Pipelines) {
  using namespace pipeline;
  const Schedule schedule = generate(*find_generator("gpipe"), {2, 2, 0});
  expect_told_apart([&](Axis& axis, const std::string&) {
    Stages stages;
    stages.forward = stages.backward = [](int, int, Stages::In, Stages::Out) {};
    const std::vector<std::size_t> bytes(static_cast<std::size_t>(schedule.stages() - 1), 16);
    return step_of<Executor>([](Executor& e, float*) { e.step(); }, axis, schedule, bytes, stages);
  });
}

// Names are part of what ranks compare: labels are made of them.
TEST(EngineOrder, EnginesOfOtherNamesAreToldApartWhenTheyAreMade) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Error e = error_of([&] {
      sequence::ContextParallelAttention(
          {.keys = &axis},
          {.name = comm.rank() == 1 ? "block4" : "block3", .sequence = 6, .dim = 2},
          sequence::plain_kernel());
    });
    EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
    EXPECT_EQ(e.rank(), 1);
    EXPECT_CONTAINS(e, "rank 1 has \"attention 'block4'\" where rank 0 has \"attention 'block3'\"");
  });
}

}  // namespace
}  // namespace tutti::parallel
