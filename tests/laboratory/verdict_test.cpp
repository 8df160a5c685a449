// What is judged fine, slow and no verdict, by rows made for it, and how it is said.
#include "laboratory/predict/verdict.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "laboratory/predict/verdict_report.h"

namespace tutti {
namespace {

constexpr double kMiB = 1 << 20;

/// From 1 MiB on, each twice the last: these multiples of the expected time. 0.8 to 1.5 are fine.
std::vector<JudgedRow> rows_of(const std::vector<double>& ratios, bool known = true) {
  std::vector<JudgedRow> rows;
  double bytes = kMiB;
  for (const double ratio : ratios) {
    const double us = bytes / 100'000;  // 100 GB/s
    rows.push_back({bytes, us * ratio, us, {0.8, 1.5, known ? 3 : 0, known ? 12 : 0}, known});
    bytes *= 2;
  }
  return rows;
}

SpeedVerdict judged(const std::vector<double>& ratios) { return judge(rows_of(ratios), ""); }

TEST(SpeedVerdict, IsOfSeveralSizes) {
  EXPECT_EQ(judged({1, 1.2, 0.9, 1.4}).outcome, Outcome::fine);
  // One or two sizes a little beyond the band are what one row in ten is.
  EXPECT_EQ(judged({1, 1.6, 1, 1, 1.7, 1.6, 1}).outcome, Outcome::fine);
  EXPECT_EQ(judged({1, 1, 1, 1.6, 1.7, 1.6, 1}).outcome, Outcome::slow);
  // Two, twice as slow as all doubt.
  EXPECT_EQ(judged({1, 1, 1, 1, 3.2, 3.3}).outcome, Outcome::slow);
  // Most of a short log.
  EXPECT_EQ(judged({1.6}).outcome, Outcome::slow);
  EXPECT_EQ(judged({1.6, 1.7}).outcome, Outcome::slow);
  EXPECT_EQ(judged({0.5, 0.6, 0.7}).outcome, Outcome::fast);
  // Twice as fast as the fastest is another machine than was taken.
  EXPECT_EQ(judged({0.1, 0.1, 0.1}).outcome, Outcome::none);
  EXPECT_NE(judged({0.1, 0.1, 0.1}).depends_on, "");
  // Faster here and as expected there is fine.
  EXPECT_EQ(judged({0.5, 0.6, 0.7, 1}).outcome, Outcome::fine);
  EXPECT_EQ(judged({}).outcome, Outcome::none);
}

TEST(SpeedVerdict, SaysHowSlowWhateverTheDoubt) {
  const SpeedVerdict v = judged({1, 1, 3, 6, 9});
  ASSERT_NE(v.worst(), nullptr);
  EXPECT_DOUBLE_EQ(v.worst()->middle().ratio(), 6);
  EXPECT_DOUBLE_EQ(v.worst()->at_least(), 4);
  VerdictReport report;
  report.verdict = v;
  report.ranks = 8;
  // 100 GB/s of data are a busbw of 175.
  EXPECT_EQ(first_line(report),
            "slow: from 4 MiB on 29 GB/s where 175 GB/s are expected (6 times slower); at least 4 "
            "times whatever the doubt");
  EXPECT_EQ(exit_status(v), 1);
  report.verdict = judged({1, 1.2, 0.9});
  EXPECT_EQ(first_line(report),
            "fine: 3 of 3 sizes from 1 MiB to 4 MiB take 0.9 to 1.2 times the expected time");
  EXPECT_EQ(exit_status(report.verdict), 0);
}

TEST(SpeedVerdict, OfOneSizeIsTheMiddleOfItsRows) {
  std::vector<JudgedRow> rows;
  for (const double ratio : {1.0, 9.0, 1.1}) rows.push_back(rows_of({ratio}).front());
  const SpeedVerdict v = judge(rows, "");
  EXPECT_EQ(v.outcome, Outcome::fine);
  ASSERT_EQ(v.spans.size(), 1U);
  EXPECT_DOUBLE_EQ(v.spans[0].rows[0].ratio(), 1.1);
}

TEST(SpeedVerdict, CallsThatTakeLongerThanLargerOnesAreStalls) {
  // A first row without a warm-up is no verdict; three stalls are.
  EXPECT_EQ(judged({90, 1, 1, 1}).outcome, Outcome::fine);
  EXPECT_EQ(judged({90, 1, 1, 1}).stalls.size(), 1U);
  const SpeedVerdict v = judged({1, 90, 1, 80, 70, 1, 1, 1, 1});
  EXPECT_EQ(v.stalls.size(), 3U);
  EXPECT_EQ(v.outcome, Outcome::slow);
  VerdictReport report;
  report.verdict = v;
  EXPECT_TRUE(first_line(report).starts_with("slow: 3 sizes take much longer than larger ones do"))
      << first_line(report);
}

TEST(SpeedVerdict, IsNoneWhereNothingIsKnown) {
  EXPECT_EQ(judge(rows_of({1, 1, 1}, false), "").outcome, Outcome::none);
  EXPECT_EQ(exit_status(judge(rows_of({1, 1, 1}, false), "")), 3);
  // What no doubt explains is slow nevertheless.
  EXPECT_EQ(judge(rows_of({9, 9, 9}, false), "").outcome, Outcome::slow);
  // A network that nobody named explains what is slow, and need not explain what is fine.
  const SpeedVerdict v = judge(rows_of({9, 9, 9}), "say which network it is");
  EXPECT_EQ(v.outcome, Outcome::none);
  EXPECT_EQ(v.depends_on, "say which network it is");
  EXPECT_EQ(judge(rows_of({1, 1, 1}), "say which network it is").outcome, Outcome::fine);
}

TEST(SpeedVerdict, IsJson) {
  VerdictReport report;
  report.verdict = judged({1, 1, 3, 6, 9});
  report.source = "a\xff.log";
  report.causes = {{"one_port", "1 of 8 ports", "ibstat", 1.1}};
  report.guessed = {"2 hosts, by the log's name"};
  const auto j = nlohmann::json::parse(json_of({report}));
  EXPECT_EQ(j["verdict"], "slow");
  EXPECT_EQ(j["line"], first_line(report));
  EXPECT_EQ(j["at_least"], 4);
  EXPECT_EQ(j["spans"].size(), 2U);
  EXPECT_EQ(j["spans"][1]["rows"].size(), 3U);
  EXPECT_EQ(j["causes"][0]["id"], "one_port");
  EXPECT_EQ(j["guessed"].size(), 1U);
}

TEST(SpeedVerdict, OfSeveralTablesIsTheWorst) {
  VerdictReport fine, slow, none;
  fine.verdict = judged({1, 1.2, 0.9});
  slow.verdict = judged({1, 1, 3, 6, 9});
  slow.collective = Collective::all_to_all;
  slow.ranks = 16;
  slow.hosts = 2;
  none.refused = "hypercube is no collective that is predicted";
  EXPECT_EQ(exit_status(std::vector{fine, fine}), 0);
  EXPECT_EQ(exit_status(std::vector{fine, none}), 3);
  EXPECT_EQ(exit_status(std::vector{fine, slow, none}), 1);
  const std::string text = summary_of({fine, slow, none});
  EXPECT_TRUE(text.starts_with("slow: 1 of 3 tables\n  1. all_reduce of 1 rank on 1 host: fine: "))
      << text;
  EXPECT_NE(text.find("\n  2. all_to_all of 16 ranks on 2 hosts: slow: from 4 MiB on"), text.npos)
      << text;
  EXPECT_NE(text.find("no verdict: hypercube is no collective that is predicted\n"), text.npos);
  const auto j = nlohmann::json::parse(json_of({fine, slow, none}));
  EXPECT_EQ(j["verdict"], "slow");
  EXPECT_EQ(j["line"], "slow: 1 of 3 tables");
  ASSERT_EQ(j["tables"].size(), 3U);
  EXPECT_EQ(j["tables"][1]["collective"], "all_to_all");
  EXPECT_EQ(j["tables"][2]["verdict"], "none");
}

TEST(Evidence, IsOfEachKindAndSize) {
  for (int kind = 0; kind <= static_cast<int>(CallKind::unmeasured); ++kind) {
    for (double bytes = 1; bytes < 1e13; bytes *= 3) {
      const auto k = static_cast<CallKind>(kind);
      EXPECT_GT(ramp(k, bytes), 0.8) << name(k) << " " << bytes;
      EXPECT_LT(ramp(k, bytes), 2) << name(k) << " " << bytes;
      const Band band = band_of(k, bytes);
      EXPECT_LT(band.low, 1.1) << name(k) << " " << bytes;
      EXPECT_GT(band.high, 1.1) << name(k) << " " << bytes;
      // The doubt about what nobody measured is the largest.
      EXPECT_LE(band_of(CallKind::unmeasured, bytes).low, band.low);
      EXPECT_GE(band_of(CallKind::unmeasured, bytes).high, band.high);
    }
  }
}

}  // namespace
}  // namespace tutti
