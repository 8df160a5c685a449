// Ranks that find each other under the launchers that are installed: Open MPI's and MPICH's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/clean_environment.h"

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

const std::string kOpenMpi = "mpirun --allow-run-as-root --oversubscribe -n {} ";
const std::string kMpich = "mpiexec.hydra -n {} ";

class RealLauncher : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string command = GetParam().second;
    if (!has_program(command.substr(0, command.find(' ')))) GTEST_SKIP() << "is not installed";
    if (GetParam().first == "Open MPI" &&
        std::system("mpirun --version | grep -q 'Open MPI'") != 0) {
      GTEST_SKIP() << "mpirun is another MPI's";
    }
  }
  std::string start(int ranks) const { return fmt::format(fmt::runtime(GetParam().second), ranks); }
  std::vector<std::string> expected(int ranks) const {
    std::vector<std::string> lines;
    for (int rank = 0; rank < ranks; ++rank) {
      lines.push_back(fmt::format("{} {} {}", GetParam().first, rank, ranks));
    }
    return lines;
  }
};

TEST_P(RealLauncher, RanksMeet) {
  const Environment environment({});
  EXPECT_EQ(lines_of(start(4) + ENVIRONMENT_RANK), expected(4));
}

TEST_P(RealLauncher, SeveralWorldsInOneProcess) {
  const Environment environment({});
  EXPECT_EQ(lines_of(start(3) + ENVIRONMENT_RANK + " 5"), expected(3));
}

TEST_P(RealLauncher, ThroughAWrapperAndTwoJobsAtOnce) {
  const Environment environment({});
  const std::string job = start(2) + "sh -c '" ENVIRONMENT_RANK " 2; exit $?'";
  auto both = expected(2);
  for (const std::string& line : expected(2)) both.push_back(line);
  std::sort(both.begin(), both.end());
  EXPECT_EQ(lines_of(job + " & " + job + "; wait"), both);
}

INSTANTIATE_TEST_SUITE_P(
    All, RealLauncher, testing::Values(std::pair("Open MPI", kOpenMpi), std::pair("MPICH", kMpich)),
    [](const auto& row) { return std::string(row.param.first == "MPICH" ? "Mpich" : "OpenMpi"); });

}  // namespace
}  // namespace tutti
