// Weights out of live engines, and into them: ShardedDataParallel in all its stages and layouts.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/axis.h"
#include "parallel/reshard/buffers.h"
#include "parallel/reshard/engine.h"
#include "parallel/reshard/reshard.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::reshard::test {
namespace {

using tutti::test::error_of;
using tutti::test::run_thread_ranks;

// The sizes are no multiples of the ranks, nor of the alignment.
const std::vector<Tensor> kTensors{{"in", DataType::float32, {7, 10}},
                                   {"bias", DataType::float32, {7}},
                                   {"out", DataType::float32, {5, 14}}};
const std::vector<Unit> kUnits{{"first", {{"in", 70, 7}, {"bias", 7, 7}}, {}},
                               {"second", {{"out", 70, 5}}, {}}};

float value(std::size_t tensor, std::size_t number, int version) {
  return static_cast<float>(1000 * static_cast<std::size_t>(version) + 100 * tensor + number);
}

void load(ShardedDataParallel& engine, int version) {
  std::size_t t = 0;
  for (std::size_t u = 0; u < kUnits.size(); ++u) {
    for (std::size_t p = 0; p < kUnits[u].parameters.size(); ++p, ++t) {
      std::vector<float> all(kTensors[t].elements());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(t, i, version);
      engine.load({u, p}, all.data());
    }
  }
  engine.share_parameters();
}

/// Elements of this rank's pieces that are not those of the version.
int wrong_elements(const Layout& layout, int rank, std::span<void* const> memory, int version) {
  int wrong = 0;
  for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
    for (const Piece& p : layout.tensors[t].pieces) {
      if (p.rank != rank) continue;
      const auto* at = reinterpret_cast<const float*>(
          static_cast<const std::byte*>(memory[p.buffer]) + p.offset);
      const bool flat = p.box.dimensions() == 1;
      const Range inner = flat ? Range{0, 1} : p.box[1];
      const std::size_t columns = flat ? 1 : kTensors[t].shape[1];
      for (std::size_t i = p.box[0].begin; i < p.box[0].end; ++i) {
        for (std::size_t j = inner.begin; j < inner.end; ++j) {
          wrong += *at++ != value(t, i * columns + j, version) ? 1 : 0;
        }
      }
    }
  }
  return wrong;
}

TEST(ReshardEngine, BringsALiveEnginesWeightsAnywhereAndBack) {
  for (const Stage stage : {Stage::optimizer, Stage::gradients, Stage::parameters}) {
    for (const auto cut : {parallel::Layout::flat, parallel::Layout::by_parameter}) {
      run_thread_ranks(4, [&](Communicator& world) {
        // Ranks 0 to 2 train; ranks 2 and 3 serve.
        const bool trains = world.rank() < 3;
        Communicator job = world.split(trains ? 0 : 1, world.rank());
        CommunicatorAxis axis(job);
        Policy policy;
        policy.stage = stage;
        policy.layout = cut;
        ShardedDataParallel engine(kUnits, policy, {.shard = &axis});
        Layout trainer(4), server(4);
        // A rank without the engine makes the layout of it, too, from an engine of as many ranks.
        std::string text;
        if (trains) add_engine(trainer, engine, kTensors, std::vector<int>{0, 1, 2});
        if (trains) text = to_json(trainer);
        std::uint64_t size = text.size();
        world.broadcast(&size, &size, 1, DataType::uint64, 0);
        text.resize(size);
        world.broadcast(text.data(), text.data(), size, DataType::uint8, 0);
        trainer = layout_from_json(text);
        add_sharded(server, kTensors[0], {{2}, {shard(1)}, {2, 3}});
        add_sharded(server, kTensors[1], {{2}, {replicate()}, {2, 3}});
        add_sharded(server, kTensors[2], {{2}, {shard(0)}, {2, 3}});
        const std::vector<void*> live =
            trains ? memory_of(trainer, engine, kTensors) : std::vector<void*>(3);
        Buffers served(server, world.rank());
        Reshard out(world, trainer, server), back(world, server, trainer);
        const std::vector<const void*> sources(live.begin(), live.end());
        for (const int version : {1, 2}) {
          load(engine, version);
          out.run(sources, served.pointers());
          EXPECT_EQ(wrong_elements(server, world.rank(), served.pointers(), version), 0);
        }
        load(engine, 3);  // other values, over which the served ones go
        back.run(served.sources(), live);
        if (!trains) return;
        engine.share_parameters();
        EXPECT_EQ(wrong_elements(trainer, world.rank(), live, 2), 0);
        std::vector<float> all(engine.layout(0).full());
        engine.gather(0, ShardedDataParallel::Kept::parameters, all.data());
        EXPECT_EQ(all[engine.layout(0).offset(1) + 6], value(1, 6, 2));
      });
    }
  }
}

TEST(ReshardEngine, RefusesTensorsThatAreNotItsOwn) {
  run_thread_ranks(1, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel engine(kUnits, {}, {.shard = &axis});
    Layout layout(1);
    const int rank[] = {0};
    std::vector<Tensor> tensors = kTensors;
    tensors[1].shape = {8};
    EXPECT_CONTAINS(
        error_of([&] { add_engine(layout, engine, tensors, rank); }).what(),
        "parameter number 1 is 'bias', 7 elements of float32, and the tensor 'bias' has "
        "8 of float32");
    tensors = kTensors;
    tensors.pop_back();
    EXPECT_CONTAINS(error_of([&] { add_engine(layout, engine, tensors, rank); }).what(),
                    "and there are 2 tensors");
    const int two[] = {0, 1};
    EXPECT_CONTAINS(error_of([&] { add_engine(layout, engine, kTensors, two); }).what(),
                    "shard axis has 1 ranks, and there are 2");
  });
}

}  // namespace
}  // namespace tutti::parallel::reshard::test
