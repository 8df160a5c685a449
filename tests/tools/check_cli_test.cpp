// `tutti check` with real ranks: what it says of them, as text, as JSON, and by its exit status.
#include <nlohmann/json.hpp>

#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

// How busy the machine of a test is nobody knows, so that here nearly everything is fine.
constexpr const char* kGenerous = " -b 64K -e 1M --iterations 5 --band 10000 --timeout 60";

class CheckCommand : public TuttiCommand {
 protected:
  /// A program that runs all_reduce_perf, and stops rank 1 for most of the time.
  void make_slow_program() {
    folder.write("slow.sh", R"(#!/bin/sh
perf="$(dirname ')" TUTTI_COMMAND R"(')/all_reduce_perf"
[ "$TUTTI_RANK" = 1 ] || exec "$perf" "$@"
"$perf" "$@" &
pid=$!
for turn in $(seq 1 400); do
  readlink /proc/$pid/exe >/dev/null || break
  kill -STOP $pid; sleep 0.04; kill -CONT $pid; sleep 0.004
done
wait $pid
)");
    ASSERT_EQ(shell("chmod +x slow.sh"), 0);
  }
};

TEST_F(CheckCommand, SaysWhatIsExpected) {
  ASSERT_EQ(tutti(std::string("check -n 2") + kGenerous), 0) << err;
  EXPECT_TRUE(out.starts_with("fine: all sizes are within 10000 times")) << out;
  EXPECT_NE(out.find("all_reduce of 2 ranks on 1 host"), std::string::npos) << out;
}

TEST_F(CheckCommand, SpeaksJson) {
  ASSERT_EQ(tutti(std::string("check all_gather -n 3 --json --log log") + kGenerous), 0) << err;
  const auto j = nlohmann::json::parse(out);
  EXPECT_EQ(j["verdict"], "fine");
  EXPECT_EQ(j["collective"], "all_gather");
  EXPECT_EQ(j["ranks"], 3);
  ASSERT_EQ(j["sizes"].size(), 5U);
  for (const auto& size : j["sizes"]) {
    EXPECT_GT(size["measured_us"], 0);
    EXPECT_GT(size["expected_us"], 0);
  }
  EXPECT_TRUE(j["causes"].empty());
  EXPECT_NE(folder.read("log").find("busbw"), std::string::npos);
}

TEST_F(CheckCommand, FindsASlowRank) {
  make_slow_program();
  EXPECT_EQ(tutti("check -n 2 -b 64K -e 128K --iterations 5000 --band 3 --program ./slow.sh"), 1)
      << out << err;
  EXPECT_TRUE(out.starts_with("slow: ")) << out;
  EXPECT_NE(out.find("one rank that is slow holds up all"), std::string::npos) << out;
}

#ifdef TUTTI_LABORATORY
TEST_F(CheckCommand, GivesOutputThatNamesGpusToPredict) {
  folder.write("gpus.sh",
               "#!/bin/sh\ncat <<'TABLE'\n"
               "# nThread 1 nGpus 8 minBytes 8\n"
               "#  Rank  7 Group 0 Pid 11 on a device 7 [0x8f] NVIDIA A100-SXM4-80GB\n"
               " 1073741824  268435456  float  sum  -1  93369  11.50  20.12  0\n"
               "TABLE\n");
  ASSERT_EQ(shell("chmod +x gpus.sh"), 0);
  EXPECT_EQ(tutti("check -g 8 --program ./gpus.sh"), 1) << err;
  EXPECT_TRUE(out.starts_with("slow: 1 GiB 20 GB/s where ")) << out;
  EXPECT_EQ(tutti("check -g 8 --json --program ./gpus.sh"), 1) << err;
  EXPECT_EQ(nlohmann::json::parse(out)["ranks"], 8);
}
#endif

TEST_F(CheckCommand, HasNoVerdictWithoutATable) {
  EXPECT_EQ(tutti("check --program /bin/true"), 3);
  EXPECT_NE(err.find("printed no table"), std::string::npos) << err;
  EXPECT_EQ(tutti("check --program /bin/false"), 3);
  EXPECT_NE(err.find("ended with"), std::string::npos) << err;
  folder.write("sleep.sh", "#!/bin/sh\nexec sleep 30\n");
  ASSERT_EQ(shell("chmod +x sleep.sh"), 0);
  EXPECT_EQ(tutti("check --program ./sleep.sh --timeout 1"), 3);
  EXPECT_NE(err.find("took more than 1 s"), std::string::npos) << err;
}

TEST_F(CheckCommand, RefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(tutti("check all_redcue"), 2);
  EXPECT_EQ(tutti("check -H node1:0"), 2);
  EXPECT_NE(err.find("'node1:0' is not HOST or HOST:RANKS"), std::string::npos) << err;
  EXPECT_EQ(tutti("check -n 2 --gpus 4"), 2);
}

}  // namespace
}  // namespace tutti
