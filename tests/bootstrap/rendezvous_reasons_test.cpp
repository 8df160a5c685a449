// Why a meeting has failed: ranks that come later hear it too, also when rank 0's process is about
// to end, and of a rank that cannot join at all.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "tests/bootstrap/rendezvous_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A process that makes an id, joins as rank 0 of `size`, and exits as soon as it has an outcome.
class RankZero {
 public:
  RankZero(int size, rlim_t descriptors) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = descriptors;
      setrlimit(RLIMIT_NOFILE, &limit);
      const UniqueId made = make_unique_id();
      if (write(ends[1], made.bytes.data(), made.bytes.size()) != 128) _exit(9);
      exit(try_to_meet(made, 0, size).met ? 0 : 1);
    }
    close(ends[1]);
    EXPECT_EQ(read(ends[0], id.bytes.data(), id.bytes.size()), 128);
    close(ends[0]);
  }
  /// Its exit status.
  int wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  UniqueId id;

 private:
  pid_t pid_;
};

class RendezvousReasons : public testing::Test {
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer: no threads after a fork";
#endif
  }
};

TEST_F(RendezvousReasons, RanksThatComeAfterRankZeroHasExitedHearWhatItHas) {
  const RankZero zero(100, 100);
  std::this_thread::sleep_for(500ms);
  for (const int rank : {7, 99}) {
    const Outcome outcome = try_to_meet(zero.id, rank, 100);
    EXPECT_FALSE(outcome.met);
    EXPECT_EQ(outcome.code, ErrorCode::system);
    EXPECT_NE(outcome.message.find("100 ranks need 164 descriptors"), std::string::npos)
        << outcome.message;
  }
  EXPECT_EQ(zero.wait(), 1);
}

TEST_F(RendezvousReasons, RankZeroExitsAtOnceWhenAllHaveHeard) {
  const RankZero zero(2, 256);
  // Another rank 0: whichever of the two comes second, they fail together.
  EXPECT_EQ(try_to_meet(zero.id, 0, 2).code, ErrorCode::mismatch);
  const auto begun = Clock::now();
  EXPECT_EQ(zero.wait(), 1);
  EXPECT_LT(Clock::now() - begun, 1s);
}

TEST_F(RendezvousReasons, ARankThatCannotJoinTellsThoseThatWaitAndThoseThatCome) {
  const UniqueId id = make_unique_id();
  Outcome waiting;
  std::thread zero([&] { waiting = try_to_meet(id, 0, 3); });
  std::this_thread::sleep_for(200ms);
  refuse_rendezvous(id, 2, 3, Error(ErrorCode::invalid_argument, "its settings are wrong"));
  zero.join();
  for (const Outcome& outcome : {waiting, try_to_meet(id, 1, 3)}) {
    EXPECT_EQ(outcome.code, ErrorCode::invalid_argument) << outcome.message;
    EXPECT_EQ(outcome.culprit, 2);
    EXPECT_EQ(outcome.message, "rank 2 of 3 cannot join: its settings are wrong");
    EXPECT_LT(outcome.seconds, 5);
  }
}

TEST_F(RendezvousReasons, ARankThatCannotJoinIsHeardBeforeAnyOther) {
  const UniqueId id = make_unique_id();
  refuse_rendezvous(id, 1, 2, Error(ErrorCode::system, "no memory"));
  EXPECT_EQ(try_to_meet(id, 0, 2).message, "rank 1 of 2 cannot join: no memory");
}

}  // namespace
}  // namespace tutti
