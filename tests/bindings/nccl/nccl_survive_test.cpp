// A rank that dies: the others get ncclRemoteError within a second, and go on with ncclCommShrink.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

TEST(Survive, TheRanksThatAreLeftGoOn) {
  constexpr int kRanks = 3;
  for (const int victim : {0, 1, 2}) {
    const std::string name = "survive-" + std::to_string(getpid()) + "-" + std::to_string(victim);
    std::vector<pid_t> ranks;
    for (int r = 0; r < kRanks; ++r) {
      const std::string rank = std::to_string(r), size = std::to_string(kRanks);
      const std::string dies = std::to_string(victim);
      ranks.push_back(fork());
      if (ranks.back() == 0) {
        setenv("TUTTI_RANK", rank.c_str(), 1);
        setenv("TUTTI_SIZE", size.c_str(), 1);
        setenv("NCCL_COMM_ID", name.c_str(), 1);
        alarm(60);
        execl(NCCL_RANK, NCCL_RANK, "survive", dies.c_str(), nullptr);
        _exit(127);
      }
    }
    for (int r = 0; r < kRanks; ++r) {
      int status = 0;
      waitpid(ranks[static_cast<std::size_t>(r)], &status, 0);
      if (r == victim) {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
      } else {
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << "rank " << r << " of " << kRanks << ", victim " << victim;
      }
    }
  }
}

}  // namespace
