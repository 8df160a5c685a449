// fork() in a process that has communicators: the child can neither use nor disturb them, whatever
// it destroys, and may have others of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/window.h"
#include "core/memory.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::error_of;

/// The exit status of a child that runs `body`, and ends as a program does, destructors of static
/// objects included. A child that hangs is killed.
template <class Body>
int child_status(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::exit(body());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

/// Rank 0 and rank 1 of a communicator agree that it works.
void expect_it_works(std::vector<Communicator>& comms, int salt) {
  constexpr std::size_t kCount = 50'000;
  std::vector<std::jthread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&comms, r, salt] {
      std::vector<std::int32_t, Allocator<std::int32_t>> in(kCount), out(kCount);
      for (std::size_t i = 0; i < kCount; ++i) in[i] = salt + 7 * r + static_cast<int>(i);
      Communicator& comm = comms[static_cast<std::size_t>(r)];
      comm.all_reduce(in.data(), out.data(), kCount, DataType::int32);
      comm.start({.collective = Collective::all_reduce,
                  .in = out.data(),
                  .out = out.data(),
                  .count = kCount,
                  .type = DataType::int32})
          .wait();
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(out[i], 2 * (2 * (salt + static_cast<int>(i)) + 7));
      }
    });
  }
}

TEST(Fork, AChildThatDestroysEverythingDisturbsNobody) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  expect_it_works(comms, 1);  // their engines have threads now
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(child_status([&] {
                comms.clear();
                return 0;
              }),
              0);
    expect_it_works(comms, round);
  }
}

TEST(Fork, AChildCannotUseWhatIsItsParents) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  expect_it_works(comms, 1);
  // Under way when the child is made, whose communicator remains as if it were.
  std::int32_t in[2] = {5, 6}, out[2] = {};
  Future running = comms[0].start({.collective = Collective::all_reduce,
                                   .in = &in[0],
                                   .out = &out[0],
                                   .count = 1,
                                   .type = DataType::int32});
  const auto refused = [&](auto&& call,
                           const char* why = "after fork() only the parent can use it") {
    const Error e = error_of(call);
    return e.code() == ErrorCode::invalid_usage &&
           std::string(e.what()).find(why) != std::string::npos;
  };
  const int status = child_status([&] {
    Communicator& comm = comms[0];
    std::int32_t x = 1;
    if (comm.rank() != 0 || comm.size() != 2) return 1;
    if (!refused([&] { comm.all_reduce(&x, &x, 1, DataType::int32); })) return 2;
    if (!refused([&] { comm.barrier(); })) return 3;
    if (!refused([&] { comm.send(&x, 1, DataType::int32, 1); })) return 4;
    if (!refused([&] { comm.start({.collective = Collective::barrier}); })) return 5;
    if (!refused([&] { comm.split(0, 0); })) return 6;
    if (!refused([&] { comm.shrink(std::vector<int>{1}); })) return 7;
    if (!refused([&] { comm.abort("a child's"); })) return 8;
    if (!refused([&] { comm.use_plan("plan"); })) return 9;
    if (!refused([&] { group([&] { comm.barrier(); }); })) return 10;
    if (!refused([&] { static_cast<void>(comm.error()); })) return 11;
    if (!refused([&] { comm.release_memory(); })) return 12;
    if (!refused([&] { comm.window(64); })) return 13;
    if (!refused([&] { running.wait(); }, "after fork() only the parent can wait for it"))
      return 14;
    return 0;
  });
  EXPECT_EQ(status, 0) << "signal " << WTERMSIG(status) << ", or else the child's call "
                       << WEXITSTATUS(status);
  comms[1].all_reduce(&in[1], &out[1], 1, DataType::int32);
  running.wait();
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], 11);
  expect_it_works(comms, 2);
}

// The calls that the parent has put into the group are not made in the child: neither here, where
// nothing is under way, nor on the engine's thread, which the child does not have.
TEST(Fork, AChildDoesNotEndTheGroupOfItsParent) {
  for (const bool busy : {false, true}) {
    std::vector<Communicator> comms = Communicator::create_local(2);
    expect_it_works(comms, 1);
    std::int32_t in[2] = {5, 6}, out[2] = {}, of_group[2] = {};
    Future running;
    if (busy) {
      running = comms[0].start({.collective = Collective::all_reduce,
                                .in = &in[0],
                                .out = &out[0],
                                .count = 1,
                                .type = DataType::int32});
    }
    group_start();
    comms[0].all_reduce(&in[0], &of_group[0], 1, DataType::int32);
    EXPECT_EQ(child_status([&] {
                const Error e = error_of([] { group_end(); });
                return e.code() == ErrorCode::invalid_usage ? 0 : 1;
              }),
              0);
    {
      const std::jthread other([&] {
        if (busy) comms[1].all_reduce(&in[1], &out[1], 1, DataType::int32);
        comms[1].all_reduce(&in[1], &of_group[1], 1, DataType::int32);
      });
      group_end();
    }
    if (busy) running.wait();
    EXPECT_EQ(of_group[0], 11);
    EXPECT_EQ(of_group[1], 11);
    EXPECT_EQ(out[0], busy ? 11 : 0);
  }
}

TEST(Fork, AChildMayHaveCommunicatorsOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not let the child of a process with threads start any";
#endif
  std::vector<Communicator> comms = Communicator::create_local(2);
  expect_it_works(comms, 1);
  EXPECT_EQ(child_status([&] {
              std::vector<Communicator> own = Communicator::create_local(2);
              expect_it_works(own, 3);
              return testing::Test::HasFailure() ? 1 : 0;
            }),
            0);
  expect_it_works(comms, 2);
}

// Threads of the parent take and free locks all the time; a child must never inherit one that is
// taken.
TEST(Fork, FindsMemoryConsistentWhateverOthersDoMeanwhile) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int t = 0; t < 2; ++t) {
    others.emplace_back([&] {
      while (!stop) deallocate(allocate(4096));
    });
  }
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(child_status([&] {
                for (int i = 0; i < 10; ++i) deallocate(allocate(4096));
                _exit(0);
                return 0;
              }),
              0);
  }
  stop = true;
  for (std::thread& t : others) t.join();
}

}  // namespace
}  // namespace tutti
