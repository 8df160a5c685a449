// Checkpoints that cannot be loaded: torn and flipped files, another model, tensors that two ranks
// have saved; and the older one that loads instead. Part of checkpoint_test.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/file.h"
#include "parallel/checkpoint/names.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;
namespace fs = std::filesystem;

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
    // A part that cannot be is no damage of the checkpoint.
    other = good;
    other.begin = kCount;
    const Error e = error_of([&] { checkpoints.load(std::span(&other, 1)); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(std::string(e.what()), "part of tensor 'v': 500 elements from 1000 on");
    EXPECT_EQ(std::string(e.what()).find("no checkpoint"), std::string::npos);
    EXPECT_CONTAINS(refused({}), "has a tensor 'v', and the job has none");
  });
}

/// A checkpoint as nobody saves it today: each rank's file has the runs [begin, end) of "x", ten
/// elements that tell the place.
std::vector<std::string> written_files(const std::string& folder, std::uint64_t step,
                                       const std::vector<std::pair<std::size_t, std::size_t>>& runs,
                                       const std::vector<std::uint64_t>& ids = {}) {
  std::int32_t values[10];
  std::iota(values, values + 10, 100);
  const int ranks = static_cast<int>(runs.size());
  const SavedFiles files{step_folder(folder, step), ranks, 70 + step};
  fs::create_directories(files.folder);
  std::vector<std::string> paths;
  for (int r = 0; r < ranks; ++r) {
    const auto [begin, end] = runs[static_cast<std::size_t>(r)];
    NewFile file(paths.emplace_back(files.of(r)));
    const std::uint64_t id = ids.empty() ? files.id : ids[static_cast<std::size_t>(r)];
    EXPECT_TRUE(write_tensors(file,
                              std::vector{TensorPart{.name = "x",
                                                     .type = DataType::int32,
                                                     .shape = {10},
                                                     .begin = begin,
                                                     .count = end - begin,
                                                     .data = values + begin}},
                              {.id = id, .step = step, .rank = r, .ranks = ranks, .texts = {}}));
  }
  return paths;
}

TEST(Checkpoint, FilesThatDoNotHaveEachElementOnceAreRefused) {
  const auto refused = [](const std::vector<std::pair<std::size_t, std::size_t>>& runs,
                          std::size_t begin = 0, std::size_t end = 10) {
    const TemporaryFolder folder;
    const std::vector<std::string> files = written_files(folder.path(), 1, runs);
    std::int32_t values[10];
    std::vector parts{TensorPart{.name = "x",
                                 .type = DataType::int32,
                                 .shape = {10},
                                 .begin = begin,
                                 .count = end - begin,
                                 .data = values}};
    const Error e = error_of([&] { read_parts(files, parts); });
    if (e.code() == ErrorCode{}) {
      for (std::size_t i = begin; i < end; ++i) {
        EXPECT_EQ(values[i - begin], static_cast<std::int32_t>(100 + i));
      }
      return std::string();
    }
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return std::string(e.what());
  };
  EXPECT_EQ(refused({{0, 5}, {5, 10}}), "");
  EXPECT_EQ(refused({{6, 10}, {0, 1}, {1, 6}}), "");
  // The same number of elements as ten of them.
  EXPECT_CONTAINS(refused({{0, 5}, {0, 5}}), "both have elements 0 to 4 of tensor 'x'");
  EXPECT_CONTAINS(refused({{0, 7}, {6, 9}}), "both have element 6 of tensor 'x'");
  EXPECT_CONTAINS(refused({{4, 10}, {1, 5}}), "does not have element 0 of tensor 'x'");
  EXPECT_CONTAINS(refused({{3, 10}, {0, 3}, {5, 6}}), "both have element 5 of tensor 'x'");
  EXPECT_CONTAINS(refused({{0, 4}, {6, 10}}), "does not have elements 4 to 5 of tensor 'x'");
  EXPECT_CONTAINS(refused({{0, 9}}), "does not have element 9 of tensor 'x'");
  // Who asks for less is right with less.
  EXPECT_EQ(refused({{0, 5}, {0, 3}}, 3, 5), "");
  EXPECT_CONTAINS(refused({{0, 5}, {0, 3}}, 2, 5), "both have element 2 of tensor 'x'");
}

TEST(Checkpoint, FilesOfDifferentCheckpointsAreRefused) {
  const TemporaryFolder folder;
  const auto files = written_files(folder.path(), 1, {{0, 5}, {5, 10}}, {71, 72});
  std::int32_t values[10];
  std::vector parts{TensorPart::whole("x", DataType::int32, {10}, values)};
  const Error e = error_of([&] { read_parts(files, parts); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_CONTAINS(std::string(e.what()), "are of different checkpoints");
}

// --- What is kept --------------------------------------------------------------------------------

enum class Harm { torn, shorter, flipped_header, flipped_data, two_files };

void do_harm(const std::string& path, Harm harm) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto flip = [&](std::streamoff at) {
    file.seekg(at);
    const char c = static_cast<char>(file.get() ^ 4);
    file.seekp(at);
    file.put(c);
  };
  switch (harm) {
    case Harm::torn:
      return fs::resize_file(path, 100);
    case Harm::shorter:
      return fs::resize_file(path, fs::file_size(path) - 8);
    case Harm::flipped_header:
      return flip(20);
    case Harm::flipped_data:
      return flip(static_cast<std::streamoff>(fs::file_size(path)) - 16 - 8 * 400);
    case Harm::two_files:
      break;
  }
}

class KeepsWhatLoads : public SavedTwice {
 protected:
  void SetUp() override {}
  void save(CheckpointFolder& checkpoints, int rank, std::uint64_t step) {
    std::vector<std::int64_t> values(kCount / 2, static_cast<std::int64_t>(step));
    checkpoints.save(step, std::vector{part(rank, values)});
  }
  /// Two ranks save one step after the other.
  void save(const std::vector<std::uint64_t>& steps, std::size_t keep) {
    run_thread_ranks(2, [&](Communicator& world) {
      CommunicatorAxis axis(world);
      CheckpointFolder checkpoints(folder.path(), axis, {.keep = keep});
      for (const std::uint64_t step : steps) save(checkpoints, world.rank(), step);
    });
  }
  std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> all;
    for (const WholeCheckpoint& c : whole_checkpoints(folder.path())) all.push_back(c.step);
    return all;
  }
  void do_harm_to(std::uint64_t step, Harm harm) {
    for (const WholeCheckpoint& c : whole_checkpoints(folder.path())) {
      if (c.step != step) continue;
      if (harm != Harm::two_files) return do_harm(c.files[1], harm);
      std::filesystem::copy_file(c.files[0], c.files[1], fs::copy_options::overwrite_existing);
    }
  }
};

using Steps = std::vector<std::uint64_t>;

TEST_F(KeepsWhatLoads, OneThatIsDamagedDoesNotCount) {
  for (const Harm harm :
       {Harm::torn, Harm::shorter, Harm::flipped_header, Harm::flipped_data, Harm::two_files}) {
    for (const bool loads : {false, true}) {
      SCOPED_TRACE(static_cast<int>(harm) * 10 + (loads ? 1 : 0));
      fs::remove_all(folder.path());
      save({50, 100}, 1);
      do_harm_to(100, harm);
      if (loads) {
        EXPECT_EQ(load(), 50U);
      }
      save({60}, 1);
      EXPECT_EQ(steps(), (Steps{100, 60, 50}));
      save({61}, 1);  // 60 counts
      EXPECT_EQ(steps(), (Steps{100, 61, 60}));
      EXPECT_EQ(load(), 61U);
    }
  }
}

TEST_F(KeepsWhatLoads, TwoThatAreDamagedDoNotCount) {
  save({10, 20, 30}, 2);
  do_harm_to(20, Harm::flipped_data);
  do_harm_to(30, Harm::torn);
  save({15}, 2);
  EXPECT_EQ(steps(), (Steps{30, 20, 15, 10}));
  save({16}, 2);
  EXPECT_EQ(steps(), (Steps{30, 20, 16, 15, 10}));
  save({17}, 2);
  EXPECT_EQ(steps(), (Steps{30, 20, 17, 16, 15}));
}

TEST_F(KeepsWhatLoads, OneThatIsDamagedWhileTheJobGoesOnDoesNotCount) {
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis, {.keep = 1});
    for (const std::uint64_t step : {50, 100}) save(checkpoints, world.rank(), step);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(20));  // files tell times by a clock's ticks
    if (world.rank() == 0) do_harm_to(100, Harm::flipped_data);
    Agreement(axis).same(0);
    save(checkpoints, world.rank(), 110);
  });
  EXPECT_EQ(steps(), (Steps{110, 100, 50}));
}

// Nobody saves such a one today.
TEST_F(KeepsWhatLoads, OneThatHasAnElementTwiceDoesNotCount) {
  save({1}, 1);
  written_files(folder.path(), 2, {{0, 5}, {0, 5}});
  save({3}, 1);
  EXPECT_EQ(steps(), (Steps{3, 2, 1}));
}

TEST_F(KeepsWhatLoads, WhatOtherRanksHaveSavedCounts) {
  save({1, 2}, 1);
  run_thread_ranks(1, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis, {.keep = 1});
    checkpoints.save(3, {});
  });
  EXPECT_EQ(steps(), (Steps{3, 2}));
  run_thread_ranks(5, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis, {.keep = 2});
    checkpoints.save(4, {});
    checkpoints.save(5, {});
  });
  EXPECT_EQ(steps(), (Steps{5, 4, 3}));
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

}  // namespace
}  // namespace tutti::test
