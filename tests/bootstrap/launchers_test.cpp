// Ranks that find each other under the launchers that are installed: Open MPI's and MPICH's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/clean_environment.h"

namespace tutti {
namespace {

bool has_program(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) {
    std::string text = line.data();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    lines.push_back(text);
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Two jobs of Open MPI that start at once can fail on the directory that both make for their user:
// each job gets one of its own.
const std::string kOpenMpi =
    "mpirun --allow-run-as-root --oversubscribe --mca orte_tmpdir_base {0}/{1} -n {2} ";
const std::string kMpich = "mpiexec.hydra -n {2} ";

class RealLauncher : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    const std::string command = GetParam().second;
    if (!has_program(command.substr(0, command.find(' ')))) GTEST_SKIP() << "is not installed";
    if (GetParam().first == "Open MPI" &&
        std::system("mpirun --version | grep -q 'Open MPI'") != 0) {
      GTEST_SKIP() << "mpirun is another MPI's";
    }
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string start(int ranks) {
    return fmt::format(fmt::runtime(GetParam().second), directory_, ++jobs_, ranks);
  }
  std::vector<std::string> expected(int ranks) const {
    std::vector<std::string> lines;
    for (int rank = 0; rank < ranks; ++rank) {
      lines.push_back(fmt::format("{} {} {}", GetParam().first, rank, ranks));
    }
    return lines;
  }

 private:
  std::string directory_ = testing::TempDir() + "launchers.XXXXXX";
  int jobs_ = 0;
};

TEST_P(RealLauncher, RanksMeet) {
  const Environment environment({});
  EXPECT_EQ(lines_of(start(4) + ENVIRONMENT_RANK), expected(4));
}

TEST_P(RealLauncher, ProcessesMeetInSeveralWorlds) {
  const Environment environment({});
  EXPECT_EQ(lines_of(start(3) + ENVIRONMENT_RANK + " 5"), expected(3));
}

TEST_P(RealLauncher, TwoJobsMeetAtOnceThroughAWrapper) {
  const Environment environment({});
  const std::string program = "sh -c '" ENVIRONMENT_RANK " 2; exit $?'";
  auto both = expected(2);
  for (const std::string& line : expected(2)) both.push_back(line);
  std::sort(both.begin(), both.end());
  EXPECT_EQ(lines_of(start(2) + program + " & " + start(2) + program + "; wait"), both);
}

TEST_P(RealLauncher, TwoProgramsOfOneLaunchMeetAtOnce) {
  const Environment environment({});
  auto both = expected(2);
  for (const std::string& line : expected(2)) both.push_back(line);
  std::sort(both.begin(), both.end());
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(lines_of(start(2) + "sh -c '" ENVIRONMENT_RANK " 2 20 1 & " ENVIRONMENT_RANK
                                  " 2 20 2 & wait'"),
              both);
  }
}

TEST_P(RealLauncher, ItCountsInsideAnotherOne) {
  const Environment environment({});
  const std::string outer = "env TUTTI_RANK=0 TUTTI_SIZE=1 ";
  EXPECT_EQ(lines_of(outer + start(2) + ENVIRONMENT_RANK), expected(2));
  EXPECT_EQ(lines_of(TUTTI_COMMAND " run -n 1 " + start(2) + ENVIRONMENT_RANK), expected(2));
  auto both = expected(2);
  for (const std::string& line : expected(2)) both.push_back(line);
  std::sort(both.begin(), both.end());
  EXPECT_EQ(
      lines_of(TUTTI_COMMAND " run -n 2 sh -c 'export TAG=$TUTTI_RANK; if [ $TAG = 0 ]; then " +
               start(2) + ENVIRONMENT_RANK "; else " + start(2) + ENVIRONMENT_RANK "; fi'"),
      both);
  const std::string around = start(1) + TUTTI_COMMAND " run -n 2 " ENVIRONMENT_RANK;
  EXPECT_EQ(lines_of(around), (std::vector<std::string>{"tutti run 0 2", "tutti run 1 2"}));
}

INSTANTIATE_TEST_SUITE_P(All, RealLauncher,
                         testing::Values(std::pair("Open MPI", kOpenMpi),
                                         std::pair("MPICH", kMpich),
                                         std::pair("MPICH", kMpich + "-pmi-port ")),
                         [](const auto& row) {
                           const bool by_port =
                               row.param.second.find("-pmi-port") != std::string::npos;
                           return std::string(by_port                      ? "MpichByPort"
                                              : row.param.first == "MPICH" ? "Mpich"
                                                                           : "OpenMpi");
                         });

}  // namespace
}  // namespace tutti
