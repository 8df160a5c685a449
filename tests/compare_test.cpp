// `tutti compare`: the numbers that it makes of measured times, and the command itself with peers
// that are there, that are missing, that fail, and that lack what was asked for.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.h"
#include "tests/tutti_command.h"
#include "tools/compare_report.h"

namespace tutti::compare {
namespace {

TEST(CompareReport, Median) {
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 2}), 3);
}

TEST(CompareReport, ParsesAProgramsOutput) {
  const Output output = parse_output("8 0.2500\n65536 12.5\n");
  EXPECT_EQ(output.times, (std::map<std::size_t, double>{{8, 0.25}, {65536, 12.5}}));
  EXPECT_EQ(output.unsupported, "");
  EXPECT_EQ(parse_output("unsupported it cannot add\n").unsupported, "it cannot add");
  for (const char* wrong : {"eight 1\n", "8\n", "8 0\n", "8 -1\n", "8 nan\n", "8 1 2\n", "\n"}) {
    EXPECT_THROW(parse_output(wrong), Error) << wrong;
  }
}

std::vector<Row> example() {
  Row small{Collective::all_reduce, 8, DataType::float32, 4, "malloc", {0.5, 0.25, 4}, {}, {0.1}};
  small.peers = {{"gloo", {200}}, {"mpich", {1.5, 0.5, 1}}, {"openmpi", {2, 3, 1}}};
  Row large{Collective::all_reduce, 1 << 20, DataType::float32, 4, "malloc", {100}, {}, {}};
  return {small, large};
}

TEST(CompareReport, RatiosAreOfMedians) {
  const auto rows = example();
  EXPECT_EQ(rows[0].tutti_us(), 0.5);
  EXPECT_EQ(rows[0].best_peer()->first, "mpich");
  EXPECT_EQ(rows[0].best_peer()->second, 1);
  EXPECT_EQ(rows[0].ratio(), 2);
  EXPECT_DOUBLE_EQ(*rows[0].of_limit(), 0.2);
  EXPECT_FALSE(rows[1].best_peer());
  EXPECT_FALSE(rows[1].ratio());
  EXPECT_FALSE(rows[1].of_limit());
  // 2 (n - 1) / n = 1.5 times 1 MiB in 100 us
  EXPECT_DOUBLE_EQ(rows[1].bus_gbps(), 1.5 * 1.048576 * 10);
}

TEST(CompareReport, Table) {
  EXPECT_EQ(format_table(example(), {"mpich", "gloo"}, false),
            "all_reduce, 4 ranks, float32, Tutti's buffers from malloc; median times in us, busbw "
            "in GB/s\n"
            "size  tutti  busbw  mpich   gloo  limit  ratio  of limit\n"
            "   8  0.500   0.02  1.000  200.0  0.100   2.00       20%\n"
            "  1M  100.0  15.73      -      -      -      -         -\n");
  EXPECT_CONTAINS(format_table(example(), {"mpich"}, true), "1.000 (0.500-1.500)");
}

TEST(CompareReport, Json) {
  const Conditions run{"a CPU", 2, 5, 51, true, {"gloo is left out"}};
  const auto json = nlohmann::json::parse(format_json(example(), run));
  EXPECT_EQ(json["cpu"], "a CPU");
  EXPECT_EQ(json["notes"][0], "gloo is left out");
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["collective"], "all_reduce");
  EXPECT_EQ(row["type"], "float32");
  EXPECT_EQ(row["bytes"], 8);
  EXPECT_EQ(row["ranks"], 4);
  EXPECT_EQ(row["memory"], "malloc");
  EXPECT_EQ(row["tutti_us"], 0.5);
  EXPECT_EQ(row["peers"], (nlohmann::json{{"gloo", 200.0}, {"mpich", 1.0}, {"openmpi", 2.0}}));
  EXPECT_EQ(row["limit_us"], 0.1);
  EXPECT_EQ(row["ratio"], 2.0);
  EXPECT_EQ(row["of_limit"], 0.2);
  for (const char* missing : {"limit_us", "ratio", "of_limit"}) {
    EXPECT_TRUE(json["rows"][1][missing].is_null()) << missing;
  }
}

TEST(CompareReport, Chart) {
  const std::string svg = format_svg(example(), {"A&B <CPU>", 2, 5, 51, true, {}});
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_CONTAINS(svg, "A&amp;B &lt;CPU>");
  EXPECT_CONTAINS(svg, "8 B: 2.00x mpich");
  EXPECT_CONTAINS(svg, ">all_reduce</text>");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

/// The command, and measuring programs that a test can make.
class CompareCommand : public TuttiCommand {
 protected:
  int compare(const std::string& arguments) { return tutti("compare " + arguments); }
  /// A program of the test's own; it is started by `tutti run`.
  void make_program(const std::string& name, const std::string& script) {
    folder.write(name, "#!/bin/sh\n" + script);
    std::filesystem::permissions(folder.path(name), std::filesystem::perms::owner_all);
  }
};

constexpr const char* kQuick = "-n 2 -b 64 -e 1K -f 16 --alternations 1 --iterations 3 ";

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
  ASSERT_EQ(compare(std::string("all_reduce broadcast send_recv ") + kQuick + "--peers " + peers +
                    " --memory malloc --json json"),
            0)
      << out << err;
  const auto json = nlohmann::json::parse(folder.read("json"));
  EXPECT_EQ(json["notes"].size(), 0u) << out;
  ASSERT_EQ(json["rows"].size(), 6u);
  for (const auto& row : json["rows"]) {
    EXPECT_GT(row["ratio"], 0) << row;
    EXPECT_GT(row["of_limit"], 0) << row;
    EXPECT_EQ(row["memory"], "malloc");
  }
}

TEST_F(CompareCommand, GoesOnWithoutMissingPeers) {
  make_program("tutti_peer", "test $TUTTI_RANK = 0 && echo 64 1.5 && echo 1024 2.5 || true\n");
  ASSERT_EQ(compare(std::string("all_reduce ") + kQuick + "--programs ."), 0) << err;
  EXPECT_CONTAINS(out,
                  "openmpi is left out: it was not there when Tutti was built: apt install "
                  "openmpi-bin libopenmpi-dev");
  EXPECT_CONTAINS(out, "mpich is left out: ");
  EXPECT_CONTAINS(out, "apt install libgloo-dev");
  EXPECT_CONTAINS(out, "limit is left out: ");
  EXPECT_CONTAINS(out, " 64  1.500 ");
}

TEST_F(CompareCommand, GoesOnWithoutFailingPeers) {
  make_program("tutti_peer", "test $TUTTI_RANK = 0 && echo 64 1.5 && echo 1024 2.5 || true\n");
  make_program("limits", "echo 64 0.5; echo 1024 0.5\n");
  const auto with_gloo = [&](const char* script) {
    make_program("gloo_peer", script);
    return compare(std::string("all_reduce ") + kQuick + "--peers gloo --programs .");
  };
  ASSERT_EQ(with_gloo("echo no socket >&2; exit 3\n"), 0) << err;
  EXPECT_CONTAINS(out, "gloo is left out of all_reduce: gloo failed (exit status 3): no socket");
  EXPECT_CONTAINS(out, "1.500   0.04     -  0.500      -       33%");
  ASSERT_EQ(with_gloo("echo unsupported it cannot\n"), 0) << err;
  EXPECT_CONTAINS(out, "gloo is left out of all_reduce: not supported by this peer: it cannot");
  ASSERT_EQ(with_gloo("test $TUTTI_RANK = 1 || echo 64 1\n"), 0) << err;
  EXPECT_CONTAINS(out, "gloo has not measured 1024 bytes");
}

TEST_F(CompareCommand, FailsWithoutTutti) {
  EXPECT_EQ(compare(std::string("all_reduce ") + kQuick + "--programs ."), 1);
  EXPECT_CONTAINS(err, "Tutti's own program is missing");
  make_program("tutti_peer", "exit 7\n");
  EXPECT_EQ(compare(std::string("all_reduce ") + kQuick + "--programs ."), 1);
  EXPECT_CONTAINS(err, "tutti: tutti failed (exit status 7)");
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
