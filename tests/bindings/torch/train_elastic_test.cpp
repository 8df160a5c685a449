// The program that trains, under `tutti run --elastic`: a rank is killed while it trains. The
// others go on from the newest checkpoint, alone or with another rank in its place, and end with
// the losses of a job that somebody has stopped and resumed by hand.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

const std::string kTrain =
    "exec " TRAIN " --width 64 --layers 2 --report 1 --rate 1e-2 --text " TEXT " ";

std::vector<std::string> elastic(const std::string& ranks, const std::string& arguments,
                                 std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"--elastic", ranks, "--timeout", "120"});
  options.insert(options.end(), {"sh", "-c", kTrain + arguments});
  return options;
}
std::vector<std::string> by_hand(int ranks, const std::string& arguments) {
  return shell(ranks, kTrain + arguments, {"--timeout", "60"});
}

/// The losses that it has printed, by step; of a step that was done again, the last one.
std::map<int, double> losses(const std::string& out) {
  std::map<int, double> result;
  for (const std::string& line : lines(out)) {
    int step = 0;
    double loss = 0;
    if (std::sscanf(line.c_str(), "%d %lf", &step, &loss) == 2 && step > 0) result[step] = loss;
  }
  return result;
}

/// The steps after which the job has gone on, one for each time.
std::vector<int> resumed_after(const std::string& out) {
  std::vector<int> result;
  const std::string words = "goes on after step ";
  for (auto at = out.find(words); at != out.npos; at = out.find(words, at + 1)) {
    result.push_back(std::atoi(out.c_str() + at + words.size()));
  }
  return result;
}

/// A process that trains, and has the rank `rank` from the launcher.
pid_t trainer(const Job& job, int rank) {
  for (const pid_t pid : job.processes()) {
    if (contents_of(fmt::format("/proc/{}/comm", pid)) != "train\n") continue;
    const std::string environment = contents_of(fmt::format("/proc/{}/environ", pid));
    if (test::contains(environment, fmt::format("TUTTI_RANK={}", rank) + '\0')) return pid;
  }
  return 0;
}

/// Kills a rank once step 8 is over.
void kill_one(const Job& job, int rank) {
  ASSERT_TRUE(job.out_has("\n     8 ")) << job.out() << job.err();
  const pid_t pid = trainer(job, rank);
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
}

// With MIN = MAX the survivors wait for the new rank. So the mix stays what it was, also where it
// cuts the model, and the bits too.
TEST(TrainElastic, ANewRankTakesThePlaceOfTheKilledOne) {
  for (const std::string mix : {"--shard fsdp ", "--tp 2 --shard zero2 "}) {
    const TemporaryFolder folder;
    Job whole(by_hand(4, mix + "--steps 24"));
    ASSERT_EQ(whole.wait(), 0) << whole.err();
    Job job(elastic("4:4", mix + "--steps 24 --every 3 --resume --save " + folder.path()));
    kill_one(job, 2);
    ASSERT_EQ(job.wait(), 0) << mix << job.out() << job.err();
    EXPECT_CONTAINS(job.err(), "was killed by signal 9 (Killed); starting it again");
    const std::vector<int> after = resumed_after(job.out());
    ASSERT_EQ(after.size(), 1U) << job.out();
    EXPECT_GE(after[0], 3) << "the newest checkpoint that was whole when step 8 was over";
    EXPECT_EQ(after[0] % 3, 0);
    EXPECT_EQ(losses(job.out()), losses(whole.out())) << mix;
  }
}

// Three ranks train the same batches. Who resumes by hand has the same bits.
TEST(TrainElastic, TheSurvivorsGoOnAsIfResumedByHand) {
  const TemporaryFolder folder, other;
  const std::string common = "--batch 12 --shard fsdp --every 3 --resume --save ";
  Job job(elastic("2:4", common + folder.path() + " --steps 20", {"--restarts", "0"}));
  kill_one(job, 1);
  ASSERT_EQ(job.wait(), 0) << job.out() << job.err();
  const std::vector<int> after = resumed_after(job.out());
  ASSERT_EQ(after.size(), 1U) << job.out();
  EXPECT_CONTAINS(job.out(), "dp 3 (fsdp)");
  Job first(by_hand(4, common + other.path() + fmt::format(" --steps {}", after[0])));
  ASSERT_EQ(first.wait(), 0) << first.err();
  Job second(by_hand(3, common + other.path() + " --steps 20"));
  ASSERT_EQ(second.wait(), 0) << second.err();
  const auto expected = losses(second.out());
  const auto got = losses(job.out());
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(20 - after[0])) << second.out();
  for (const auto& [step, loss] : expected) EXPECT_EQ(got.at(step), loss) << step;
}

/// "dp 4": the mix of each beginning, in order.
std::vector<std::string> mixes(const std::string& out) {
  std::vector<std::string> result;
  for (const std::string& line : lines(out)) {
    const auto at = line.find(" of text a step; dp ");
    if (at != line.npos) result.push_back(line.substr(line.find("dp ", at), 4));
  }
  return result;
}

// The new rank comes when the survivors train already. They save before they meet it.
TEST(TrainElastic, WhenARankComesNoStepIsRepeated) {
  const TemporaryFolder folder;
  Job job(elastic("2:4",
                  "--batch 12 --every 1000000 --resume --steps 1000000 --save " + folder.path()));
  kill_one(job, 3);
  ASSERT_TRUE(eventually([&] {
    const auto so_far = mixes(job.out());
    return so_far.size() > 1 && so_far.back() == "dp 4";
  })) << job.out()
      << job.err();
  if (mixes(job.out()) == std::vector<std::string>{"dp 4", "dp 4"}) {
    job.signal(SIGINT);
    job.wait();
    GTEST_SKIP() << "the new rank came as fast as the survivors";
  }
  ASSERT_TRUE(job.out_has("goes on after step ")) << job.out() << job.err();
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_EQ(mixes(job.out()), (std::vector<std::string>{"dp 4", "dp 3", "dp 4"}));
  const std::string until = job.out().substr(0, job.out().find("goes on after step "));
  const std::string of_three = until.substr(until.rfind("dp 3"));
  // The step after which they meet is not printed.
  EXPECT_EQ(losses(of_three).rbegin()->first + 1, resumed_after(job.out()).at(0)) << job.out();
}

TEST(TrainElastic, WhatCannotBeIsRefused) {
  const TemporaryFolder folder;
  Job bare(elastic("2:2", "--steps 3"));
  EXPECT_NE(bare.wait(), 0);
  EXPECT_CONTAINS(bare.err(), "under `tutti run --elastic` training needs --save and --resume");
  Job too_many(elastic("3:3", "--steps 3 --resume --save " + folder.path(), {"--restarts", "0"}));
  EXPECT_NE(too_many.wait(), 0);
  EXPECT_CONTAINS(too_many.err(), "this mix cannot be: 8 sequences among dp 3");
  // Three ranks are left for 8 sequences, and none comes.
  Job left(elastic("2:4", "--every 3 --steps 100000 --resume --save " + folder.path(),
                   {"--restarts", "0", "-x", "TUTTI_RENDEZVOUS_TIMEOUT=3"}));
  kill_one(left, 1);
  EXPECT_NE(left.wait(), 0);
  EXPECT_CONTAINS(left.err(),
                  "3 ranks are left, and no other one has come: this mix cannot be: 8 "
                  "sequences among dp 3");
}

}  // namespace
}  // namespace tutti
