// Checkpoints: any layout loads what any other has saved, bit for bit; engines go on with other
// ranks and layouts; and other programs read an exported file.
#include "parallel/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "parallel/checkpoint/engine.h"
#include "parallel/checkpoint/file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;

constexpr std::size_t kRows = 24, kColumns = 16;

/// What rank `rank` has of a matrix whose rows or columns `tensor` ranks divide, and whose box
/// `shards` ranks cut into runs.
struct Piece {
  std::vector<float> values;
  TensorPart part;
};
Piece piece_of(const std::string& name, int rank, int tensor, int shards, bool columns) {
  const auto t = static_cast<std::size_t>(tensor), s = static_cast<std::size_t>(shards);
  const std::size_t in_tensor = static_cast<std::size_t>(rank) % t,
                    in_shards = static_cast<std::size_t>(rank) / t % s;
  Piece p;
  p.part = {.name = name, .type = DataType::float32, .shape = {kRows, kColumns}};
  const std::size_t rows = columns ? kRows : kRows / t, width = columns ? kColumns / t : kColumns;
  p.part.offset = {columns ? 0 : in_tensor * rows, columns ? in_tensor * width : 0};
  p.part.extent = {rows, width};
  const std::size_t all = rows * width, block = (all + s - 1) / s;
  p.part.begin = std::min(all, in_shards * block);
  p.part.count = std::min(block, all - p.part.begin);
  p.values.resize(p.part.count);
  p.part.data = p.values.data();
  return p;
}
/// The element at a place of the whole.
float value_of(const std::string& name, std::size_t place) {
  return static_cast<float>(place) + (name == "rows" ? 0.25F : 1000.5F);
}
void set(Piece& p) {
  p.part.for_each_run([&](std::size_t whole, std::size_t at, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) p.values[at + i] = value_of(p.part.name, whole + i);
  });
}
std::size_t wrong(const Piece& p) {
  std::size_t bad = 0;
  p.part.for_each_run([&](std::size_t whole, std::size_t at, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      bad += p.values[at + i] != value_of(p.part.name, whole + i) ? 1 : 0;
    }
  });
  return bad;
}

TEST(Checkpoint, AnyLayoutLoadsWhatAnyOtherHasSaved) {
  struct Layout {
    int tensor, shards;
  };
  const Layout layouts[] = {{1, 1}, {2, 4}, {8, 1}, {1, 8}, {4, 1}, {2, 1}, {1, 3}, {4, 2}};
  for (const Layout& from : layouts) {
    const TemporaryFolder folder;
    run_thread_ranks(from.tensor * from.shards, [&](Communicator& world) {
      CommunicatorAxis axis(world);
      CheckpointFolder checkpoints(folder.path(), axis);
      Piece rows = piece_of("rows", world.rank(), from.tensor, from.shards, false),
            columns = piece_of("columns", world.rank(), from.tensor, from.shards, true);
      set(rows);
      set(columns);
      checkpoints.save(7, std::vector{rows.part, columns.part},
                       {{"rank", std::to_string(world.rank())}});
    });
    for (const Layout& to : layouts) {
      run_thread_ranks(to.tensor * to.shards, [&](Communicator& world) {
        CommunicatorAxis axis(world);
        CheckpointFolder checkpoints(folder.path(), axis);
        Piece rows = piece_of("rows", world.rank(), to.tensor, to.shards, false),
              columns = piece_of("columns", world.rank(), to.tensor, to.shards, true);
        std::vector parts{columns.part, rows.part};
        CheckpointTexts texts;
        EXPECT_EQ(checkpoints.load(parts, &texts), 7U);
        EXPECT_EQ(wrong(rows) + wrong(columns), 0U) << fmt::format(
            "tp {} shards {} from tp {} shards {}", to.tensor, to.shards, from.tensor, from.shards);
        EXPECT_EQ(texts["rank"], "0");
      });
    }
  }
}

/// Two steps of a model of two units; returns all parameters and moments.
std::vector<float> train(ShardedDataParallel& model, int from, int to, int ranks, int rank) {
  for (int step = from; step < to; ++step) {
    for (std::size_t u = 0; u < 2; ++u) {
      model.before_forward(u);
      model.after_forward(u);
    }
    for (std::size_t u = 2; u-- > 0;) {
      model.before_backward(u);
      for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
        auto* const g = static_cast<float*>(model.gradient({u, p}));
        // Sums over ranks are exact, so that the number of ranks makes no difference.
        for (std::size_t i = 0; i < model.unit(u).parameters[p].count; ++i) {
          const int mine = static_cast<int>(i) % 7 - 3 + step;
          g[i] += static_cast<float>(rank == 0 ? mine * ranks : 0);
        }
      }
      model.after_backward(u);
    }
    model.finish_backward();
    model.step(AdamW());
  }
  std::vector<float> all;
  for (std::size_t u = 0; u < 2; ++u) {
    for (const auto kept :
         {ShardedDataParallel::Kept::parameters, ShardedDataParallel::Kept::first_state,
          ShardedDataParallel::Kept::second_state}) {
      std::vector<float> values(model.layout(u).full());
      model.gather(u, kept, values.data());
      for (std::size_t p = 0; p < model.unit(u).parameters.size(); ++p) {
        const auto* const first = values.data() + model.layout(u).offset(p);
        all.insert(all.end(), first, first + model.unit(u).parameters[p].count);
      }
    }
  }
  return all;
}

TEST(Checkpoint, AnEngineGoesOnWithOtherRanksStagesAndLayouts) {
  const std::vector<Unit> units{{.name = "a", .parameters = {{"w", 35 * 3, 35}, {"b", 35, 35}}},
                                {.name = "b", .parameters = {{"w", 64 * 5, 64}}}};
  const auto place = [&](ParameterId id) {
    const UnitParameter& p = units[id.unit].parameters[id.parameter];
    return ParameterPlace{units[id.unit].name + "." + p.name, {p.rows, p.count / p.rows}};
  };
  const AdamW adamw;
  std::vector<float> expected;  // four steps of one rank
  run_thread_ranks(1, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    ShardedDataParallel model(units, Policy::zero1(), {.shard = &axis});
    model.share_parameters();
    expected = train(model, 0, 4, 1, 0);
  });
  const TemporaryFolder folder;
  run_thread_ranks(4, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    ShardedDataParallel model(units, Policy::zero3(), {.shard = &axis});
    model.share_parameters();
    (void)train(model, 0, 2, 4, world.rank());
    EngineState state(model, adamw, place);
    CheckpointFolder(folder.path(), axis).save(2, state.saved());
  });
  for (const int ranks : {1, 2, 3}) {
    for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        CommunicatorAxis axis(world);
        ShardedDataParallel model(units, policy, {.shard = &axis});
        EngineState state(model, adamw, place);
        std::vector<TensorPart> wanted = state.wanted();
        EXPECT_EQ(CheckpointFolder(folder.path(), axis).load(wanted), 2U);
        state.loaded();
        EXPECT_EQ(train(model, 2, 4, ranks, world.rank()), expected)
            << ranks << " ranks, " << policy.describe();
      });
    }
  }
}

TEST(Checkpoint, AnExportedFileIsReadAgainAsAWhole) {
  const TemporaryFolder folder;
  run_thread_ranks(4, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    Piece rows = piece_of("rows", world.rank(), 2, 2, false),
          columns = piece_of("columns", world.rank(), 2, 2, true);
    set(rows);
    set(columns);
    CheckpointFolder(folder.path(), axis)
        .save(3, std::vector{rows.part, columns.part}, {{"by", "a test"}});
  });
  const std::string file = folder.path() + "/model.safetensors";
  export_checkpoint(whole_checkpoints(folder.path()).at(0), file,
                    [](const std::string& name) { return name == "rows" ? "renamed" : name; });
  const TensorFile open(file);
  EXPECT_FALSE(open.has_notes());
  EXPECT_EQ(open.notes().texts.at("by"), "a test");
  ASSERT_EQ(open.parts().size(), 2U);
  EXPECT_EQ(open.parts()[0].name, "columns");
  EXPECT_EQ(open.parts()[1].name, "renamed");
  EXPECT_EQ(open.parts()[1].shape, (std::vector<std::size_t>{kRows, kColumns}));
  // A job of any layout begins with it.
  Piece columns = piece_of("columns", 3, 4, 1, true);
  std::vector parts{columns.part};
  read_parts(std::vector{file}, parts);
  EXPECT_EQ(wrong(columns), 0U);
}

}  // namespace
}  // namespace tutti::test
