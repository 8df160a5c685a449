// How checkpoints are saved: old ones go, another thread writes, a full disk leaves nothing behind,
// and a process that is killed at any moment goes on from the last whole one. Part of
// checkpoint_test.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "parallel/agreement.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;
namespace fs = std::filesystem;

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

TEST(Checkpoint, AStepThatIsSavedAgainIsStillOne) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](Communicator& world) {
    CommunicatorAxis axis(world);
    CheckpointFolder checkpoints(folder.path(), axis, {.keep = 2});
    for (const std::uint64_t step : {1, 2, 3, 3, 3}) checkpoints.save(step, {});
  });
  std::vector<std::uint64_t> steps;
  for (const WholeCheckpoint& c : whole_checkpoints(folder.path())) steps.push_back(c.step);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{3, 3, 3, 2}));
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
        if (world.rank() == 0) {
          checkpoints.wait();  // its own file is written
        } else {
          what = error_of([&] { checkpoints.wait(); }).what();
          check();
        }
        // Without a wait() the next call of all ranks has the error.
        checkpoints.start(3, parts);
        what = error_of([&] { checkpoints.load({}); }).what();
        check();
        checkpoints.start(4, parts);
        what = error_of([&] { checkpoints.save(5, {}); }).what();
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
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    ADD_FAILURE() << entry.path();
  }
}

// The other rank's file of a step that was saved before stays.
TEST(Checkpoint, AFullDiskLeavesWhatWasThereBefore) {
  const TemporaryFolder folder;
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      names.push_back(entry.path().string());
    }
    std::ranges::sort(names);
    return names;
  };
  const auto save = [&](std::size_t most, bool starts) {
    const pid_t child = fork();
    if (child == 0) try {
        signal(SIGXFSZ, SIG_IGN);
        std::atomic<int> failures = 0;
        run_thread_ranks(3, [&](Communicator& world) {
          CommunicatorAxis axis(world);
          CheckpointFolder checkpoints(folder.path(), axis);
          const rlimit limit{most, most};
          setrlimit(RLIMIT_FSIZE, &limit);
          // Rank 1 fails; rank 0 ends before it, and rank 2 perhaps after it.
          const std::size_t counts[] = {100, 100'000, 20'000};
          std::vector<float> values(counts[world.rank()]);
          const std::vector parts{TensorPart::whole(fmt::format("of rank {}", world.rank()),
                                                    DataType::float32, {values.size()},
                                                    values.data())};
          const auto write = [&] {
            if (!starts) return checkpoints.save(5, parts);
            checkpoints.start(5, parts);
            checkpoints.wait();
          };
          const bool fails = error_of(write).code() == ErrorCode::system;
          if (fails != (most < 400'000 && (!starts || world.rank() == 1))) ++failures;
        });
        _exit(failures);
      } catch (const std::exception& e) {
        fmt::print(stderr, "{}\n", e.what());
        _exit(99);
      }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  };
  save(1'000'000, false);
  const std::vector<std::string> before = files();
  EXPECT_EQ(before.size(), 4U);  // and the folder
  for (int i = 0; i < 10; ++i) save(100'000, i % 2 == 0);
  EXPECT_EQ(files(), before);
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
      const std::uint64_t ready = 0;
      if (write(said[1], &ready, sizeof ready) != sizeof ready) _exit(1);
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
    std::uint64_t step = 0, acknowledged = 0;
    ASSERT_EQ(read(said[0], &step, sizeof step), sizeof step);  // it is ready
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
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

}  // namespace
}  // namespace tutti::test
