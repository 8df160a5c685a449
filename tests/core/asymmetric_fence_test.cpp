// Asymmetric fences, between threads and between processes: of two ranks that each store and then
// look, one sees the other.
#include "core/asymmetric_fence.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <thread>

namespace tutti {
namespace {

constexpr int kRounds = 20'000;

struct alignas(64) Line {
  std::atomic<int> value{0};
};
struct Board {
  Line frequent, seldom, saw_seldom, saw_frequent, meeting;
};

/// Both are here for the `nth` time.
void meet(Board& board, int nth) {
  board.meeting.value.fetch_add(1);
  for (int looks = 0; board.meeting.value.load() < 2 * nth;) {
    if (++looks > 1000) std::this_thread::yield();
  }
}

void pass_often(Board& board) {
  for (int round = 1; round <= kRounds; ++round) {
    meet(board, 2 * round - 1);
    board.frequent.value.store(round, std::memory_order_relaxed);
    light_fence();
    board.saw_seldom.value.store(board.seldom.value.load(std::memory_order_relaxed));
    meet(board, 2 * round);
  }
}

/// How many rounds neither saw the other.
int pass_seldom(Board& board) {
  int missed = 0;
  for (int round = 1; round <= kRounds; ++round) {
    meet(board, 2 * round - 1);
    board.seldom.value.store(round, std::memory_order_relaxed);
    heavy_fence();
    const int saw = board.frequent.value.load(std::memory_order_relaxed);
    meet(board, 2 * round);
    if (saw < round && board.saw_seldom.value.load() < round) ++missed;
  }
  return missed;
}

TEST(AsymmetricFence, OneOfTwoThreadsSeesTheOther) {
  if (!join_heavy_fences()) GTEST_SKIP() << "the kernel has no membarrier here";
  Board board;
  std::thread other([&] { pass_often(board); });
  EXPECT_EQ(pass_seldom(board), 0);
  other.join();
}

TEST(AsymmetricFence, OneOfTwoProcessesSeesTheOther) {
  if (!join_heavy_fences()) GTEST_SKIP() << "the kernel has no membarrier here";
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Board& board = *new (memory) Board;
  const pid_t child = fork();
  if (child == 0) {
    if (!join_heavy_fences()) _exit(2);
    pass_often(board);
    _exit(0);
  }
  EXPECT_EQ(pass_seldom(board), 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  munmap(memory, sizeof(Board));
}

}  // namespace
}  // namespace tutti
