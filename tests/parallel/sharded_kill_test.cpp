// A rank that is killed in the middle of a step: the others throw peer_lost, with the unit during
// which it was missed, and nothing is left behind.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "tests/support/contains.h"
#include "tests/support/leftovers.h"
#include "tests/support/run_job.h"

namespace tutti {
namespace {

TEST(ShardedKills, AreNamedWithTheUnit) {
  std::mt19937 random(17);
  const std::size_t before = test::files_left();
  for (int round = 0; round < 4; ++round) {
    // The shell, whose process each rank says, becomes the program.
    Job job({"-n", "3", "--keep-going", "--timeout", "60", "sh", "-c",
             "echo PID $TUTTI_RANK $$; exec " SHARDED_RANK " endless"});
    for (const char* const ready : {"READY 0", "READY 1", "READY 2"}) {
      ASSERT_TRUE(job.out_has(ready)) << job.out() << job.err();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
    const std::string victim = std::to_string(round % 3), mark = "PID " + victim + " ";
    const std::string out = job.out();
    kill(std::stoi(out.substr(out.find(mark) + mark.size())), SIGKILL);
    EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
    const std::string text = job.out();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == round % 3) continue;
      EXPECT_CONTAINS(text, "rank " + std::to_string(rank) + " got peer_lost of rank " + victim);
    }
  }
  EXPECT_EQ(test::files_left(), before);
}

}  // namespace
}  // namespace tutti
