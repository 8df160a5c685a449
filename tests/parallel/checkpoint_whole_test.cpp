// What is saved can be loaded: a save of tensors that ranks do not have whole, or have twice, is
// refused on all ranks, before anything changes on the disk; and what an engine says that its rank
// saves is whole, whatever replicas, copies and empty parameters there are. Part of
// checkpoint_test.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/coverage.h"
#include "tests/parallel/checkpoint_engines.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;
namespace fs = std::filesystem;

// --- Coverage ------------------------------------------------------------------------------------

TEST(Coverage, IsRightWhereEachElementIsThereOnce) {
  std::mt19937 random(5);
  int right = 0;
  for (int i = 0; i < 20'000; ++i) {
    // Wanted are a few runs of 12 elements, and the runs lie in them.
    std::vector<ElementRun> wanted, runs;
    for (std::size_t at = random() % 3; at < 12;) {
      const std::size_t end = std::min<std::size_t>(at + 1 + random() % 5, 12);
      wanted.push_back({at, end});
      for (std::size_t from = at; from < end;) {
        const std::size_t to = std::min<std::size_t>(from + 1 + random() % 3, end);
        const std::size_t shift = random() % 12 == 0 ? 1 : 0;
        if (random() % 16 != 0) runs.push_back({from, std::min(to + shift, end), 0});
        from = to;
      }
      at = end + 1 + random() % 2;
    }
    std::ranges::shuffle(runs, random);
    for (std::size_t r = 0; r < runs.size(); ++r) runs[r].by = static_cast<int>(r);
    std::vector<int> there(12, 0), due(12, 0);
    for (const ElementRun& r : runs) {
      for (std::size_t e = r.begin; e < r.end; ++e) ++there[e];
    }
    for (const ElementRun& r : wanted) {
      for (std::size_t e = r.begin; e < r.end; ++e) ++due[e];
    }
    const auto fault = coverage_fault(runs, wanted);
    EXPECT_EQ(fault.has_value(), there != due);
    if (!fault) {
      ++right;
      continue;
    }
    ASSERT_LT(fault->elements.begin, fault->elements.end);
    for (std::size_t e = fault->elements.begin; e < fault->elements.end; ++e) {
      EXPECT_EQ(due[e], 1);
      if (!fault->both) {
        EXPECT_EQ(there[e], 0);
        continue;
      }
      EXPECT_NE(fault->both->first, fault->both->second);
      for (const int by : {fault->both->first, fault->both->second}) {
        EXPECT_LE(runs[static_cast<std::size_t>(by)].begin, e);
        EXPECT_LT(e, runs[static_cast<std::size_t>(by)].end);
      }
    }
  }
  EXPECT_GT(right, 2'000);
  EXPECT_LT(right, 18'000);
}

// --- Saves that are refused ----------------------------------------------------------------------

/// The elements [begin, end) of vector "x" of `all`, of this type.
TensorPart run_of_x(std::size_t begin, std::size_t end, std::size_t all = 10,
                    DataType type = DataType::float32) {
  static const std::vector<double> zeros(100);
  return {.name = "x",
          .type = type,
          .shape = {all},
          .begin = begin,
          .count = end - begin,
          .data = const_cast<double*>(zeros.data())};
}

/// What all ranks of a job throw that saves these parts. In the folder there is step 1 before, and
/// nothing else afterwards.
std::string refused(ErrorCode code, const std::vector<std::vector<TensorPart>>& parts,
                    const std::vector<CheckpointTexts>& texts = {}) {
  const TemporaryFolder folder;
  std::vector<std::string> said(parts.size());
  run_thread_ranks(static_cast<int>(parts.size()), [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis, {.keep = 1});
    checkpoints.save(1, {});
    const auto rank = static_cast<std::size_t>(world.rank());
    const CheckpointTexts own = texts.empty() ? CheckpointTexts() : texts[rank];
    const Error saves = error_of([&] { checkpoints.save(2, parts[rank], own); });
    EXPECT_EQ(saves.code(), code) << saves.what();
    said[rank] = saves.what();
    const Error starts = error_of([&] { checkpoints.start(3, parts[rank], own); });
    EXPECT_EQ(starts.code(), code);
    EXPECT_EQ(std::string(starts.what()), saves.what());
    EXPECT_TRUE(checkpoints.idle());
    EXPECT_EQ(checkpoints.load({}), 1U);
  });
  if (code == ErrorCode::mismatch) {
    EXPECT_EQ(said, std::vector(said.size(), said[0]));
  }
  const fs::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
  return said[0];
}
std::string mismatch(const std::vector<std::vector<TensorPart>>& parts) {
  return refused(ErrorCode::mismatch, parts);
}

// semantics.md: E4
TEST(Checkpoint, AnOverlapIsNotSaved) {
  const TensorPart half = run_of_x(0, 5);
  // As many elements as there are.
  EXPECT_CONTAINS(mismatch({{half}, {half}}),
                  "ranks 0 and 1 both save elements 0 to 4 of tensor 'x' of 10");
  EXPECT_CONTAINS(mismatch({{run_of_x(0, 10)}, {}, {run_of_x(0, 10)}}),
                  "ranks 0 and 2 both save elements 0 to 9 of tensor 'x' of 10");
  EXPECT_CONTAINS(mismatch({{run_of_x(9, 10)}, {run_of_x(0, 3)}, {run_of_x(2, 9)}}),
                  "ranks 1 and 2 both save element 2 of tensor 'x' of 10");
  float one = 1;
  const TensorPart scalar = TensorPart::whole("a number", DataType::float32, {}, &one);
  EXPECT_CONTAINS(mismatch({{scalar}, {scalar}}),
                  "ranks 0 and 1 both save element 0 of tensor 'a number' of one number");
}

// semantics.md: E4
TEST(Checkpoint, AGapIsNotSaved) {
  EXPECT_CONTAINS(mismatch({{run_of_x(0, 5)}, {run_of_x(6, 10)}}),
                  "no rank saves element 5 of tensor 'x' of 10");
  EXPECT_CONTAINS(mismatch({{run_of_x(0, 9)}}), "no rank saves element 9 of tensor 'x' of 10");
  EXPECT_CONTAINS(mismatch({{}, {run_of_x(3, 10)}, {}}),
                  "no rank saves elements 0 to 2 of tensor 'x' of 10");
  // Boxes: the lower right one is missing, or is at another place.
  std::vector<float> values(6 * 4);
  const auto box = [&](std::size_t row, std::size_t column) {
    return TensorPart{.name = "m",
                      .type = DataType::float32,
                      .shape = {6, 4},
                      .offset = {row, column},
                      .extent = {3, 2},
                      .count = 6,
                      .data = values.data()};
  };
  EXPECT_CONTAINS(mismatch({{box(0, 0)}, {box(0, 2)}, {box(3, 0)}}),
                  "no rank saves elements 14 to 15 of tensor 'm' of 6 x 4");
  EXPECT_CONTAINS(mismatch({{box(0, 0)}, {box(0, 2)}, {box(3, 0)}, {box(2, 2)}}),
                  "ranks 1 and 3 both save elements 10 to 11 of tensor 'm' of 6 x 4");
}

// semantics.md: E4
TEST(Checkpoint, DifferentShapesAndTypesOfATensorAreNotSaved) {
  EXPECT_CONTAINS(mismatch({{run_of_x(0, 5)}, {run_of_x(5, 10, 11)}}),
                  "rank 1 saves tensor 'x' as float32 of 11, and rank 0 as float32 of 10");
  EXPECT_CONTAINS(mismatch({{run_of_x(0, 5)}, {}, {run_of_x(5, 10, 10, DataType::int32)}}),
                  "rank 2 saves tensor 'x' as int32 of 10, and rank 0 as float32 of 10");
  TensorPart other = run_of_x(5, 10);
  other.shape = {2, 5};
  EXPECT_CONTAINS(mismatch({{run_of_x(0, 5)}, {other}}),
                  "rank 1 saves tensor 'x' as float32 of 2 x 5, and rank 0 as float32 of 10");
}

// Each tensor is looked at by another rank.
TEST(Checkpoint, TheOneOfManyTensorsThatIsNotWholeIsFound) {
  constexpr int kRanks = 3, kTensors = 40;
  float one = 1;
  for (int bad = 0; bad < kTensors; bad += 3) {
    std::vector<std::vector<TensorPart>> parts(kRanks);
    for (int t = 0; t < kTensors; ++t) {
      for (int r = 0; r < kRanks; ++r) {
        if (t == bad && r == t % kRanks) continue;
        parts[static_cast<std::size_t>(r)].push_back({.name = fmt::format("layer.{}", t),
                                                      .type = DataType::float32,
                                                      .shape = {kRanks},
                                                      .begin = static_cast<std::size_t>(r),
                                                      .count = 1,
                                                      .data = &one});
      }
    }
    EXPECT_CONTAINS(
        mismatch(parts),
        fmt::format("no rank saves element {} of tensor 'layer.{}' of 3", bad % kRanks, bad));
  }
}

TEST(Checkpoint, WhatNoFileCanHaveIsRefusedAtOnce) {
  const auto bad_argument = [](const std::vector<std::vector<TensorPart>>& parts,
                               const std::vector<CheckpointTexts>& texts) {
    return refused(ErrorCode::invalid_argument, parts, texts);
  };
  float one = 1;
  const auto named = [&](const std::string& name) {
    return TensorPart::whole(name, DataType::float32, {}, &one);
  };
  EXPECT_CONTAINS(bad_argument({{}, {}}, {{}, {{"note", "caf\xe9"}}}),
                  "the text 'note' \"caf\ufffd\" is not UTF-8");
  EXPECT_CONTAINS(bad_argument({{}, {}}, {{{"\xff", "1"}}, {}}),
                  "the name of a text \"\ufffd\" is not UTF-8");
  EXPECT_CONTAINS(bad_argument({{}, {named("w\xc3(")}}, {}),
                  "the name of a tensor \"w\ufffd(\" is not UTF-8");
  EXPECT_CONTAINS(bad_argument({{named("__metadata__")}, {}}, {}),
                  "cannot have the name '__metadata__'");
  EXPECT_CONTAINS(bad_argument({{named("tutti.checksums")}}, {}),
                  "cannot have the name 'tutti.checksums'");
  EXPECT_CONTAINS(bad_argument({{run_of_x(0, 5), run_of_x(5, 10)}}, {}), "two parts of tensor 'x'");
}

// --- Engines -------------------------------------------------------------------------------------

TEST(Checkpoint, WhatEnginesSaveIsWholeWithReplicasCopiesAndEmptyParameters) {
  const Grid grids[] = {{1, 2, 1}, {2, 2, 1}, {2, 1, 1}, {1, 3, 2},
                        {3, 2, 1}, {2, 2, 2}, {1, 1, 4}};
  const Policy policies[] = {Policy::zero1(), Policy::zero2(), Policy::fsdp()};
  for (std::size_t g = 0; g < std::size(grids); ++g) {
    const Policy& policy = policies[g % 3];
    SCOPED_TRACE(fmt::format("{} shards, {} replicas, {} tensor-parallel, {}", grids[g].shards,
                             grids[g].replicas, grids[g].tensor, policy.describe()));
    const TemporaryFolder folder;
    run_thread_ranks(grids[g].ranks(), [&](Communicator& world) {
      CommunicatorAxis axis(world);
      EngineRank rank(world, grids[g], policy);
      rank.set(value_at, 7);
      // As the documentation does.
      CheckpointFolder checkpoints(folder.path(), axis);
      checkpoints.start(7, rank.state().saved());
      checkpoints.wait();
    });
    for (const Grid& next : {Grid{1, 1, 1}, grids[(g + 1) % std::size(grids)]}) {
      run_thread_ranks(next.ranks(), [&](Communicator& world) {
        CommunicatorAxis axis(world);
        EngineRank rank(world, next, policy);
        std::vector<TensorPart> wanted = rank.state().wanted();
        EXPECT_EQ(CheckpointFolder(folder.path(), axis).load(wanted), 7U);
        rank.state().loaded();
        EXPECT_EQ(rank.wrong(value_at, 7), 0U);
      });
    }
  }
}

}  // namespace
}  // namespace tutti::test
