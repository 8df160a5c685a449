// What the *_perf programs print, line by line: programs that read nccl-tests' output must read it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "bench/perf/report.h"
#include "bench/perf/table.h"
#include "tests/support/temporary_folder.h"

namespace tutti::perf {
namespace {

Row example() {
  Row row;
  row.bytes = 33554432;
  row.count = 8388608;
  row.op = ReduceKind::sum;
  row.out_of_place.seconds = 5.2e-3;
  row.out_of_place.cpu_seconds = 1e-3;
  row.out_of_place.algorithm_gbps = 6.453;
  row.out_of_place.bus_gbps = 9.679;
  row.out_of_place.wrong = 0;
  row.in_place = row.out_of_place;
  row.timestamp = "2026-01-31 12:00:00";
  return row;
}

TEST(PerfTable, NumbersKeepTheDecimalsThatFit) {
  EXPECT_EQ(format_number(0, 7), "   0.00");
  EXPECT_EQ(format_number(12.904, 7), "  12.90");
  EXPECT_EQ(format_number(9999.99, 7), "9999.99");
  EXPECT_EQ(format_number(9999.999, 7), "10000.0");
  EXPECT_EQ(format_number(12345.6, 7), "12345.6");
  EXPECT_EQ(format_number(123456.7, 7), " 123457");
  EXPECT_EQ(format_number(1234567.8, 7), "1234568");
  EXPECT_EQ(format_number(12345678, 7), "1.2e+07");
  EXPECT_EQ(format_number(999.99, 6), "999.99");
  EXPECT_EQ(format_number(1234.5, 6), "1234.5");
  EXPECT_EQ(format_number(1234567, 6), " 1e+06");
}

TEST(PerfTable, Header) {
  PerfOptions options;
  const std::string expected =
      "# tutti-tests version 0.1.0 tutti-library=0.1.0\n"
      "# Collective test starting: all_reduce_perf\n"
      "# nThread 1 nGpus 1 minBytes 33554432 maxBytes 33554432 step: 1048576(bytes) "
      "warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0\n"
      "#\n"
      "# Using devices\n"
      "#  Rank  0 Group  0 Pid  12345 on       host device  0 [cpu] host memory\n"
      "#  Rank  1 Group  0 Pid 123456 on a-longer-host device  0 [cpu] host memory\n"
      "#\n"
      "#                                                              out-of-place"
      "                       in-place\n"
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
      "     time   algbw   busbw  #wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"
      "             (us)  (GB/s)  (GB/s)\n";
  const std::string header =
      format_header("all_reduce_perf", options, {{0, 12345, "host"}, {1, 123456, "a-longer-host"}});
  EXPECT_EQ(header.substr(header.find('\n')), expected.substr(expected.find('\n')));
  EXPECT_EQ(header.find("# tutti-tests version "), 0u);
  options.step_factor = 4;
  EXPECT_NE(format_header("p", options, {}).find("step: 4(factor) warmup"), std::string::npos);
  EXPECT_NE(
      format_header("p", options, {}, "", "tcp").find("\n# transport: tcp\n#\n# Using devices\n"),
      std::string::npos);
}

TEST(PerfTable, Row) {
  PerfOptions options;
  Row row = example();
  EXPECT_EQ(format_row(row, options),
            "    33554432       8388608     float     sum      -1"
            "  5200.00    6.45    9.68       0  5200.00    6.45    9.68       0\n");
  row.out_of_place.wrong = 1234567;
  row.in_place->wrong.reset();
  row.type = DataType::bfloat16;
  row.op.reset();
  row.root = 3;
  EXPECT_EQ(format_row(row, options),
            "    33554432       8388608  bfloat16    none       3"
            "  5200.00    6.45    9.68  1.23457e+06  5200.00    6.45    9.68     N/A\n");
  row = example();
  row.in_place.reset();
  options.cpu_time = true;
  options.timestamps = true;
  EXPECT_EQ(format_row(row, options),
            "    33554432       8388608     float     sum      -1"
            "  1000.00    6.45    9.68       0      N/A     N/A     N/A     N/A"
            "  2026-01-31 12:00:00\n");
}

TEST(PerfTable, GpuRanks) {
  PerfOptions options;
  options.gpus = 2;
  options.graph_launches = 10;
  RankInfo rank{1, 12345, "host", 0, "0000:19:00", "NVIDIA H200, GPU memory"};
  const std::string header = format_header("all_reduce_perf", options, {rank});
  EXPECT_NE(header.find("# nThread 1 nGpus 2 minBytes "), std::string::npos) << header;
  EXPECT_NE(header.find(" graph: 10 unalign: 0\n"), std::string::npos) << header;
  EXPECT_NE(
      header.find("#  Rank  1 Group  0 Pid  12345 on       host device  0 [0000:19:00] NVIDIA "
                  "H200, GPU memory\n"),
      std::string::npos)
      << header;
}

// Behind the columns of nccl-tests, so that what reads those reads on.
TEST(PerfTable, WhatIsMeasuredBesideTutti) {
  PerfOptions options;
  const Row alone = example();
  Row row = example();
  const std::string before = format_row(alone, options);
  options.nccl = "/a/libnccl.so.2";
  Timed nccl = row.out_of_place;
  nccl.seconds = 7.8e-3;
  nccl.bus_gbps = 6.45;
  nccl.wrong.reset();
  row.out_of_place.nccl = nccl;
  const std::string none = "      N/A     N/A     N/A     N/A";
  EXPECT_EQ(format_row(row, options), before.substr(0, before.size() - 1) +
                                          "  7800.00    6.45     N/A    1.50" + none + "\n");
  row.in_place.reset();
  EXPECT_EQ(format_row(row, options).size(), before.size() + 2 * none.size());

  const std::string header = format_header("p", options, {}, "2.28.9");
  EXPECT_NE(header.find("# NCCL 2.28.9 beside it: /a/libnccl.so.2 "), std::string::npos) << header;
  EXPECT_NE(header.find("busbw  #wrong     time   busbw  #wrong   ratio     time   busbw  #wrong   "
                        "ratio\n"),
            std::string::npos)
      << header;
}

TEST(PerfTable, RowsHaveAsManyColumnsAsTheHeader) {
  PerfOptions options;
  options.per_iteration = true;
  options.timestamps = true;
  Row row = example();
  row.out_of_place.iterations = summarize({5, 1, 2, 3, 4}, 1);
  const std::string line = format_row(row, options);
  EXPECT_NE(line.find("       0     1.00     4.00     4.00    44.72  "), std::string::npos) << line;
  row.in_place.reset();
  EXPECT_EQ(format_row(row, options).size(),
            std::string("    33554432       8388608     float     sum      -1").size() +
                2 * (33 + 36) + 21 + 1);
}

TEST(PerfTable, Footer) {
  EXPECT_EQ(format_footer("reduce_perf", {0, 12.3456789}),
            "# Out of bounds values : 0 OK\n"
            "# Avg bus bandwidth    : 12.3457\n"
            "#\n"
            "# Collective test concluded: reduce_perf\n"
            "#\n");
  EXPECT_EQ(format_footer("reduce_perf", {7, 0}).find("# Out of bounds values : 7 FAILED\n"), 0u);
}

TEST(PerfTable, Labels) {
  const char* types[] = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                         "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  for (int i = 0; i < kDataTypes; ++i) EXPECT_EQ(label(static_cast<DataType>(i)), types[i]);
  const char* ops[] = {"sum", "prod", "max", "min", "avg", "mulsum"};
  for (int i = 0; i < kReduceKinds; ++i) {
    EXPECT_EQ(label(std::optional(static_cast<ReduceKind>(i))), ops[i]);
  }
}

TEST(PerfTable, Statistics) {
  std::vector<double> times;
  for (int i = 200; i >= 1; --i) times.push_back(i);
  const IterationStats stats = summarize(times, 100);  // 100, 99, ..., 1 remain
  EXPECT_EQ(stats.minimum, 1);
  EXPECT_EQ(stats.maximum, 100);
  EXPECT_EQ(stats.p50, 50);
  EXPECT_EQ(stats.p95, 95);
  EXPECT_EQ(stats.p99, 99);
  EXPECT_NEAR(stats.mean, 50.5, 1e-9);
  EXPECT_NEAR(stats.deviation, 28.866070, 1e-5);
  EXPECT_EQ(stats.times.size(), 200u);
  EXPECT_EQ(summarize({3}, 0).variation_percent, 0);
}

TEST(PerfReport, WritesJson) {
  const TemporaryFolder folder;
  PerfOptions options;
  options.output_file = folder.path("report.json");
  {
    testing::internal::CaptureStdout();
    Report report("all_reduce_perf", options, {"all_reduce_perf", "-J", "bytes \xff not UTF-8"});
    report.start({{0, 1, "host"}, {1, 2, "host"}});
    Row row = example();
    report.add(row);
    row.in_place.reset();
    row.out_of_place.wrong.reset();
    report.add(row);
    report.finish({0, 1.5}, {});
    EXPECT_NE(testing::internal::GetCapturedStdout().find("# Avg bus bandwidth    : 1.5\n"),
              std::string::npos);
  }
  const auto json = nlohmann::json::parse(folder.read("report.json"));
  EXPECT_EQ(json["config"]["devices"].size(), 2u);
  EXPECT_EQ(json["config"]["minimum_bytes"], 33554432);
  ASSERT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][0]["type"], "float");
  EXPECT_EQ(json["results"][0]["in_place"]["nwrong"], 0);
  EXPECT_DOUBLE_EQ(json["results"][0]["out_of_place"]["time"], 5200);
  EXPECT_TRUE(json["results"][1]["in_place"].is_null());
  EXPECT_TRUE(json["results"][1]["out_of_place"]["nwrong"].is_null());
  EXPECT_EQ(json["out_of_bounds"]["okay"], true);
  EXPECT_DOUBLE_EQ(json["average_bus_bandwidth"]["bandwidth"], 1.5);
}

TEST(PerfReport, JsonHasWhatIsMeasuredBesideTutti) {
  const TemporaryFolder folder;
  PerfOptions options;
  options.output_file = folder.path("results.json");
  options.nccl = "/a/libnccl.so.2";
  {
    testing::internal::CaptureStdout();
    Report report("all_reduce_perf", options, {});
    report.start({}, "2.28.9");
    Row row = example();
    row.out_of_place.nccl = row.out_of_place;
    row.out_of_place.nccl->seconds *= 2;
    report.add(row);
    report.drop_nccl("it has failed");
    report.finish({0, 1.5}, {});
    EXPECT_NE(testing::internal::GetCapturedStdout().find("\n# NCCL is not measured any more: it "
                                                          "has failed\n"),
              std::string::npos);
  }
  const nlohmann::json json = nlohmann::json::parse(folder.read("results.json"));
  EXPECT_EQ(json["nccl"]["library"], options.nccl);
  EXPECT_EQ(json["nccl"]["version"], "2.28.9");
  EXPECT_EQ(json["nccl"]["failure"], "it has failed");
  EXPECT_DOUBLE_EQ(json["results"][0]["out_of_place"]["nccl"]["time"], 10400);
  EXPECT_DOUBLE_EQ(json["results"][0]["out_of_place"]["nccl"]["ratio"], 2);
  EXPECT_TRUE(json["results"][0]["in_place"]["nccl"].is_null());
}

TEST(PerfReport, SaysWhichFileCannotBeWritten) {
  PerfOptions options;
  options.output_file = "/no/such/folder/x.json";
  try {
    Report report("all_reduce_perf", options, {});
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(options.output_file), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::perf
