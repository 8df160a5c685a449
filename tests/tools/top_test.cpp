// `tutti top`: what it concludes from what it has seen, and what it shows to which user. Hangs of
// real jobs are in top_hangs_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/run_job.h"
#include "tests/support/temporary_folder.h"
#include "tools/output_of.h"
#include "tools/top/jobs.h"
#include "tools/top/picture.h"

namespace tutti {
namespace {

using nlohmann::json;

/// `ranks` ranks of communicator 1, each in a process of its own: 1000 + rank.
top::View job_of(int ranks) {
  top::View view;
  view.host = "here";
  for (int r = 0; r < ranks; ++r) {
    top::Process p;
    p.pid = 1000 + r;
    p.host = view.host;
    p.command = "train";
    p.state = 'S';
    p.ranks = 1;
    view.processes.push_back(p);
    top::Member m;
    m.communicator = 1;
    m.identity = 100 + static_cast<std::uint64_t>(r);
    m.rank = m.job_rank = r;
    m.size = m.here = ranks;
    m.pid = p.pid;
    m.calls = m.number = 41;
    m.newest = "all_reduce #41 (float32 x 8, sum)";
    view.members.push_back(m);
  }
  return view;
}

/// Rank `rank` waits for `peer` in collective number `number`.
void wait(top::View& view, int rank, int peer, std::uint64_t number) {
  top::Member& m = view.members[static_cast<std::size_t>(rank)];
  m.calls = m.number = number;
  m.newest = fmt::format("all_reduce #{} (float32 x 8, sum)", number);
  m.waits.push_back({peer, 3, m.newest, true});
}

std::vector<top::Culprit> culprits_in(const top::View& view) {
  const std::vector<top::View> views{view};
  const auto jobs = top::jobs_in(views);
  return jobs.size() == 1 ? jobs.front().culprits : std::vector<top::Culprit>{};
}

TEST(Top, FollowsTheLineToItsEnd) {
  top::View view = job_of(4);
  wait(view, 3, 2, 42);
  wait(view, 0, 3, 42);
  wait(view, 1, 0, 42);
  const auto culprits = culprits_in(view);
  ASSERT_EQ(culprits.size(), 1U);
  EXPECT_EQ(culprits[0].ranks, std::vector{2});
  EXPECT_EQ(culprits[0].pids, std::vector{1002});
  EXPECT_NE(culprits[0].sentence.find("Rank 2 holds up ranks 0,1,3"), std::string::npos)
      << culprits[0].sentence;
}

TEST(Top, NamesAllOfACircle) {
  top::View view = job_of(4);
  wait(view, 0, 1, 42);
  wait(view, 1, 0, 42);
  const auto culprits = culprits_in(view);
  ASSERT_EQ(culprits.size(), 1U);
  EXPECT_EQ(culprits[0].ranks, (std::vector{0, 1}));
}

TEST(Top, BlamesNobodyForAShortWait) {
  top::View view = job_of(2);
  wait(view, 0, 1, 42);
  view.members[0].waits[0].seconds = 0.1;
  EXPECT_TRUE(culprits_in(view).empty());
}

TEST(Top, SaysThatARankIsOnAnotherHost) {
  top::View view = job_of(4);
  view.members.resize(2);
  for (top::Member& m : view.members) m.here = 2;
  wait(view, 0, 3, 42);
  const auto culprits = culprits_in(view);
  ASSERT_EQ(culprits.size(), 1U);
  EXPECT_EQ(culprits[0].ranks, std::vector{3});
  EXPECT_NE(culprits[0].sentence.find("on another host"), std::string::npos);
}

TEST(Top, PutsTheViewsOfHostsTogether) {
  top::View all = job_of(4), first = all, second = all;
  first.members.resize(2);
  second.members.erase(second.members.begin(), second.members.begin() + 2);
  wait(first, 0, 3, 42);
  second.host = "there";
  for (top::Process& p : second.processes) p.host = second.host;
  const std::vector<top::View> views{first, second};
  const auto jobs = top::jobs_in(views);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].ranks.size(), 4U);
  EXPECT_EQ(jobs[0].hosts, (std::vector<std::string>{"here", "there"}));
  ASSERT_EQ(jobs[0].culprits.size(), 1U);
  // Rank 3 first, for which rank 0 waits; the others have not called either.
  EXPECT_EQ(jobs[0].culprits[0].ranks, (std::vector{3, 1, 2}));
}

TEST(Top, RanksInTheSameStateShareALine) {
  top::View view = job_of(256);
  for (int r = 0; r < 256; ++r) {
    if (r != 77) wait(view, r, 77, 42);
  }
  const std::string text = top::picture({view}, 100);
  EXPECT_LT(std::ranges::count(text, '\n'), 10) << text;
  EXPECT_NE(text.find("0-76,78-255"), std::string::npos) << text;
  for (const std::string& line : lines(text)) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Top, AViewTravelsAsJson) {
  top::View view = job_of(3);
  wait(view, 0, 2, 42);
  view.starts.push_back({7, 1, 2, 3, 4, 5});
  view.notes = {"a note"};
  const std::string text = top::to_json(view).dump();
  EXPECT_EQ(top::to_json(top::view_from_json(text)).dump(), text);
  json wrong = json::parse(text);
  wrong["members"][1]["rank"] = 3;  // of 3 ranks
  EXPECT_THROW(top::view_from_json(wrong.dump()), Error);
  wrong["members"][1]["rank"] = "one";
  EXPECT_THROW(top::view_from_json(wrong.dump()), Error);
  EXPECT_THROW(top::view_from_json(text.substr(0, text.size() / 2)), Error);
  EXPECT_THROW(top::view_from_json("Welcome to node1"), Error);
}

TEST(Top, WritesPrometheusText) {
  top::View view = job_of(2);
  wait(view, 0, 1, 42);
  view.processes[0].command = view.processes[1].command = "a \"b\\";
  const std::string text = top::prometheus_text({view});
  EXPECT_NE(text.find(R"(tutti_culprit{rank="1",host="here",pid="1001",job="a \"b\\"} 1)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"(tutti_calls_total{rank="0",host="here",pid="1000",job="a \"b\\"} 42)"),
            std::string::npos)
      << text;
}

TEST(Top, KillsAProgramThatTakesTooLong) {
  const auto out = output_of({"sleep", "60"}, std::chrono::milliseconds(50));
  EXPECT_EQ(out.status, Output::kTooLong);
  EXPECT_EQ(output_of({"no-such-program"}, std::chrono::seconds(1)).status, Output::kNotFound);
}

// --- real jobs ---

/// A job whose rank 2 keeps the others waiting.
class TopOfAJob : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(job_.out_has("now\n")) << job_.err(); }
  std::string pid() const { return std::to_string(job_.pid()); }
  Output top(std::vector<std::string> words) const {
    words.insert(words.end(), pid());
    return output_of(words, std::chrono::seconds(20));
  }

 private:
  Job job_{{"-n", "4", "--keep-going", HUNG_RANK, "sleeps"}};
};

TEST_F(TopOfAJob, ShowsItToItsUserAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const auto own = top({TUTTI_COMMAND, "top", "--once"});
  EXPECT_NE(own.text.find("4 ranks in 4 processes"), std::string::npos) << own.text;
  // The program is perhaps in a folder which that user may not enter; root opens it.
  const auto other =
      top({"setpriv", "--reuid=65534", "--clear-groups", TUTTI_COMMAND, "top", "--once"});
  if (other.status != 0) GTEST_SKIP() << "another user cannot start it: " << other.complaint;
  EXPECT_EQ(other.text, "No job of Tutti runs here that this user may look at.\n");
}

TEST_F(TopOfAJob, AsksOtherHostsByALauncher) {
  const TemporaryFolder folder;
  folder.write("launcher",
               "#!/bin/sh\n[ $1 != gone ] || { echo no way there >&2; exit 255; }\n"
               "shift\nexec \"$@\"\n");
  chmod(folder.path("launcher").c_str(), 0755);
  const auto out = top(
      {TUTTI_COMMAND, "top", "--once", "-H", "one,gone", "--launcher", folder.path("launcher")});
  EXPECT_EQ(out.status, 0) << out.complaint;
  EXPECT_NE(out.text.find("4 ranks in 4 processes"), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("host gone is not seen"), std::string::npos) << out.text;
  EXPECT_NE(out.text.find("no way there"), std::string::npos) << out.text;
}

TEST_F(TopOfAJob, ShowsTheStackOfTheGuiltyOne) {
  if (output_of({"gdb", "--version"}, std::chrono::seconds(20)).status != 0) {
    GTEST_SKIP() << "gdb is not installed";
  }
  std::string text;
  EXPECT_TRUE(eventually([&] {
    text = top({TUTTI_COMMAND, "top", "--stack"}).text;
    return text.find("sleep_for_ever") != std::string::npos;
  })) << text;
}

}  // namespace
}  // namespace tutti
