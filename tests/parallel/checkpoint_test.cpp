// Checkpoints: any layout loads what any other has saved, bit for bit; what is torn, flipped or of
// another model is noticed; a job that is killed at any moment goes on from the last whole one.
#include "parallel/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/checkpoint/engine.h"
#include "parallel/checkpoint/file.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;
namespace fs = std::filesystem;

// --- Parts ---------------------------------------------------------------------------------------

TEST(TensorPart, RunsAreTheBoxInRowMajorOrder) {
  const std::vector<std::size_t> shape{3, 4, 5};
  std::size_t boxes = 0;
  for (std::size_t o0 = 0; o0 < 3; ++o0) {
    for (std::size_t o1 = 0; o1 < 4; ++o1) {
      for (std::size_t o2 = 0; o2 < 5; ++o2) {
        for (std::size_t e0 = 1; e0 <= 3 - o0; ++e0) {
          for (std::size_t e1 = 1; e1 <= 4 - o1; ++e1) {
            for (std::size_t e2 = 1; e2 <= 5 - o2; ++e2) {
              std::vector<std::size_t> expected;
              for (std::size_t i = o0; i < o0 + e0; ++i) {
                for (std::size_t j = o1; j < o1 + e1; ++j) {
                  for (std::size_t k = o2; k < o2 + e2; ++k)
                    expected.push_back((i * 4 + j) * 5 + k);
                }
              }
              const std::size_t all = expected.size();
              for (const auto& [begin, count] :
                   {std::pair{std::size_t{0}, all}, {all / 3, all - all / 3}, {all / 2, all / 3}}) {
                const TensorPart part{.name = "t",
                                      .shape = shape,
                                      .offset = {o0, o1, o2},
                                      .extent = {e0, e1, e2},
                                      .begin = begin,
                                      .count = count};
                std::vector<std::size_t> got;
                part.for_each_run([&](std::size_t whole, std::size_t at, std::size_t n) {
                  EXPECT_EQ(at, got.size());
                  for (std::size_t i = 0; i < n; ++i) got.push_back(whole + i);
                });
                EXPECT_EQ(got, std::vector<std::size_t>(
                                   expected.begin() + static_cast<std::ptrdiff_t>(begin),
                                   expected.begin() + static_cast<std::ptrdiff_t>(begin + count)));
                ++boxes;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(boxes, 3U * 6 * 10 * 15);
}

TEST(TensorPart, APartThatCannotBeIsRefused) {
  float x = 0;
  const auto refused = [](const TensorPart& part) {
    const Error e = error_of([&] { part.check(); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return std::string(e.what());
  };
  EXPECT_CONTAINS(refused({.name = "", .shape = {1}}), "a tensor needs a name");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4}, .begin = 2, .count = 3, .data = &x}),
                  "3 elements from 2 on are not among its 4");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4, 4}, .offset = {0, 3}, .extent = {4, 2}}),
                  "2 from 3 on are not among the 4 of dimension 1");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4, 4}, .offset = {0}, .extent = {4}}),
                  "the tensor has 2 dimensions, the offset 1, the extent 1");
  EXPECT_CONTAINS(refused({.name = "t", .shape = {4}, .count = 4}), "it has no memory");
}

// --- Layouts -------------------------------------------------------------------------------------

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

// --- Damage --------------------------------------------------------------------------------------

/// Two ranks save steps 1 and 2 of vectors that tell the step.
class SavedTwice : public testing::Test {
 protected:
  static constexpr std::size_t kCount = 1000;

  void SetUp() override {
    run_thread_ranks(2, [&](Communicator& world) {
      CommunicatorAxis axis(world);
      CheckpointFolder checkpoints(folder.path(), axis);
      for (const std::uint64_t step : {1, 2}) {
        std::vector<std::int64_t> values(kCount / 2, static_cast<std::int64_t>(step));
        checkpoints.save(step, std::vector{part(world.rank(), values)});
      }
    });
  }
  static TensorPart part(int rank, std::vector<std::int64_t>& values) {
    return {.name = "v",
            .type = DataType::int64,
            .shape = {kCount},
            .begin = static_cast<std::size_t>(rank) * kCount / 2,
            .count = values.size(),
            .data = values.data()};
  }
  /// By two ranks.
  std::optional<std::uint64_t> load() {
    std::optional<std::uint64_t> step;
    run_thread_ranks(2, [&](Communicator& world) {
      CommunicatorAxis axis(world);
      CheckpointFolder checkpoints(folder.path(), axis);
      std::vector<std::int64_t> values(kCount / 2, -1);
      std::vector parts{part(world.rank(), values)};
      const auto got = checkpoints.load(parts);
      if (got) {
        EXPECT_EQ(values, std::vector<std::int64_t>(kCount / 2, static_cast<std::int64_t>(*got)));
      }
      if (world.rank() == 0) step = got;
    });
    return step;
  }
  std::vector<std::string> newest() const { return whole_checkpoints(folder.path()).at(0).files; }

  const TemporaryFolder folder;
};

TEST_F(SavedTwice, TheNewestLoads) {
  EXPECT_EQ(load(), 2U);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
  }
}

TEST_F(SavedTwice, WithoutAFileItIsNotWhole) {
  fs::remove(newest()[1]);
  EXPECT_EQ(load(), 1U);
}

TEST_F(SavedTwice, AFlippedBitAndATornFileAreNoticedWhereverTheyAre) {
  const std::string file = newest()[0];
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto write = [&](const std::string& what) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << what;
  };
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) {
    std::string flipped = bytes;
    // The header is a small part of the file, and gets its share.
    const std::size_t at = i % 2 == 0 ? random() % bytes.size() : random() % 600;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    write(flipped);
    EXPECT_EQ(load(), 1U) << "byte " << at;
  }
  for (int i = 0; i < 40; ++i) {
    write(bytes.substr(0, i == 0 ? 0 : i == 1 ? bytes.size() - 1 : random() % bytes.size()));
    EXPECT_EQ(load(), 1U);
  }
  write(bytes);
  EXPECT_EQ(load(), 2U);
}

TEST_F(SavedTwice, NothingThatIsRightIsAnErrorAndNotANewBeginning) {
  for (const WholeCheckpoint& c : whole_checkpoints(folder.path()))
    fs::resize_file(c.files[1], 100);
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis);
    std::vector<std::int64_t> values(kCount / 2);
    std::vector parts{part(world.rank(), values)};
    const Error e = error_of([&] { checkpoints.load(parts); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(std::string(e.what()), "no checkpoint in " + folder.path() + " is right");
    EXPECT_CONTAINS(std::string(e.what()), "rank-00001-of-00002");
  });
}

TEST_F(SavedTwice, AnotherModelIsAMismatchThatSaysWhat) {
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis);
    std::vector<std::int64_t> values(kCount / 2);
    const auto refused = [&](std::vector<TensorPart> parts) {
      const Error e = error_of([&] { checkpoints.load(parts); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      return std::string(e.what());
    };
    const TensorPart good = part(world.rank(), values);
    TensorPart other = good;
    other.shape = {kCount * 2};
    EXPECT_CONTAINS(refused({other}),
                    "has tensor 'v' as int64 of 1000, and the job has it as int64 of 2000");
    other = good;
    other.type = DataType::float64;
    EXPECT_CONTAINS(refused({other}), "and the job has it as float64 of 1000");
    other = good;
    other.name = "w";
    EXPECT_CONTAINS(refused({good, other}), "has no tensor 'w'");
    EXPECT_CONTAINS(refused({}), "has a tensor 'v', and the job has none");
  });
}

TEST(Checkpoint, WhatTwoRanksSaveIsRefused) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis);
    float x = 1;
    std::vector parts{TensorPart::whole("x", DataType::float32, {}, &x)};
    checkpoints.save(1, parts);
    const Error e = error_of([&] { checkpoints.load(parts); });
    EXPECT_CONTAINS(std::string(e.what()), "ranks have saved some twice");
  });
}

TEST(Checkpoint, NoneIsNoneAndAFolderThatCannotBeIsAnError) {
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder.path() + "/new/ones", axis);
    EXPECT_EQ(checkpoints.load({}), std::nullopt);
    EXPECT_EQ(error_of([&] { CheckpointFolder("/proc/none", axis); }).code(), ErrorCode::system);
    EXPECT_EQ(
        error_of([&] { checkpoints.save(static_cast<std::uint64_t>(world.rank()), {}); }).code(),
        ErrorCode::mismatch);
  });
}

TEST(Checkpoint, OldOnesGo) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis, {.keep = 2});
    for (std::uint64_t step = 1; step <= 6; ++step) checkpoints.save(step, {});
  });
  std::vector<std::uint64_t> steps;
  for (const WholeCheckpoint& c : whole_checkpoints(folder.path())) steps.push_back(c.step);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{6, 5, 4}));
}

// --- Another thread writes -----------------------------------------------------------------------

TEST(Checkpoint, WhatChangesAfterStartIsNotInIt) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis);
    std::vector<float> values(1 << 20, 5);
    const std::vector parts{TensorPart::whole(fmt::format("of rank {}", world.rank()),
                                              DataType::float32, {values.size()}, values.data())};
    checkpoints.start(1, parts);
    std::ranges::fill(values, 6.0F);
    checkpoints.wait();
    EXPECT_TRUE(checkpoints.idle());
    checkpoints.start(2, parts);  // while the first is not loaded yet
    std::ranges::fill(values, 7.0F);
    std::vector<float> got(values.size());
    std::vector wanted{parts};
    wanted[0].data = got.data();
    CheckpointFolder other(folder.path(), axis);  // each tensor is asked for by one rank
    checkpoints.wait();
    Agreement(axis).same(0);  // the others have waited, too
    EXPECT_EQ(other.load(wanted), 2U);
    EXPECT_EQ(got, std::vector<float>(values.size(), 6));
  });
}

TEST(Checkpoint, AFullDiskIsAnErrorOfAllRanksAndLeavesNothing) {
  const TemporaryFolder folder;
  // To one rank, a file that may not grow is like a full disk.
  const pid_t child = fork();
  if (child == 0) try {
      signal(SIGXFSZ, SIG_IGN);
      std::atomic<int> failures = 0;
      run_thread_ranks(2, [&](Communicator& world) {
        CommunicatorAxis axis(world);
        CheckpointFolder checkpoints(folder.path(), axis);
        // From here on: communicators need memory, which is a file to the kernel.
        const rlimit limit{100'000, 100'000};
        setrlimit(RLIMIT_FSIZE, &limit);
        std::vector<float> values(world.rank() == 0 ? 100 : 100'000);
        const std::vector parts{TensorPart::whole(fmt::format("of rank {}", world.rank()),
                                                  DataType::float32, {values.size()},
                                                  values.data())};
        std::string what = error_of([&] { checkpoints.save(1, parts); }).what();
        const auto check = [&] {
          if (what.find("cannot write") != what.npos && what.find("rank-00001") != what.npos)
            return;
          fmt::print(stderr, "rank {}: {}\n", world.rank(), what);
          ++failures;
        };
        check();
        checkpoints.start(2, parts);
        if (world.rank() == 0) return checkpoints.wait();  // its own file is written
        what = error_of([&] { checkpoints.wait(); }).what();
        check();
      });
      _exit(failures);
    } catch (const std::exception& e) {
      fmt::print(stderr, "{}\n", e.what());
      _exit(99);
    }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(whole_checkpoints(folder.path()).empty());
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
  }
}

// --- Kills ---------------------------------------------------------------------------------------

// A process saves step after step, and says which are saved; SIGKILL at any moment costs none of
// those.
TEST(Checkpoint, TheLastSavedOneLoadsAfterAKillAtAnyMoment) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  std::uint64_t last = 0, killed_early = 0;
  for (int kill_number = 0; kill_number < 100; ++kill_number) {
    int said[2];
    ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      Communicator alone = Communicator::alone();
      CommunicatorAxis axis(alone);
      CheckpointFolder checkpoints(folder.path(), axis);
      std::vector<std::uint64_t> values(20'000);
      for (std::uint64_t step = last + 1;; ++step) {
        std::iota(values.begin(), values.end(), step);
        const std::vector parts{
            TensorPart::whole("v", DataType::uint64, {values.size()}, values.data())};
        if (step % 2 == 0) {
          checkpoints.save(step, parts);
        } else {
          checkpoints.start(step, parts);
          checkpoints.wait();
        }
        if (write(said[1], &step, sizeof step) != sizeof step) _exit(1);
      }
    }
    close(said[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(5'000 + random() % 30'000));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    std::uint64_t step = 0, acknowledged = 0;
    while (read(said[0], &step, sizeof step) == sizeof step) acknowledged = step;
    close(said[0]);
    if (acknowledged == 0) ++killed_early;
    last = std::max(last, acknowledged);
    Communicator alone = Communicator::alone();
    CommunicatorAxis axis(alone);
    CheckpointFolder checkpoints(folder.path(), axis);
    std::vector<std::uint64_t> values(20'000), expected(20'000);
    std::vector parts{TensorPart::whole("v", DataType::uint64, {values.size()}, values.data())};
    const auto loaded = checkpoints.load(parts);
    if (last == 0) continue;
    ASSERT_TRUE(loaded.has_value());
    // The kill may have come between the commit and the word.
    ASSERT_GE(*loaded, last);
    ASSERT_LE(*loaded, last + 1);
    last = *loaded;
    std::iota(expected.begin(), expected.end(), last);
    ASSERT_EQ(values, expected);
  }
  fmt::print("100 kills: step {} at last; {} before anything was saved\n", last, killed_early);
  EXPECT_GT(last, 50U);
}

// --- Other programs ------------------------------------------------------------------------------

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

TEST(TensorFile, FilesThatAreNoneAreRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& bytes) {
    folder.write("f", bytes);
    const Error e = error_of([&] { TensorFile(folder.path() + "/f"); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << bytes;
    return std::string(e.what());
  };
  const auto with_header = [](const std::string& header) {
    std::string bytes(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, 8);
    return bytes + header;
  };
  EXPECT_CONTAINS(refused(""), "no file of tensors");
  EXPECT_CONTAINS(refused(std::string(8, '\xff')), "no file of tensors, or a torn one");
  EXPECT_CONTAINS(refused(with_header("[]")), "its header is no JSON");
  EXPECT_CONTAINS(refused(with_header("{\"a\": 3}")), "its header has something else");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})")),
      "tensor 'a' lies behind its end");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})") +
              "xxxx"),
      "tensor 'a' of 2 F32 has 4 bytes");
  EXPECT_CONTAINS(
      refused(with_header(R"({"a": {"dtype": "C64", "shape": [], "data_offsets": [0, 0]}})")),
      "is of type C64");
  EXPECT_CONTAINS(refused(with_header(
                      R"({"a": {"dtype": "U8", "shape": [9999999999, 9999999999, 9999999999],
                       "data_offsets": [0, 0]}})")),
                  "larger than there can be");
  EXPECT_CONTAINS(refused(with_header(R"({"__metadata__": {"tutti": "{\"version\": 99}"}})")),
                  "written by another version of Tutti");
  EXPECT_CONTAINS(std::string(error_of([&] { TensorFile(folder.path() + "/none"); }).what()),
                  "No such file");
}

}  // namespace
}  // namespace tutti::test
