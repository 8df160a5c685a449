// `tutti compare`, the command itself, with peers that are there, that are missing, that fail or
// hang, and that lack what was asked for.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "laboratory/compare/compare_report.h"
#include "laboratory/peers/turns.h"
#include "tests/support/contains.h"
#include "tests/support/run_job.h"
#include "tests/tools/tutti_command.h"

namespace tutti::compare {
namespace {

/// The command, with the programs that were built, or with some that the test makes of
/// tests/tools/compare_peer.cpp.
class CompareCommand : public TuttiCommand {
 protected:
  int compare(const std::string& arguments) { return tutti("compare " + arguments); }

  /// A program that `--programs .` finds; `tutti run` starts its ranks.
  void make_program(const std::string& name, const std::string& script) {
    folder.write(name, "#!/bin/sh\n" + script);
    std::filesystem::permissions(folder.path(name), std::filesystem::perms::owner_all);
  }
  void make_peer(const std::string& name, const std::string& fault = "") {
    make_program(name + "_peer", "COMPARE_NAME=" + name + " COMPARE_FAULT=" + fault +
                                     " COMPARE_LOG='" + folder.path("log") +
                                     "' exec '" COMPARE_PEER "' \"$@\"\n");
  }
  std::vector<std::string> log_lines() const { return lines(folder.read("log")); }

  /// Where the programs of the log have met.
  std::vector<std::string> folders() const {
    std::vector<std::string> result;
    for (const std::string& line : log_lines()) {
      const auto at = line.find(" started in ");
      if (at != std::string::npos) result.push_back(line.substr(at + 12));
    }
    return result;
  }
  void expect_no_folders(std::size_t programs) const {
    EXPECT_EQ(folders().size(), programs);
    for (const std::string& path : folders()) {
      EXPECT_FALSE(std::filesystem::exists(path)) << path;
    }
  }
};

constexpr const char* kQuick = "-n 2 -b 64 -e 1K -f 16 --rounds 3 --slice 1 ";

TEST_F(CompareCommand, MeasuresEveryCollectiveBesideTheLimit) {
  ASSERT_EQ(compare(std::string(kQuick) + "--peers none --json json --svg svg"), 0) << out << err;
  const auto rows = nlohmann::json::parse(folder.read("json"))["rows"];
  ASSERT_EQ(rows.size(), 14u) << out;
  for (const auto& row : rows) {
    EXPECT_GT(row["tutti_us"], 0) << row;
    EXPECT_EQ(row["peers"].size(), 0u) << row;
  }
  EXPECT_EQ(folder.read("svg").rfind("<svg ", 0), 0u);
}

TEST_F(CompareCommand, MeasuresThePeersThatAreThere) {
  const std::string peers = TUTTI_BUILT_PEERS;
  if (peers.empty()) GTEST_SKIP() << "Tutti was built without any of its peers";
  const auto number = 1 + std::count(peers.begin(), peers.end(), ',');
  ASSERT_EQ(compare(std::string("all_reduce broadcast send_recv ") + kQuick + "--peers " + peers +
                    " --memory malloc --json json"),
            0)
      << out << err;
  const auto json = nlohmann::json::parse(folder.read("json"));
  EXPECT_EQ(json["notes"].size(), 0u) << out;
  EXPECT_CONTAINS(out, "tutti's bytes go over: shared memory\n");
  EXPECT_EQ(json["tutti_over"], "shared memory");
  ASSERT_EQ(json["rows"].size(), 6u);
  for (const auto& row : json["rows"]) {
    EXPECT_EQ(row["peers"].size(), number) << row;
    EXPECT_EQ(row["quartiles"].size(), number + 4) << row;
    EXPECT_GT(row["limit_us"], 0) << row;
    EXPECT_EQ(row["memory"], "malloc");
  }
}

// Each turn has processes of its own; and the calls that count are the first.
TEST_F(CompareCommand, ColdProgramsStartForEachTurn) {
  make_peer("tutti");
  make_peer("gloo");
  ASSERT_EQ(compare(std::string("all_reduce ") + kQuick +
                    "--cold 3 --peers gloo --programs . --json json"),
            0)
      << err;
  expect_no_folders(2 * 2 * 3);
  const auto json = nlohmann::json::parse(folder.read("json"));
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_GT(json["rows"][1]["peers"]["gloo"], 0);
  EXPECT_CONTAINS(json["notes"].dump(), "the mean of a fresh process's first 3 calls");
  EXPECT_EQ(std::ranges::count_if(log_lines(),
                                  [](const std::string& line) {
                                    return line.find("begins 1024") != std::string::npos;
                                  }),
            6);
}

TEST_F(CompareCommand, NeighboursRunBesideItAndEndWithIt) {
  const std::string count = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^tutti-neighbour$'";
  make_program("tutti_peer", count + " >>'" + folder.path("neighbours") +
                                 "'\nCOMPARE_NAME=tutti COMPARE_LOG='" + folder.path("log") +
                                 "' exec '" COMPARE_PEER "' \"$@\"\n");
  ASSERT_EQ(compare(std::string("all_reduce ") + kQuick +
                    "--cold 5 --neighbours 2 --peers none --programs ."),
            0)
      << err;
  EXPECT_CONTAINS(out, "beside 2 busy loops that began earlier");
  for (const std::string& line : lines(folder.read("neighbours"))) EXPECT_EQ(line, "2");
  // Another comparison may run beside this test, but none has loops of this name for long.
  const auto left = [&] { return std::system((count + " >/dev/null").c_str()) == 0; };
  for (int i = 0; i < 100 && left(); ++i) usleep(100'000);
  EXPECT_FALSE(left());
}

TEST_F(CompareCommand, CallsMayComeApart) {
  ASSERT_EQ(compare("all_reduce -n 2 -b 64 -e 64 --rounds 3 --slice 1 --pause 1 --peers none"), 0)
      << err;
  EXPECT_CONTAINS(out, "calls are 1 ms apart");
  EXPECT_EQ(compare("all_reduce --pause 1 --cold 1"), 2);
  EXPECT_EQ(compare("all_reduce --late"), 2);
}

TEST_F(CompareCommand, ProgramsStayAndTakeTurns) {
  make_peer("tutti");
  make_peer("gloo");
  ASSERT_EQ(compare(std::string("all_reduce ") + kQuick + "--peers gloo --programs ."), 0) << err;
  expect_no_folders(2);
  std::vector<std::string> expected;
  for (int round = 0; round < 3; ++round) {
    for (const char* bytes : {"64", "1024"}) {
      for (const char* program : {"tutti", "gloo"}) {
        for (const char* does : {"begins", "ends"}) {
          expected.push_back(fmt::format("{} {} {}", program, does, bytes));
        }
      }
    }
  }
  std::vector<std::string> turns;
  for (const std::string& line : log_lines()) {
    if (line.find("ends ") != std::string::npos || line.find("begins ") != std::string::npos) {
      turns.push_back(line);
    }
  }
  EXPECT_EQ(turns, expected);
}

TEST_F(CompareCommand, WhoWaitsLeavesTheCoresToOthers) {
  make_peer("tutti");
  make_peer("gloo");
  ASSERT_EQ(compare("all_reduce -b 64 -e 64 --rounds 5 --slice 100 --peers gloo --programs ."), 0)
      << err;
  int programs = 0;
  for (const std::string& line : log_lines()) {
    double used = 0, lasted = 0;
    const auto at = line.find("waited ");
    if (at == std::string::npos ||
        std::sscanf(line.c_str() + at, "waited %lf s of cores in %lf s", &used, &lasted) != 2) {
      continue;
    }
    ++programs;
    EXPECT_GT(lasted, 0.2) << line;
    EXPECT_LT(used, lasted / 20) << line;
  }
  EXPECT_EQ(programs, 2) << folder.read("log");
}

TEST_F(CompareCommand, GoesOnWithoutMissingPeers) {
  make_peer("tutti");
  ASSERT_EQ(compare(std::string("all_reduce ") + kQuick + "--programs ."), 0) << err;
  EXPECT_CONTAINS(out,
                  "openmpi is left out: it was not there when Tutti was built: apt install "
                  "openmpi-bin libopenmpi-dev");
  EXPECT_CONTAINS(out, "mpich is left out: ");
  EXPECT_CONTAINS(out, "apt install libgloo-dev");
  EXPECT_CONTAINS(out, "limit is left out: ");
  EXPECT_CONTAINS(out, "\n  64  ");
}

TEST_F(CompareCommand, GoesOnWithoutFailingPeers) {
  make_peer("tutti");
  const auto expect_left_out = [&](const std::string& sentence, const std::string& options = "") {
    std::filesystem::remove(folder.path("log"));
    ASSERT_EQ(compare(std::string("all_reduce ") + kQuick + "--peers gloo --programs . " + options +
                      " --json json"),
              0)
        << err;
    EXPECT_CONTAINS(out, "gloo is left out of all_reduce: " + sentence);
    const auto rows = nlohmann::json::parse(folder.read("json"))["rows"];
    ASSERT_EQ(rows.size(), 2u);
    for (const auto& row : rows) {
      EXPECT_GT(row["tutti_us"], 0);
      EXPECT_EQ(row["peers"].size(), 0u) << row;
      EXPECT_TRUE(row["ratio"].is_null());
    }
    EXPECT_EQ(log_lines().back().rfind("tutti waited", 0), 0u);  // until the end
    for (const std::string& path : folders()) EXPECT_FALSE(std::filesystem::exists(path));
  };
  make_program("gloo_peer", "echo no device >&2; exit 3\n");
  expect_left_out("gloo failed (exit status 3): no device");
  make_program("gloo_peer", "exit 0\n");
  expect_left_out("gloo failed (exit status 0): it wrote nothing to stderr");
  make_peer("gloo", "unsupported");
  expect_left_out("not supported by this peer: it cannot");
  make_peer("gloo", "dies");
  expect_left_out("gloo failed (exit status 3): no socket");
  make_peer("gloo", "swaps");
  expect_left_out("gloo failed (exit status 1): all_reduce of 256 float32: rank ");
  make_peer("gloo", "hangs");  // and ignores SIGTERM
  expect_left_out(
      "gloo was ended: it took longer than 4 s to measure 64 bytes; not ready: rank 0, 1",
      "--timeout 4");
}

// As if `tutti compare` had been killed while the rank was starting.
TEST(CompareTurns, NobodyWaitsForAComparisonThatIsGone) {
  const TemporaryFolder folder;
  for (const char* name : {"turn.0", "report"}) {
    ASSERT_EQ(mkfifo(folder.path(name).c_str(), 0600), 0);
  }
  EXPECT_THROW(peers::Turns(folder.path(), 0), Error);
}

TEST_F(CompareCommand, LeavesOutWhoMakesNoSense) {
  make_peer("tutti");
  for (const std::string line :
       {"hello", "", "waiting", "waiting 2", "times", "times 0", "times nan", "times 1 hello"}) {
    make_program("gloo_peer", "eval folder=\\${$#}; test $TUTTI_RANK = 1 || echo '" + line +
                                  "' >$folder/report\n");
    ASSERT_EQ(compare(std::string("all_reduce ") + kQuick + "--peers gloo --programs ."), 0) << err;
    EXPECT_CONTAINS(out, "gloo is left out of all_reduce: gloo has sent '" + line + "', which");
  }
}

TEST_F(CompareCommand, FailsWithoutTutti) {
  EXPECT_EQ(compare(std::string("all_reduce ") + kQuick + "--programs ."), 1);
  EXPECT_CONTAINS(err, "Tutti's own program is missing");
  make_program("tutti_peer", "exit 7\n");
  EXPECT_EQ(compare(std::string("all_reduce ") + kQuick + "--programs ."), 1);
  EXPECT_CONTAINS(err, "tutti: tutti failed (exit status 7)");
}

TEST_F(CompareCommand, SignalsLeaveNothingBehind) {
  make_peer("tutti");
  make_peer("gloo");
  const std::string mark = fmt::format("COMPARE_MARK={}-", getpid());
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    std::filesystem::remove(folder.path("log"));
    const std::string command = "cd '" + folder.path() + "' && " + mark +
                                " exec '" TUTTI_COMMAND
                                "' compare all_reduce -e 1K --slice 1 "
                                "--rounds 100000 --peers gloo --programs . >stdout 2>stderr";
    const pid_t pid = fork();
    if (pid == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(99);
    }
    EXPECT_TRUE(
        eventually([&] { return folder.read("log").find("gloo begins") != std::string::npos; }));
    kill(pid, number);
    int status = 0;
    waitpid(pid, &status, 0);
    if (number == SIGKILL) {
      EXPECT_TRUE(WIFSIGNALED(status));
    } else {
      EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1) << number;
      EXPECT_EQ(folder.read("stderr"), "tutti: interrupted\n");
    }
    EXPECT_TRUE(eventually([&] { return marked_processes(mark).empty(); })) << number;
    expect_no_folders(2);
  }
}

TEST_F(CompareCommand, RefusesWhatMakesNoSense) {
  EXPECT_EQ(compare("all_reduced"), 2);
  EXPECT_EQ(compare("all_reduce -n 1"), 2);
  EXPECT_EQ(compare("all_reduce --peers nccl"), 2);
  EXPECT_EQ(compare("all_reduce -d int32"), 2);
  EXPECT_CONTAINS(err, "float16, bfloat16, float32 and float64 can be compared");
  EXPECT_EQ(compare("all_reduce -b 1K -e 8"), 2);
  EXPECT_CONTAINS(err, "no size from -b 1K to -e 8");
  EXPECT_EQ(compare("all_reduce -e 8G"), 2);
}

}  // namespace
}  // namespace tutti::compare
