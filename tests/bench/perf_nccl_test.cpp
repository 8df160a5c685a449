// The *_perf programs with --nccl: Tutti's own libnccl.so.2 beside it on host memory, and libraries
// that are none, lack a function, or refuse.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/perf_run.h"
#include "tests/support/temporary_folder.h"

namespace tutti::perf {
namespace {

const std::string kNone = "     N/A     N/A     N/A     N/A";

nlohmann::json run_json(Collective collective, const std::string& line, Result& result) {
  const TemporaryFolder folder;
  result = run(collective, line + " -J " + folder.path("results.json"));
  return nlohmann::json::parse(folder.read("results.json"), nullptr, false);
}

class PerfNccl : public testing::TestWithParam<Collective> {};

TEST_P(PerfNccl, BothAreTimedAndRight) {
  const Collective collective = GetParam();
  for (const char* line :
       {"-t 3 -b 9999 -e 9999 -n 1 -o all -d all", "-t 2 -b 64 -e 64 -n 3 -m 2 -I 1 -K 1"}) {
    Result result;
    const nlohmann::json json =
        run_json(collective, std::string(line) + " --nccl " LIBNCCL, result);
    ASSERT_EQ(result.exit_code, 0) << result.output << result.errors;
    EXPECT_EQ(result.errors, "");
    EXPECT_TRUE(json["nccl"]["failure"].is_null());
    EXPECT_EQ(json["nccl"]["version"], "2.32.3");
    ASSERT_GE(json["results"].size(), 1u);
    for (const nlohmann::json& row : json["results"]) {
      for (const char* half : {"out_of_place", "in_place"}) {
        if (row[half].is_null()) continue;
        EXPECT_EQ(row[half]["nwrong"], 0) << row;
        EXPECT_EQ(row[half]["nccl"]["nwrong"], 0) << row;
        EXPECT_GT(row[half]["nccl"]["time"], 0) << row;
        EXPECT_GT(row[half]["nccl"]["ratio"], 0) << row;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PerfNccl, all_collectives(),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST(PerfNcclErrors, NoSuchFile) {
  const Result result = run(Collective::all_reduce, "-b 8 -e 8 --nccl /no/such/libnccl.so.2");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors.find("# error: --nccl: /no/such/libnccl.so.2: "), 0u) << result.errors;
}

TEST(PerfNcclErrors, NoSuchFunction) {
  const Result result =
      run(Collective::all_gather, "-b 8 -e 8 --nccl " REFUSING_NCCL);  // which has all_reduce
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors, "# error: --nccl " REFUSING_NCCL
                           ": it has no function ncclAllGather, which all_gather needs\n");
}

void expect_tutti_alone(const std::string& sentence) {
  Result result;
  const nlohmann::json json =
      run_json(Collective::all_reduce, "-t 3 -b 8 -e 64 -f 2 -n 2 --nccl " REFUSING_NCCL, result);
  EXPECT_EQ(result.exit_code, 0) << result.output << result.errors;
  EXPECT_EQ(rows(result.output), 4u);
  EXPECT_NE(result.output.find("# NCCL is not measured any more: " + sentence + "\n"),
            std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find(kNone), std::string::npos) << result.output;
  EXPECT_EQ(json["nccl"]["failure"], sentence);
  for (const nlohmann::json& row : json["results"]) {
    EXPECT_TRUE(row["out_of_place"]["nccl"].is_null());
    EXPECT_EQ(row["out_of_place"]["nwrong"], 0);
  }
}

TEST(PerfNcclErrors, ALibraryThatRefusesTheRanks) {
  setenv("REFUSING_NCCL", "init", 1);
  expect_tutti_alone("ncclCommInitRank: invalid usage: two ranks on one GPU");
}

TEST(PerfNcclErrors, ALibraryThatRefusesACallOfOneRank) {
  setenv("REFUSING_NCCL", "call", 1);
  expect_tutti_alone("ncclAllReduce: invalid usage: not this call");
}

TEST(PerfNcclErrors, ALibraryThatFailsLater) {
  setenv("REFUSING_NCCL", "later", 1);
  expect_tutti_alone("a call: invalid usage: it went wrong");
}

}  // namespace
}  // namespace tutti::perf
