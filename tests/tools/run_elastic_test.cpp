// `tutti run --elastic` as users meet it: which ranks are started again, when the job ends and with
// which status, what it prints, and that nothing is left. The ranks are those of
// examples/elastic.cpp, or shell scripts, which never join.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> elastic(const std::string& ranks, std::vector<std::string> words) {
  words.insert(words.begin(), {"--elastic", ranks});
  return words;
}

std::vector<pid_t> ranks_of(const Job& job) {
  std::vector<pid_t> ranks;
  for (const pid_t pid : job.processes()) {
    if (test::contains(contents_of(fmt::format("/proc/{}/comm", pid)), "elastic")) {
      ranks.push_back(pid);
    }
  }
  return ranks;
}

TEST(RunElastic, AllRanksTrainWhereNoneDies) {
  Job job(elastic("2:3", {"--tag", ELASTIC, "60"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(job.err(), "");
  EXPECT_EQ(lines(job.out()).front(), "[0] 3 ranks go on from step 0");
  EXPECT_TRUE(test::contains(job.out(), "[0] step 60 on 3 ranks: loss ")) << job.out();
}

TEST(RunElastic, AKilledRankIsReplacedAndTheOthersGoOn) {
  Job job(elastic("2:3", {ELASTIC, "1000000"}));
  ASSERT_TRUE(job.out_has("step 20 on 3 ranks")) << job.err();
  for (std::size_t round = 1; round <= 3; ++round) {
    const auto ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), 3U) << job.err();
    kill(ranks[round % 3], SIGKILL);
    // All three are there again, and go on from a step that is not the first.
    EXPECT_TRUE(eventually([&] {
      return test::count(job.out(), "3 ranks go on from step") > round;
    })) << job.out()
        << job.err();
    EXPECT_EQ(test::count(job.err(), "was killed by signal 9 (Killed); starting it again"), round);
  }
  EXPECT_EQ(test::count(job.out(), "go on from step 0\n"), 1U) << job.out();
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
}

TEST(RunElastic, ARankThatIsStoppedIsWaitedFor) {
  Job job(elastic("1:3", {ELASTIC, "1000000"}));
  ASSERT_TRUE(job.out_has("step 20 on 3 ranks")) << job.err();
  const auto ranks = ranks_of(job);
  ASSERT_EQ(ranks.size(), 3U);
  kill(ranks[1], SIGSTOP);
  kill(ranks[2], SIGKILL);
  std::this_thread::sleep_for(300ms);
  kill(ranks[1], SIGCONT);
  EXPECT_TRUE(eventually([&] { return test::count(job.out(), "3 ranks go on from step") == 2; }))
      << job.out() << job.err();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
}

TEST(RunElastic, RanksThatKillThemselvesAtRandomFinish) {
  Job job(elastic("1:4", {"--timeout", "60", ELASTIC, "120", "--kill-every", "60"}));
  EXPECT_EQ(job.wait(), 0) << job.out() << job.err();
  EXPECT_TRUE(test::contains(job.out(), "ranks go on from step 0\n"));
  EXPECT_TRUE(test::contains(job.out(), "step 1")) << job.out();
}

TEST(RunElastic, AProgramThatDiesAtOnceIsNotStartedForEver) {
  Job job(elastic("2:3", {"sh", "-c", "exit 7"}));
  EXPECT_EQ(job.wait(), 7);
  EXPECT_LT(job.seconds(), 10);
  EXPECT_TRUE(test::contains(job.err(), "exited with status 7; starting it again")) << job.err();
  EXPECT_TRUE(test::contains(job.err(), "processes in a row have ended before they joined"));
  EXPECT_TRUE(test::contains(job.err(), "fewer than 2 ranks are left (--elastic)")) << job.err();
}

TEST(RunElastic, WhatAProcessLeavesBehindEndsThoughItsRankIsStartedAgain) {
  const TemporaryFolder folder;
  // The second process has a child in a session of its own, too: that one lives.
  Job job(elastic("1:1", {"sh", "-c",
                          fmt::format("setsid -f sleep 1000; test -e {0} && exec sleep 1000; "
                                      "touch {0}; sleep 0.2; exit 1",
                                      folder.path("again"))}));
  const auto processes = [&] {
    std::vector<std::string> commands;
    for (const pid_t pid : job.processes()) {
      commands.push_back(contents_of(fmt::format("/proc/{}/comm", pid)));
    }
    return std::count(commands.begin(), commands.end(), "sleep\n");
  };
  EXPECT_TRUE(eventually([&] { return processes() == 3; }));
  EXPECT_TRUE(eventually([&] { return processes() == 2; }, 3s));
  std::this_thread::sleep_for(1200ms);
  EXPECT_EQ(processes(), 2);
  job.signal(SIGTERM);
  job.wait();
  EXPECT_TRUE(job.processes().empty());
}

TEST(RunElastic, RestartsAreCounted) {
  Job job(elastic("2:2", {"--restarts", "1", ELASTIC, "1000000"}));
  ASSERT_TRUE(job.out_has("step 20 on 2 ranks")) << job.err();
  kill(ranks_of(job).at(0), SIGKILL);
  ASSERT_TRUE(eventually([&] { return test::count(job.out(), "2 ranks go on from step") == 2; }));
  kill(ranks_of(job).at(0), SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  EXPECT_TRUE(test::contains(job.err(), "as 1 processes were started again (--restarts)"))
      << job.err();
}

TEST(RunElastic, AProgramThatEndsWellWithoutAnElasticJobIsDone) {
  Job job(elastic("2:3", {"sh", "-c", "echo rank $TUTTI_RANK of $TUTTI_SIZE"}));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(sorted_lines(job.out()),
            (std::vector<std::string>{"rank 0 of 3", "rank 1 of 3", "rank 2 of 3"}));
}

TEST(RunElastic, TheTimeLimitEndsTheJob) {
  Job job(elastic("2:2", {"--timeout", "1", ELASTIC, "1000000"}));
  EXPECT_EQ(job.wait(), 124);
  EXPECT_TRUE(test::contains(job.err(), "(--timeout)")) << job.err();
}

TEST(RunElastic, AProgramThatKnowsNothingOfItIsToldSo) {
  Job job(elastic("2:2", {HELLO}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_TRUE(test::contains(job.err(), "from_environment() in a job of `tutti run --elastic`"))
      << job.err();
  EXPECT_TRUE(test::contains(job.err(), "use ElasticJob and its join()")) << job.err();
}

TEST(RunElastic, WhoComesWhenTheWorkIsDoneDoesNotBeginItAnew) {
  const TemporaryFolder folder;
  // Rank 1, when it is started again, joins after rank 0 has ended.
  const std::string script = fmt::format(
      "cd {}; [ $TUTTI_RANK = 0 ] && echo $$ >first; if [ $TUTTI_RANK = 1 ]; then "
      "[ -e again ] && while kill -0 $(cat first); do sleep 0.1; done; touch again; fi; "
      "exec {} 200",
      folder.path(), ELASTIC);
  Job job(elastic("1:2", {"sh", "-c", script}));
  ASSERT_TRUE(job.out_has("step 20 on 2 ranks")) << job.err();
  const pid_t first = std::stoi(folder.read("first"));
  for (const pid_t rank : ranks_of(job)) {
    if (rank != first) kill(rank, SIGKILL);
  }
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(test::count(job.out(), "go on from step 0\n"), 1U) << job.out();
  EXPECT_TRUE(test::contains(job.out(), "step 200 on 1 ranks")) << job.out();
  EXPECT_TRUE(
      test::contains(job.err(), "rank 1 came after the others had done the work; ending the job"))
      << job.err();
}

TEST(RunElastic, RanksWhoseSettingsDifferHearItAtOnce) {
  Job job(elastic("2:2", {"--restarts", "0", "sh", "-c",
                          fmt::format("TUTTI_INVARIANT=$TUTTI_RANK exec {} 10", ELASTIC)}));
  EXPECT_EQ(job.wait(), 1);
  EXPECT_LT(job.seconds(), 30);  // a join() that gives up by its time-out takes 60
  EXPECT_TRUE(test::contains(job.err(), "asks for invariant bits and rank 0 does not"))
      << job.err();
}

TEST(RunElastic, WhatItCannotDoItSays) {
  const auto fails = [](const std::vector<std::string>& words, const char* says) {
    Job job(words);
    EXPECT_NE(job.wait(), 0);
    EXPECT_TRUE(test::contains(job.err(), says)) << job.err();
  };
  fails(elastic("4:2", {"true"}), "it takes MIN:MAX");
  fails(elastic("0:2", {"true"}), "it takes MIN:MAX");
  fails(elastic("2:x", {"true"}), "it takes MIN:MAX");
  fails(elastic("2:257", {"true"}), "from 1 to 256");
  fails(elastic("1:4", {"-H", "node1:1,node2:2", "true"}), "the hosts have room for 3");
  Job alone({"-n", "1", ELASTIC});
  EXPECT_EQ(alone.wait(), 1);
  EXPECT_TRUE(test::contains(alone.err(), "this process is no rank of an elastic job"));
}

}  // namespace
}  // namespace tutti
