// The *_perf programs as a whole, with ranks as threads: every collective, type, operator and root,
// in and out of place, unaligned, in groups, on both kinds of memory. Exit codes as documented.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/perf_run.h"
#include "tests/support/temporary_folder.h"

namespace tutti::perf {
namespace {

void expect_right(Collective collective, const std::string& line, std::size_t expected_rows) {
  const Result result = run(collective, line);
  EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.output << result.errors;
  EXPECT_EQ(result.errors, "");
  EXPECT_EQ(rows(result.output), expected_rows) << result.output;
  EXPECT_NE(result.output.find("# Out of bounds values : 0 OK\n"), std::string::npos);
}

class PerfProgram : public testing::TestWithParam<Collective> {};

TEST_P(PerfProgram, EveryTypeOperatorAndRootIsRight) {
  const Collective collective = GetParam();
  for (const int ranks : {1, 2, 3}) {
    const std::size_t ops = is_reduction(collective) ? 6 : 1;
    const std::size_t roots = is_rooted(collective) ? static_cast<std::size_t>(ranks) : 1;
    expect_right(collective,
                 "-b 0 -e 20000 -i 9999 -n 2 -o all -d all -r -1 -t " + std::to_string(ranks),
                 3 * 12 * ops * roots);
  }
}

TEST_P(PerfProgram, EveryWayToMeasureIsRight) {
  const Collective collective = GetParam();
  for (const char* line :
       {"-t 4 -b 8 -e 1M -f 32 -n 3 -w 0", "-t 2 -b 1K -e 4K -f 2 -R 0 -u 1 -n 3 -c 3",
        "-t 3 -b 1K -e 4K -f 2 -m 4 -n 2 -I 1 -K 1 -S 1 -M 1 -a 3",
        "-t 2 -b 1K -e 4K -f 2 -z 1 -C 1 -a 0 -N 1",
        "-t 2 -b 1K -e 4K -f 2 -z 3 -a 2 -p 1 -T 60"}) {
    const bool wide = std::string(line).find("1M") != std::string::npos;
    expect_right(collective, line, wide ? 4 : 3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PerfProgram, all_collectives(),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST(PerfProgramErrors, UncheckedRowsSaySo) {
  const Result result = run(Collective::all_reduce, "-b 8 -e 8 -n 1 -c 0");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("  N/A "), std::string::npos) << result.output;
}

TEST(PerfProgramErrors, UsageIsExitCode2AndNothingRuns) {
  const Result result = run(Collective::all_reduce, "-b 8 -e 4");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors.find("--minbytes"), std::string::npos);
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
}

TEST(PerfProgramErrors, ARootThatDoesNotExistIsSaidOnce) {
  const Result result = run(Collective::broadcast, "-t 3 -b 8 -e 8 -r 3");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors, "# error: --root 3 does not exist, the ranks are 0 to 2\n");
}

TEST(PerfProgramErrors, AnUnwritableFileStopsEveryRank) {
  const Result result = run(Collective::all_reduce, "-t 3 -b 8 -e 8 -J /no/such/folder/x.json");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.errors.find("# error: rank 0: "), 0u) << result.errors;
  EXPECT_NE(result.errors.find("/no/such/folder/x.json"), std::string::npos);
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
}

TEST(PerfProgramErrors, HelpIsExitCode0) {
  const Result result = run(Collective::send_recv, "--help");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("sendrecv_perf"), std::string::npos);
}

TEST(PerfProgramJson, HasARowForEveryRow) {
  const TemporaryFolder folder;
  const Result result =
      run(Collective::all_to_all, "-t 2 -b 64 -e 256 -f 2 -n 1 -J " + folder.path("report.json"));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const auto json = nlohmann::json::parse(folder.read("report.json"));
  ASSERT_EQ(json["results"].size(), 3u);
  EXPECT_EQ(json["results"][2]["size"], 256);
  EXPECT_EQ(json["results"][2]["count"], 32);
  EXPECT_EQ(json["results"][2]["out_of_place"]["nwrong"], 0);
  EXPECT_TRUE(json["results"][2]["in_place"].is_null());
  EXPECT_EQ(json["config"]["devices"].size(), 2u);
  EXPECT_EQ(json["config"]["transport"], "the process's memory");
}

}  // namespace
}  // namespace tutti::perf
