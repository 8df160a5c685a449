// Gradients of the sharded engine that travel in 8 bits: the shards' bits, error feedback, traffic
// and memory to the byte, a model that is trained so, and policies that are refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/combine.h"
#include "core/compressed.h"
#include "core/convert.h"
#include "parallel/optimizer/optimizer.h"
#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace parallel;
using test::error_of;
using test::run_thread_ranks;

constexpr Stage kShardedStages[] = {Stage::optimizer, Stage::gradients, Stage::parameters};
constexpr EightBits kFeedback{}, kNoFeedback{.error_feedback = false};

std::vector<Unit> rounded_units() {
  return {{.name = "first", .parameters = {{"weight", 37 * 11, 37}, {"bias", 37, 37}}},
          {.name = "second", .parameters = {{"weight", 64, 8}, {"none", 0}, {"bias", 5, 5}}}};
}

/// The gradient of an element on a rank: of about 1, with neighbours that are much larger.
using Gradient = std::function<float(int rank, std::size_t unit, std::size_t p, std::size_t i)>;
float uneven(int rank, std::size_t unit, std::size_t p, std::size_t i) {
  const auto at = static_cast<float>(i + 100 * p + 1000 * unit + 17 * static_cast<unsigned>(rank));
  return std::sin(at) * (i % 16 == 9 ? 1000.0f : 1.0f);
}

Policy policy_of(Stage stage, Layout layout, DataType type, EightBits eight_bits) {
  Policy policy;
  policy.stage = stage;
  policy.layout = layout;
  policy.precision = type == DataType::float32 ? Precision::of(type) : Precision::mixed(type);
  policy.reduce_eight_bits = eight_bits;
  return policy;
}

void backward(ShardedDataParallel& model, int rank, const Gradient& gradient) {
  const DataType type = model.policy().precision.gradient;
  for (std::size_t u = model.units(); u-- > 0;) {
    model.before_backward(u);
    for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
      std::vector<float> values(model.unit(u).parameters[p].count), before(values.size());
      convert(model.gradient({u, p}), type, before.data(), DataType::float32, values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = before[i] + gradient(rank, u, p, i);
      }
      convert(values.data(), DataType::float32, model.gradient({u, p}), type, values.size());
    }
    model.after_backward(u);
  }
}

/// visit(unit, parameter, index of the element, its reduced gradient) of this rank's shards.
void for_each_gradient(const ShardedDataParallel& model, const auto& visit) {
  const DataType type = model.policy().precision.reduce;
  for (std::size_t u = 0; u < model.units(); ++u) {
    for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
      const auto shard = model.shard({u, p});
      std::vector<float> values(shard.count);
      convert(shard.gradient, type, values.data(), DataType::float32, shard.count);
      for (std::size_t i = 0; i < shard.count; ++i) visit(u, p, shard.begin + i, values[i]);
    }
  }
}

/// A unit's averages among ranks [0, ranks), as they lie in the full buffer: what the
/// format makes of the data for each rank.
std::vector<float> averages(const ShardedDataParallel& model, std::size_t u, int ranks,
                            const Gradient& gradient) {
  const DataType type = model.policy().precision.reduce;
  const std::size_t size = size_of(type), full = model.layout(u).full();
  std::vector<std::vector<std::byte>> all;
  for (int r = 0; r < ranks; ++r) {
    std::vector<float> values(full);
    for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
      for (std::size_t i = 0; i < model.unit(u).parameters[p].count; ++i) {
        values[model.layout(u).offset(p) + i] = gradient(r, u, p, i);
      }
    }
    convert(values.data(), DataType::float32, all.emplace_back(full * size).data(), type, full);
  }
  std::vector<std::byte> result(full * size);
  for (const Piece& piece : model.layout(u).pieces()) {
    for (int owner = 0; owner < ranks; ++owner) {
      const std::size_t at =
          (piece.full_offset + static_cast<std::size_t>(owner) * piece.block) * size;
      std::vector<std::vector<std::byte>> packed;
      std::vector<Source> sources;
      for (const auto& gradients : all) {
        packed.emplace_back(compressed_bytes(type, piece.block));
        compress(type, gradients.data() + at, packed.back().data(), piece.block);
      }
      for (const auto& bytes : packed) sources.push_back({bytes.data()});
      void* const to = result.data() + at;
      const std::vector<unsigned char> compressed(packed.size(), 1);
      combine_compressed(type, {&to, 1}, 0, sources, compressed, piece.block,
                         {.divisor = static_cast<std::uint32_t>(ranks), .divide_result = true});
    }
  }
  std::vector<float> widened(full);
  convert(result.data(), type, widened.data(), DataType::float32, full);
  return widened;
}

TEST(ShardedReduceEightBits, ShardsHaveTheBitsOfTheFormat) {
  for (const int ranks : {2, 3, 4}) {
    for (const Stage stage : kShardedStages) {
      for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
        for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
          SCOPED_TRACE(
              fmt::format("{} ranks, stage {}, {}", ranks, static_cast<int>(stage), name(type)));
          run_thread_ranks(ranks, [&](Communicator& comm) {
            test::ShardedMesh mesh(comm, 1, 0);
            ShardedDataParallel model(rounded_units(), policy_of(stage, layout, type, kNoFeedback),
                                      mesh.axes());
            model.share_parameters();
            std::vector<std::vector<float>> expected;
            for (std::size_t u = 0; u < model.units(); ++u) {
              expected.push_back(averages(model, u, ranks, uneven));
            }
            for (int step = 0; step < 2; ++step) {  // nothing stays from the first
              backward(model, comm.rank(), uneven);
              model.finish_backward();
              for_each_gradient(model, [&](std::size_t u, std::size_t p, std::size_t i, float g) {
                ASSERT_EQ(g, expected[u][model.layout(u).offset(p) + i]) << u << p << " " << i;
              });
              model.step(Sgd());
            }
          });
        }
      }
    }
  }
}

// With replicas the shards' averages are compressed again, twice. The largest gradient is 1000, so
// the bounds of docs/low-precision.md are multiples of that.
TEST(ShardedReduceEightBits, ReplicasKeepTheBoundAndTheSameBits) {
  run_thread_ranks(4, [&](Communicator& comm) {
    test::ShardedMesh mesh(comm, 2, 0);
    ShardedDataParallel model(
        rounded_units(), policy_of(Stage::gradients, Layout::flat, DataType::float32, kNoFeedback),
        mesh.axes());
    model.share_parameters();
    backward(model, comm.rank(), uneven);
    model.finish_backward();
    std::vector<float> mine;
    double worst = 0;
    for_each_gradient(model, [&](std::size_t u, std::size_t p, std::size_t i, float g) {
      double exact = 0;
      for (int r = 0; r < 4; ++r) exact += double{uneven(r, u, p, i)} / 4;
      worst = std::max(worst, std::fabs(g - exact));
      mine.push_back(g);
    });
    const double once = 1000.0 / 127;
    EXPECT_LE(worst, once + (1000 + once) * (2 + 1.0 / 127) / 127 + 1e-3);
    EXPECT_GT(worst, 0.5);  // some were lost
    std::vector<float> all(mine.size() * 2);
    mesh.replicate()->run(
        call_of(Collective::all_gather, mine.data(), all.data(), mine.size(), DataType::float32));
    EXPECT_EQ(std::memcmp(all.data(), all.data() + mine.size(), mine.size() * sizeof(float)), 0);
  });
}

// In all steps together a rank sends all but one step's error. Without error feedback, small
// gradients beside a large one never arrive.
TEST(ShardedReduceEightBits, SendLaterWhatTheyLeaveOut) {
  constexpr int kSteps = 100;
  for (const Stage stage : kShardedStages) {
    for (const int micro_batches : {1, 2}) {
      for (const bool feedback : {true, false}) {
        SCOPED_TRACE(fmt::format("stage {}, {} micro-batches, {}", static_cast<int>(stage),
                                 micro_batches, feedback));
        run_thread_ranks(2, [&](Communicator& comm) {
          test::ShardedMesh mesh(comm, 1, 0);
          ShardedDataParallel model(rounded_units(),
                                    policy_of(stage, Layout::by_parameter, DataType::float32,
                                              {.error_feedback = feedback}),
                                    mesh.axes());
          model.share_parameters();
          std::vector<double> sent, averages;
          for (int step = 0; step < kSteps; ++step) {
            for (int m = 0; m < micro_batches; ++m) backward(model, comm.rank(), uneven);
            model.finish_backward();
            std::size_t at = 0;
            for_each_gradient(model, [&](std::size_t u, std::size_t p, std::size_t i, float g) {
              if (at == sent.size()) {
                sent.push_back(0);
                averages.push_back((double{uneven(0, u, p, i)} + double{uneven(1, u, p, i)}) / 2);
              }
              sent[at++] += double{g} / micro_batches;
            });
            model.step(Sgd());
          }
          double worst = 0;
          for (std::size_t i = 0; i < sent.size(); ++i) {
            worst = std::max(worst, std::fabs(sent[i] / kSteps - averages[i]));
          }
          if (feedback) {
            EXPECT_LE(worst, 1010.0 / 127 / kSteps / micro_batches + 1e-3);
          } else {
            EXPECT_GT(worst, 0.9);
          }
        });
      }
    }
  }
}

// With replicas a shard's averages are compressed twice more.
TEST(ShardedReduceEightBits, ReplicasSendLaterWhatTheyLeaveOut) {
  constexpr int kSteps = 200;
  for (const unsigned divide_by : {0U, 4U}) {
    for (const Stage stage : kShardedStages) {
      for (const DataType type : {DataType::float32, DataType::bfloat16}) {
        for (const int micro_batches : {1, 2}) {
          SCOPED_TRACE(fmt::format("stage {}, {}, {} micro-batches, divided by {}",
                                   static_cast<int>(stage), name(type), micro_batches, divide_by));
          run_thread_ranks(4, [&](Communicator& comm) {
            test::ShardedMesh mesh(comm, 2, 0);
            Policy policy = policy_of(stage, Layout::flat, type, kFeedback);
            policy.divide_by = divide_by;
            ShardedDataParallel model(rounded_units(), policy, mesh.axes());
            model.share_parameters();
            // What bfloat16 has without rounding.
            const auto small = [](int rank, std::size_t unit, std::size_t p, std::size_t i) {
              const std::size_t at = i + 7 * p + 3 * unit + static_cast<std::size_t>(rank);
              return i % 16 == 9 ? 512.0F : std::ldexp(static_cast<float>(1 + at % 7), -6);
            };
            std::vector<double> missing;
            for (int step = 0; step < kSteps; ++step) {
              for (int m = 0; m < micro_batches; ++m) backward(model, comm.rank(), small);
              model.finish_backward();
              std::size_t at = 0;
              for_each_gradient(model, [&](std::size_t u, std::size_t p, std::size_t i, float g) {
                if (at == missing.size()) missing.push_back(0);
                double average = 0;
                for (int r = 0; r < 4; ++r) average += double{small(r, u, p, i)} / 4;
                missing[at++] += i % 16 == 9 ? 0 : average - double{g} / micro_batches;
              });
              model.step(Sgd());
            }
            // The gradients, a shard's averages, and their average: 512 each at most.
            double worst = 0;
            for (const double m : missing) worst = std::max(worst, std::fabs(m));
            EXPECT_LE(worst, 3 * 520.0 / 127 / micro_batches + (type == DataType::float32 ? 0 : 1));
          });
        }
      }
    }
  }
}

TEST(ShardedReduceEightBits, DiscardedGradientsLeaveNothingBehind) {
  run_thread_ranks(2, [&](Communicator& comm) {
    test::ShardedMesh mesh(comm, 1, 0);
    ShardedDataParallel model(
        rounded_units(), policy_of(Stage::parameters, Layout::flat, DataType::float32, kFeedback),
        mesh.axes());
    model.share_parameters();
    for (const bool discards : {false, true}) {
      backward(model, comm.rank(), uneven);
      model.finish_backward();
      discards ? model.discard_gradients() : model.step(Sgd());
      backward(model, comm.rank(), [](int, std::size_t, std::size_t, std::size_t) { return 0.f; });
      model.finish_backward();
      double largest = 0;
      for_each_gradient(model, [&](std::size_t, std::size_t, std::size_t, float g) {
        largest = std::max(largest, std::fabs(double{g}));
      });
      if (discards) {
        EXPECT_EQ(largest, 0);
      } else {
        EXPECT_GT(largest, 0.1);
      }
      model.step(Sgd());
    }
  });
}

TEST(ShardedReduceEightBits, CarryAndKeepWhatTheFormulasSay) {
  for (const int replicas : {1, 2}) {
    for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
      for (const DataType type : {DataType::bfloat16, DataType::float32}) {
        std::size_t held = 0;
        for (const bool feedback : {false, true}) {
          run_thread_ranks(4, [&](Communicator& comm) {
            test::ShardedMesh mesh(comm, replicas, 0);
            ShardedDataParallel model(
                rounded_units(),
                policy_of(Stage::gradients, layout, type, {.error_feedback = feedback}),
                mesh.axes());
            model.share_parameters();
            mesh.shard().reset_traffic();
            if (replicas > 1) mesh.replicate()->reset_traffic();
            backward(model, comm.rank(), uneven);
            model.finish_backward();
            // The ranks agree on the order of two backwards, and on their end: 16 bytes each.
            Traffic::Count scattered, reduced{3, 48, 48};
            for (std::size_t u = 0; u < model.units(); ++u) {
              for (const Piece& piece : model.layout(u).pieces()) {
                if (piece.block == 0) continue;
                const std::uint64_t bytes = compressed_bytes(type, piece.block);
                const auto others = static_cast<std::uint64_t>(4 / replicas - 1);
                scattered += {1, others * bytes, others * bytes};
                reduced += {1, bytes, bytes};  // 2 (P - 1) / P of two replicas
              }
            }
            EXPECT_EQ(mesh.shard().traffic()[Collective::reduce_scatter], scattered);
            if (replicas > 1) {
              EXPECT_EQ(mesh.replicate()->traffic()[Collective::all_reduce], reduced);
            }
            model.step(Sgd());
            const ShardedStatistics now = model.statistics();
            if (comm.rank() == 0 && !feedback) held = now.total.bytes;
            if (comm.rank() == 0 && feedback) {
              EXPECT_EQ(now.total.bytes, held + now.full * sizeof(float));
            }
          });
        }
      }
    }
  }
}

/// How far from their place parameters end. Each rank pulls them to a place of its own, so together
/// they go to the middle. Places differ by a factor of 1000 within a block.
double distance_after_training(Communicator& comm, Stage stage, EightBits eight_bits) {
  test::ShardedMesh mesh(comm, 1, 0);
  ShardedDataParallel model(
      rounded_units(), policy_of(stage, Layout::flat, DataType::float32, eight_bits), mesh.axes());
  model.share_parameters();
  const auto value = [&](std::size_t u, std::size_t p, std::size_t i) {
    return static_cast<const float*>(model.parameter({u, p}))[i];
  };
  for (int step = 0; step < 700; ++step) {
    for (std::size_t u = 0; u < model.units(); ++u) {
      model.before_forward(u);
      model.after_forward(u);
    }
    backward(model, comm.rank(), [&](int rank, std::size_t u, std::size_t p, std::size_t i) {
      return value(u, p, i) - uneven(rank, u, p, i);
    });
    model.finish_backward();
    model.step(Sgd({.learning_rate = step < 200 ? 0.1 : 0.01}));
  }
  double worst = 0;
  for (std::size_t u = 0; u < model.units(); ++u) {
    model.before_forward(u);
    for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
      for (std::size_t i = 0; i < model.unit(u).parameters[p].count; ++i) {
        double middle = 0;
        for (int r = 0; r < comm.size(); ++r) middle += double{uneven(r, u, p, i)} / comm.size();
        worst = std::max(worst, std::fabs(value(u, p, i) - middle));
      }
    }
    model.after_forward(u);
  }
  return worst;
}

TEST(ShardedReduceEightBits, TrainingEndsWhereItHasTo) {
  for (const Stage stage : kShardedStages) {
    run_thread_ranks(3, [&](Communicator& comm) {
      // What a step leaves out is 16 at most. The learning rate makes 0.16 of that, and the
      // gradients see the parameters without it.
      EXPECT_LE(distance_after_training(comm, stage, kFeedback), 0.33);
      EXPECT_GT(distance_after_training(comm, stage, kNoFeedback), 0.5);
    });
  }
}

TEST(ShardedReduceEightBits, ImpossiblePoliciesAreRefused) {
  Policy policy = policy_of(Stage::parameters, Layout::flat, DataType::float32, kFeedback);
  policy.check();
  policy.precision = Precision::of(DataType::float64);
  const Error e = error_of([&] { policy.check(); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(e.what()).find(
                "reduce_eight_bits: gradients of type float64 have no compressed form"),
            std::string::npos)
      << e.what();
  // Ranks agree on the option, and on error feedback.
  for (const bool has_it : {true, false}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      test::ShardedMesh mesh(comm, 1, 0);
      Policy own = policy_of(Stage::parameters, Layout::flat, DataType::bfloat16, kFeedback);
      if (comm.rank() == 0) {
        own.reduce_eight_bits = has_it ? std::optional(kNoFeedback) : std::nullopt;
      }
      EXPECT_EQ(error_of([&] { ShardedDataParallel(rounded_units(), own, mesh.axes()); }).code(),
                ErrorCode::mismatch);
    });
  }
}

}  // namespace
}  // namespace tutti
