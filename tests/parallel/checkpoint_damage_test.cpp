// Checkpoints that cannot be loaded: torn and flipped files, another model, tensors that two ranks
// have saved; and the older one that loads instead. Part of checkpoint_test.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/checkpoint/checkpoint.h"
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

}  // namespace
}  // namespace tutti::test
