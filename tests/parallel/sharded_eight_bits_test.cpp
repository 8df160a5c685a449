// Parameters that are gathered in 8 bits: their values, the same bits on all ranks, the digits that
// shards and masters keep, the traffic and the memory to the byte.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/compressed.h"
#include "core/convert.h"
#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace parallel;
using test::error_of;
using test::run_thread_ranks;

std::vector<Unit> units() {
  return {{.name = "first", .parameters = {{"weight", 37 * 11, 37}, {"bias", 37, 37}}},
          {.name = "second", .parameters = {{"weight", 64, 8}, {"none", 0}, {"bias", 5, 5}}}};
}

/// Integers that 8 bits carry exactly, or numbers that they do not.
float value(bool exact, std::size_t unit, std::size_t parameter, std::size_t i) {
  if (exact) return static_cast<float>((i * 7 + 13 * parameter + 29 * unit) % 61) - 30;
  return std::sin(static_cast<float>(i + 100 * parameter + 1000 * unit)) * (i % 32 == 9 ? 100 : 1);
}

Policy policy_of(Stage stage, Layout layout, DataType compute) {
  Policy policy;
  policy.stage = stage;
  policy.layout = layout;
  policy.precision =
      compute == DataType::float32 ? Precision::of(compute) : Precision::mixed(compute);
  policy.gather_eight_bits = true;
  return policy;
}

void load(ShardedDataParallel& model, bool exact) {
  for (std::size_t u = 0; u < model.units(); ++u) {
    for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
      std::vector<float> all(model.unit(u).parameters[p].count);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = value(exact, u, p, i);
      model.load({u, p}, all.data());
    }
  }
  model.share_parameters();
}

/// Each element is the loaded one, or as near to it as the largest of its neighbours allows; and
/// the same on all ranks.
void check(Communicator& comm, const ShardedDataParallel& model, std::size_t u, bool exact) {
  const DataType type = model.policy().precision.compute;
  for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
    const std::size_t count = model.unit(u).parameters[p].count;
    const std::size_t bytes = count * size_of(type);
    std::vector<float> found(count);
    convert(model.parameter({u, p}), type, found.data(), DataType::float32, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (exact) {
        ASSERT_EQ(found[i], value(true, u, p, i)) << p << " " << i;
      } else {
        ASSERT_NEAR(found[i], value(false, u, p, i), 100.0 / 127 + 0.5) << p << " " << i;
      }
    }
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(comm.size()));
    comm.all_gather(model.parameter({u, p}), all.data(), bytes, DataType::uint8);
    for (int r = 1; r < comm.size(); ++r) {
      ASSERT_TRUE(
          bytes == 0 ||
          std::memcmp(all.data(), all.data() + static_cast<std::size_t>(r) * bytes, bytes) == 0);
    }
  }
}

TEST(ShardedEightBits, AllRanksUseWhatArrives) {
  for (const int ranks : {1, 2, 3}) {
    for (const Stage stage : {Stage::optimizer, Stage::gradients, Stage::parameters}) {
      for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
        for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32}) {
          if (stage != Stage::parameters && type == DataType::float32) continue;
          for (const bool exact : {true, false}) {
            SCOPED_TRACE(
                fmt::format("{} ranks, stage {}, {}", ranks, static_cast<int>(stage), name(type)));
            run_thread_ranks(ranks, [&](Communicator& comm) {
              test::ShardedMesh mesh(comm, 1, 0);
              ShardedDataParallel model(units(), policy_of(stage, layout, type), mesh.axes());
              load(model, exact);
              for (std::size_t u = 0; u < model.units(); ++u) {
                model.before_forward(u);
                check(comm, model, u, exact);
                model.after_forward(u);
              }
              // The masters keep their digits.
              for (std::size_t u = 0; u < model.units(); ++u) {
                for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
                  const auto shard = model.shard({u, p});
                  for (std::size_t i = 0; i < shard.count; ++i) {
                    ASSERT_EQ(static_cast<const float*>(shard.master)[i],
                              value(exact, u, p, shard.begin + i));
                  }
                }
              }
            });
          }
        }
      }
    }
  }
}

TEST(ShardedEightBits, CarryWhatTheFormulaSays) {
  for (const int ranks : {2, 3, 4}) {
    for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
      for (const DataType type : {DataType::bfloat16, DataType::float32}) {
        run_thread_ranks(ranks, [&](Communicator& comm) {
          test::ShardedMesh mesh(comm, 1, 0);
          ShardedDataParallel model(units(), policy_of(Stage::parameters, layout, type),
                                    mesh.axes());
          load(model, true);
          const std::size_t held = model.statistics().total.bytes;
          mesh.shard().reset_traffic();
          model.before_forward(0);
          std::uint64_t sent = 0, calls = 0;
          for (const Piece& piece : model.layout(0).pieces()) {
            if (piece.block == 0) continue;
            ++calls;
            sent += static_cast<std::uint64_t>(ranks - 1) * compressed_bytes(type, piece.block);
          }
          EXPECT_EQ(mesh.shard().traffic()[Collective::all_gather],
                    (Traffic::Count{calls, sent, sent}));
          // What came in 8 bits is freed when the unit is in use.
          EXPECT_EQ(model.statistics().total.bytes, held + model.layout(0).full() * size_of(type));
          model.after_forward(0);
          EXPECT_EQ(model.statistics().total.bytes, held);
        });
      }
    }
  }
}

TEST(ShardedEightBits, PartsOfASmallGroupComeAsTheyAre) {
  run_thread_ranks(4, [&](Communicator& comm) {
    test::ShardedMesh mesh(comm, 1, 2);
    Policy policy = policy_of(Stage::parameters, Layout::flat, DataType::bfloat16);
    policy.reshard_after_forward = Reshard::to_group;
    policy.prefetch_forward = policy.prefetch_backward = 0;
    ShardedDataParallel model(units(), policy, mesh.axes());
    load(model, false);
    std::vector<std::vector<std::byte>> seen;
    const auto look = [&](std::size_t u) {
      const std::size_t bytes = model.unit(u).parameters[0].count * 2;
      const auto* const data = static_cast<const std::byte*>(model.parameter({u, 0}));
      return std::vector<std::byte>(data, data + bytes);
    };
    for (std::size_t u = 0; u < model.units(); ++u) {
      model.before_forward(u);
      seen.push_back(look(u));
      model.after_forward(u);
    }
    // What has been compressed before is compressed without loss.
    for (std::size_t u = model.units(); u-- > 0;) {
      model.before_backward(u);
      EXPECT_EQ(look(u), seen[u]);
      check(comm, model, u, false);
      model.after_backward(u);
    }
    model.finish_backward();
  });
}

TEST(ShardedEightBits, PoliciesThatLoseDigitsAreRefused) {
  Policy policy = policy_of(Stage::gradients, Layout::flat, DataType::float32);
  Error e = error_of([&] { policy.check(); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(e.what()).find("before stage 3 needs a master"), std::string::npos);
  policy = policy_of(Stage::parameters, Layout::flat, DataType::float32);
  policy.check();
  policy.precision = Precision::of(DataType::float64);
  e = error_of([&] { policy.check(); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(e.what()).find("have no compressed form"), std::string::npos);
  run_thread_ranks(2, [](Communicator& comm) {
    test::ShardedMesh mesh(comm, 1, 0);
    Policy own = policy_of(Stage::parameters, Layout::flat, DataType::bfloat16);
    own.gather_eight_bits = comm.rank() == 0;
    EXPECT_EQ(error_of([&] { ShardedDataParallel(units(), own, mesh.axes()); }).code(),
              ErrorCode::mismatch);
  });
}

}  // namespace
}  // namespace tutti
