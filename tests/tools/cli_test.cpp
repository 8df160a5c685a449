// The `tutti` command but for run and compare: what it prints, where, and its exit status.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "collectives/model/machine.h"
#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class Cli : public TuttiCommand {};

TEST_F(Cli, PrintsHelpAndVersion) {
  EXPECT_EQ(tutti("--help"), 0);
  for (const char* command : {"plan", "run", "calibrate", "explain", "settings", "version"})
    EXPECT_CONTAINS(out, command);
  EXPECT_EQ(tutti("plan draw --help"), 0);
  EXPECT_CONTAINS(out, "--output");
  EXPECT_EQ(tutti("version"), 0);
  EXPECT_EQ(tutti("--version"), 0);
  EXPECT_EQ(out.rfind("tutti ", 0), 0u) << out;
}

TEST_F(Cli, ListsAlgorithms) {
  EXPECT_EQ(tutti("plan list"), 0);
  EXPECT_CONTAINS(out, "COLLECTIVE");
  EXPECT_CONTAINS(out, "all_reduce        ring ");
}

TEST_F(Cli, ShowsAPlanThatItReadsBack) {
  ASSERT_EQ(tutti("plan show all_reduce --algorithm ring --ranks 4 --lanes 2"), 0) << err;
  const std::string text = out;
  EXPECT_EQ(text.rfind("tutti plan 1\nall_reduce ring  ranks 4  ", 0), 0u) << text;
  folder.write("plan.txt", text);
  ASSERT_EQ(tutti("plan show --file plan.txt"), 0) << err;
  EXPECT_EQ(out, text);
  ASSERT_EQ(tutti("plan show --file - < plan.txt"), 0) << err;
  EXPECT_EQ(out, text);
}

TEST_F(Cli, ShowsOneRank) {
  ASSERT_EQ(tutti("plan show all_reduce --algorithm ring --ranks 1000 --rank 7"), 0) << err;
  EXPECT_CONTAINS(out, "\nrank 7\n");
  EXPECT_EQ(out.find("\nrank 8\n"), std::string::npos);
  EXPECT_EQ(tutti("plan show all_reduce --algorithm ring --ranks 4 --rank 4"), 2);
  EXPECT_EQ(err, "tutti: --rank 4 is not one of the ranks 0 to 3\n");
}

TEST_F(Cli, ProvesAPlan) {
  ASSERT_EQ(tutti("plan verify all_reduce --algorithm ring --ranks 4"), 0) << err;
  EXPECT_CONTAINS(out, "out of place  proved in ");
  EXPECT_CONTAINS(out, "in place      proved in ");
  EXPECT_CONTAINS(out, "ranks 0-3");
  EXPECT_EQ(out.find("differs"), std::string::npos) << out;
  EXPECT_EQ(err, "");
  ASSERT_EQ(tutti("plan verify all_reduce --algorithm ring --ranks 4 --in-place"), 0) << err;
  EXPECT_EQ(out.find("out of place"), std::string::npos) << out;
}

TEST_F(Cli, SaysHowOftenASumIsRounded) {
  ASSERT_EQ(tutti("plan list"), 0) << err;
  const auto row = [&](const std::string& begin) {
    const auto at = out.find("\n" + begin);
    return at == std::string::npos ? "" : out.substr(at + 1, out.find('\n', at + 1) - at - 1);
  };
  EXPECT_CONTAINS(row("all_reduce        ring "), " 15 ");
  EXPECT_CONTAINS(row("all_reduce        two_shot "), " 1 ");
  EXPECT_CONTAINS(row("reduce            tree "), " 4 ");
  EXPECT_CONTAINS(out, "with 16 ranks");
  ASSERT_EQ(tutti("plan verify all_reduce --algorithm ring --ranks 4"), 0) << err;
  EXPECT_CONTAINS(out, "a sum rounded 3 times");
  ASSERT_EQ(tutti("plan verify all_gather --algorithm ring --ranks 4"), 0) << err;
  EXPECT_EQ(out.find("rounded"), std::string::npos);
}

TEST_F(Cli, SaysWhoseBitsAreInvariant) {
  ASSERT_EQ(tutti("plan list"), 0) << err;
  EXPECT_CONTAINS(out, "all_reduce        two_shot               -        yes    1        yes ");
  EXPECT_CONTAINS(out, "all_reduce        ring                   -        yes    15       -  ");
  EXPECT_CONTAINS(out, "all_reduce        hierarchical_direct    inside   -      2        yes ");
  ASSERT_EQ(tutti("plan verify all_reduce -a two_shot -n 7 --invariant"), 0) << err;
  EXPECT_CONTAINS(out, "each result is the canonical expression");
  // Whatever the hosts: the ranks keep their numbers.
  ASSERT_EQ(tutti("plan verify all_reduce -a two_shot --hosts 2x2 --in-turn --invariant"), 0)
      << err;
  EXPECT_EQ(tutti("plan verify all_reduce -a ring -n 3 --invariant"), 1);
  EXPECT_CONTAINS(err,
                  "it is (in[0]@1 + in[0]@2) + in[0]@0, but the canonical expression is "
                  "(in[0]@0 + in[0]@1) + in[0]@2");
  // Of several hosts, those that store sums of hosts, in wide plans.
  ASSERT_EQ(tutti("plan verify all_reduce -a hierarchical_direct --hosts 2x2 --invariant"), 0)
      << err;
  EXPECT_CONTAINS(out, "the canonical expression of its inputs\n");
  EXPECT_CONTAINS(out, "a sum rounded 1 time,");
  EXPECT_CONTAINS(out, "between hosts, in chunks:");
  ASSERT_EQ(tutti("plan show all_reduce -a hierarchical_direct --hosts 2x2 --invariant"), 0) << err;
  std::string shown = out;
  folder.write("in_order.txt", shown);
  EXPECT_CONTAINS(out, "  wide\n");
  ASSERT_EQ(tutti("plan verify --file in_order.txt --invariant"), 0) << err;
  EXPECT_CONTAINS(out, "the canonical expression of its inputs\n");
  EXPECT_CONTAINS(out, "on a GPU      does not run: its partial sums travel as float32");
  // Without the word, what is stored is rounded.
  shown.replace(shown.find("  wide\n"), 6, "");
  folder.write("in_order.txt", shown);
  ASSERT_EQ(tutti("plan verify --file in_order.txt --invariant"), 0) << err;
  EXPECT_CONTAINS(out, ", for float32 and float64");
  ASSERT_EQ(tutti("explain all_reduce 16M float32 --hosts 2x4 --invariant"), 0) << err;
  EXPECT_CONTAINS(out, "* hierarchical_");
  ASSERT_EQ(tutti("explain all_reduce 16M bfloat16 --hosts 2x4 --invariant"), 0) << err;
  EXPECT_CONTAINS(out, "* hierarchical_");
  EXPECT_EQ(tutti("plan verify all_gather -a ring -n 3 --invariant"), 2);
  EXPECT_CONTAINS(err, "all_gather reduces nothing");
  ASSERT_EQ(tutti("explain all_reduce 16M -n 4 --memory malloc --invariant"), 0) << err;
  EXPECT_CONTAINS(out, "Only algorithms with invariant bits (--invariant)");
  EXPECT_EQ(out.find(" ring "), std::string::npos) << out;
}

TEST_F(Cli, TellsTheStoryOfAWrongPlan) {
  folder.write("wrong.txt",
               "tutti plan 1\nall_reduce mine  ranks 2  pieces 1  slots 1  lanes 1\n"
               "rank 0\n  lane 0\n    () <- from(1)\nrank 1\n  lane 0\n    () <- from(0)\n");
  EXPECT_EQ(tutti("plan verify --file wrong.txt"), 1);
  EXPECT_CONTAINS(out, "out of place  NOT PROVED");
  EXPECT_EQ(err.rfind("tutti: all_reduce mine on 2 ranks is not proved out of place: ", 0), 0u)
      << err;
  EXPECT_EQ(tutti("plan draw --file wrong.txt"), 0);  // a picture helps to see why
  EXPECT_CONTAINS(out, "Deadlock");
}

TEST_F(Cli, ProvesTheExampleInTheDocument) {
  std::ifstream file(TUTTI_DOCUMENTS "/plans.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  const auto begin = document.find("```\ntutti plan 1\n");
  ASSERT_NE(begin, std::string::npos);
  std::string plan = document.substr(begin + 4, document.find("```", begin + 4) - begin - 4);
  folder.write("plan.txt", plan);
  EXPECT_EQ(tutti("plan verify --file plan.txt"), 0) << err;
  // The document says that this is a deadlock.
  plan.replace(plan.find("slots 2"), 7, "slots 1");
  folder.write("plan.txt", plan);
  EXPECT_EQ(tutti("plan verify --file plan.txt"), 1);
  EXPECT_CONTAINS(err, "deadlock");
}

TEST_F(Cli, SaysWhatAPlanNeedsToRun) {
  folder.write(
      "plan.txt",
      "tutti plan 1\nbroadcast mine  ranks 2  root 0  pieces 2  slots 9  lanes 1  widest 7\n"
      "rank 0\n  lane 0\n    out[0:2], to(1).200 <- in[0:2]\n    to(1).100 <- ()\n"
      "rank 1\n  lane 0\n    out[0:2] <- from(0).200\n    () <- from(0).100\n");
  EXPECT_EQ(tutti("plan verify --file plan.txt"), 0) << err;
  EXPECT_CONTAINS(out, "2 links from a rank to another, of 1 slot of 128 bytes or more");
  EXPECT_EQ(out.find("on a GPU"), std::string::npos) << out;
  ASSERT_EQ(tutti("plan show all_reduce --algorithm ring --ranks 2 --lanes 255"), 0) << err;
  folder.write("plan.txt", out);
  EXPECT_EQ(tutti("plan verify --file plan.txt"), 0) << err;
  EXPECT_CONTAINS(out, "255 links from a rank to another");
  EXPECT_CONTAINS(out, "on a GPU      does not run: it has 255 links");
  ASSERT_EQ(tutti("plan show all_to_all_v --algorithm pairwise --ranks 3"), 0) << err;
  std::string plan = out;
  folder.write("plan.txt", plan);
  EXPECT_EQ(tutti("plan verify --file plan.txt"), 0) << err;
  // The lane that sends to rank 1 now has another block to move as well.
  const auto at = plan.find("  lane 1\n");
  const auto own = plan.find("    out[0] <- in[0]\n");
  ASSERT_LT(at, own);
  plan.erase(own, 20);
  plan.insert(at, "    out[0] <- in[0]\n");
  folder.write("plan.txt", plan);
  EXPECT_EQ(tutti("plan verify --file plan.txt"), 1);
  EXPECT_CONTAINS(err, "no communicator runs it: rank ");
  EXPECT_CONTAINS(err, "do not move the same blocks");
}

TEST_F(Cli, DrawsToAFile) {
  ASSERT_EQ(tutti("plan draw broadcast --algorithm chain --ranks 4 --root 2 -o chain.svg"), 0)
      << err;
  EXPECT_EQ(out, "");
  const std::string svg = folder.read("chain.svg");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_CONTAINS(svg, "rank 2 (root)");
  EXPECT_EQ(tutti("plan draw broadcast --algorithm chain --ranks 4 -o no/such/folder.svg"), 1);
  EXPECT_CONTAINS(err, "tutti: cannot write no/such/folder.svg");
}

/// Kilobytes that the largest program run so far has used. Not asked of a sanitizer's.
[[maybe_unused]] long most_memory() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return usage.ru_maxrss;
}

// What is asked of a large plan is answered without holding it, or refused before that is tried.
TEST_F(Cli, LargePlansTakeLittleMemory) {
  ASSERT_EQ(tutti("plan verify all_reduce --algorithm ring --ranks 1500"), 0) << err;
  EXPECT_CONTAINS(out, "ranks 0-1499");
  // The text is written as it is made; this goes where nothing can be written.
  EXPECT_EQ(tutti("plan show all_reduce --algorithm ring --ranks 20000 >/dev/full"), 1);
  EXPECT_CONTAINS(err, "tutti: cannot write the output: No space left on device");
  EXPECT_EQ(tutti("plan verify all_reduce --algorithm hierarchical_window --ranks 1000000"), 2);
  EXPECT_CONTAINS(err, "1000000 ranks has too many ranks to follow");
  EXPECT_EQ(tutti("plan verify all_reduce --algorithm ring --ranks 60000"), 2);
  EXPECT_EQ(err,
            "tutti: all_reduce ring on 60000 ranks moves 7199880000 chunks from rank to rank, too "
            "many to follow each one; a plan that moves at most 134217728 can be proved: ask for "
            "fewer ranks\n");
  EXPECT_EQ(tutti("plan draw all_reduce --algorithm ring --ranks 100000"), 2);
  EXPECT_CONTAINS(err, "tutti: all_reduce ring on 100000 ranks has too many steps for a picture: ");
  EXPECT_CONTAINS(err, "; draw one for fewer ranks");
  EXPECT_EQ(out, "");
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(most_memory(), 200'000);
#endif
}

TEST_F(Cli, BadUsageNamesTheChoices) {
  // Without a command, those that there are.
  EXPECT_EQ(tutti(""), 2);
  EXPECT_TRUE(err.starts_with("tutti: name a command\n")) << err;
  EXPECT_CONTAINS(err, "calibrate");
  EXPECT_EQ(err.find("run-agent"), std::string::npos);
  EXPECT_EQ(tutti("plan"), 2);
  EXPECT_CONTAINS(err, "tutti: name a command\n");
  EXPECT_CONTAINS(err, "verify");
  EXPECT_EQ(tutti("schedule"), 2);
  EXPECT_CONTAINS(err, "simulate");
  EXPECT_EQ(tutti("plans"), 2);
  const std::string plans = "tutti: there is no command 'plans' (did you mean 'plan'?)\n";
  EXPECT_EQ(err, plans + "tutti: see 'tutti --help'\n");
  EXPECT_EQ(tutti("plans --help"), 2);
  EXPECT_EQ(err, plans + "tutti: see 'tutti --help'\n");
  EXPECT_EQ(tutti("quxxx"), 2);
  EXPECT_EQ(err, "tutti: there is no command 'quxxx'\ntutti: see 'tutti --help'\n");
  EXPECT_EQ(tutti("plan shows all_reduce"), 2);
  EXPECT_EQ(err,
            "tutti: there is no command 'shows' (did you mean 'show'?)\n"
            "tutti: see 'tutti plan --help'\n");
  EXPECT_EQ(tutti("plan show all_reduce --algorithm ring --ranks zero"), 2);
  EXPECT_CONTAINS(err, "tutti: see 'tutti plan show --help'");
  EXPECT_EQ(tutti("plan show all_reduced --algorithm ring --ranks 2"), 2);
  EXPECT_CONTAINS(err,
                  "tutti: there is no collective 'all_reduced' (did you mean 'all_reduce'?); there "
                  "are all_reduce, ");
  EXPECT_EQ(tutti("plan show all_reduce --algorithm rings --ranks 2"), 2);
  EXPECT_CONTAINS(err, "tutti: all_reduce has no algorithm 'rings' (did you mean 'ring'?)");
  EXPECT_EQ(tutti("plan show all_reduce --algorithm recursive-doublng --ranks 2"), 2);
  EXPECT_CONTAINS(err, "did you mean 'recursive_doubling'?");
  EXPECT_EQ(tutti("explain allreduce 1M float32 -n 4"), 2);
  EXPECT_CONTAINS(err, "did you mean 'all_reduce'?");
  EXPECT_EQ(tutti("explain all_reduce 1M flot32 -n 4"), 2);
  EXPECT_CONTAINS(err, "did you mean 'float32'?");
  EXPECT_EQ(tutti("schedule simulate zbh1 --ranks 4 --micro-batches 4"), 2);
  EXPECT_CONTAINS(err, "did you mean 'zb-h1'?");
  EXPECT_EQ(tutti("plan show all_reduce --algoritm ring --ranks 2"), 2);
  EXPECT_CONTAINS(err, "there is no option '--algoritm' (did you mean '--algorithm'?)");
  EXPECT_EQ(tutti("plan show all_reduce --ranks 2"), 2);
  EXPECT_CONTAINS(err, "tutti: --algorithm is missing; for all_reduce there are: ");
  EXPECT_EQ(tutti("plan show all_reduce --algorithm ring"), 2);
  EXPECT_CONTAINS(err, "tutti: --ranks is missing");
  EXPECT_EQ(tutti("plan show"), 2);
  EXPECT_CONTAINS(err, "tutti: name a collective or a file");
  EXPECT_EQ(tutti("plan show all_reduce --algorithm ring --ranks 2 --root 1"), 2);
  EXPECT_CONTAINS(err, "has no root");
  EXPECT_EQ(tutti("plan show broadcast --algorithm chain --ranks 2 --root 2"), 2);
  EXPECT_CONTAINS(err, "--root 2 is not one of the ranks 0 to 1");
  EXPECT_EQ(tutti("plan show --file x --ranks 3"), 2);
  EXPECT_EQ(err, "tutti: --ranks does not go with --file, whose plan is complete\n");
  EXPECT_EQ(tutti("plan show --file no_such_file"), 2);
  EXPECT_CONTAINS(err, "tutti: cannot open no_such_file: No such file or directory");
  folder.write("broken.txt", "tutti plan 1\nall_reduce\n");
  EXPECT_EQ(tutti("plan show --file broken.txt"), 2);
  EXPECT_CONTAINS(err, "tutti: broken.txt: plan text, line 2: expected an algorithm's name");
  EXPECT_EQ(tutti("plan show --file ."), 2);  // a folder
  EXPECT_EQ(tutti("plan show --file /dev/zero"), 2);
  EXPECT_CONTAINS(err, "/dev/zero has more than 256 MiB");
}

TEST_F(Cli, TablesFitTheTerminal) {
  // A pseudo-terminal of 100 columns; its lines end in \r\n.
  const auto widest = [&](const std::string& command) {
    EXPECT_EQ(std::system(("cd '" + folder.path() +
                           "' && script -qec 'stty cols 100 && " TUTTI_COMMAND " " + command +
                           "' typescript >seen </dev/null")
                              .c_str()),
              0);
    std::istringstream seen(folder.read("seen"));
    std::size_t columns = 0, lines = 0;
    for (std::string line; std::getline(seen, line); ++lines) {
      columns = std::max(columns, line.size() - (line.ends_with('\r') ? 1 : 0));
    }
    EXPECT_GT(lines, 10U);
    return columns;
  };
  EXPECT_LE(widest("plan list"), 100U);
  EXPECT_LE(widest("explain --constants"), 100U);
#ifdef TUTTI_LABORATORY
  EXPECT_LE(widest("predict --constants"), 100U);
#endif
  // Programs that read it get whole lines.
  ASSERT_EQ(tutti("plan list"), 0);
  EXPECT_CONTAINS(out, "Reduce to a leader of each group, all_reduce among leaders, broadcast");
}

TEST_F(Cli, ExplainHasColumnsBelowEachOther) {
  ASSERT_EQ(tutti("explain all_reduce 1M float32 --hosts 2x4"), 0) << err;
  std::istringstream lines(out.substr(out.find("  ALGORITHM")));
  std::string line;
  std::getline(lines, line);
  const std::size_t end = line.find("PREDICTED") + 9;
  std::size_t rows = 0;
  for (; std::getline(lines, line) && !line.empty(); ++rows) {
    const std::string unit = line.substr(end - 2, 3);
    EXPECT_TRUE(unit == "us " || unit == "ms ") << line;
  }
  EXPECT_GT(rows, 5U);
  EXPECT_CONTAINS(out, "hierarchical_pipelined");
}

TEST_F(Cli, ExplainsWhatWouldRun) {
  ASSERT_EQ(tutti("explain all_reduce 1M float32 -n 4 --cores 4 --machine defaults"), 0) << err;
  EXPECT_EQ(out.rfind("all_reduce of 1 MiB (float32), 4 ranks, on 4 cores", 0), 0u);
  EXPECT_CONTAINS(out, "constants: defaults");
  EXPECT_CONTAINS(out, "\n* two_shot_window ");
  EXPECT_CONTAINS(out, "\n  ring ");
  ASSERT_EQ(tutti("explain all_reduce 1M -n 4 --memory malloc --machine defaults"), 0) << err;
  EXPECT_EQ(out.find("* two_shot_window"), std::string::npos) << out;
  EXPECT_CONTAINS(out, "*_window: by copies of the kernel (TUTTI_CMA)");
  ASSERT_EQ(tutti("explain all_reduce 8 -n 1000 --cores 1000 --machine defaults"), 0) << err;
  EXPECT_CONTAINS(out, "a closed form instead of a simulation");
  ASSERT_EQ(tutti("explain all_reduce 64K -n 8 --machine gpu"), 0) << err;
  EXPECT_EQ(out.rfind("all_reduce of 64 KiB (float32), 8 ranks, on GPUs", 0), 0u) << out;
  EXPECT_CONTAINS(out, "\n* one_shot ");
  ASSERT_EQ(tutti("explain all_reduce 64K -n 16 --cores 16 --domains 4 --machine defaults"), 0);
  EXPECT_CONTAINS(out, "on 16 cores with 4 last-level caches");
  EXPECT_CONTAINS(out, "\n* hierarchical_");
  ASSERT_EQ(tutti("explain all_reduce 16M bfloat16 -n 4 --compressed --machine defaults"), 0)
      << err;
  EXPECT_CONTAINS(out, "\n* two_shot_compressed ");
  EXPECT_CONTAINS(out, "of 64 bytes, 33 travel");
  EXPECT_EQ(out.find(" ring "), std::string::npos) << out;
  ASSERT_EQ(tutti("explain reduce_scatter 16M float32 -n 4 --compressed --machine defaults"), 0);
  EXPECT_CONTAINS(out, "\n* direct_compressed ");
  EXPECT_CONTAINS(out, "of 64 bytes, 17 travel");
  ASSERT_EQ(tutti("explain barrier -n 3 --machine defaults"), 0) << err;
  EXPECT_CONTAINS(out, "* dissemination");
  ASSERT_EQ(tutti("explain --constants --machine defaults"), 0) << err;
  EXPECT_CONTAINS(out, "latency_ns");
}

TEST_F(Cli, ExplainRefusesWhatMakesNoSense) {
  EXPECT_EQ(tutti("explain"), 2);
  EXPECT_CONTAINS(err, "tutti: name a collective and a size, as in 'tutti explain all_reduce 1M");
  EXPECT_EQ(tutti("explain all_gather --compressed"), 2);
  EXPECT_CONTAINS(err, "--compressed is for all_reduce and reduce_scatter, not for all_gather");
  EXPECT_EQ(tutti("explain all_reduce 1M float64 --compressed"), 2);
  EXPECT_CONTAINS(err, "--compressed is for float16, bfloat16 and float32, not for float64");
  EXPECT_EQ(tutti("explain all_reduce 1M --compressed --invariant"), 2);
  EXPECT_CONTAINS(err, "such a sum is approximate");
  EXPECT_EQ(tutti("explain all_reduced"), 2);
  EXPECT_CONTAINS(err,
                  "there is no collective 'all_reduced' (did you mean 'all_reduce'?); there are ");
  EXPECT_EQ(tutti("explain all_reduce 1X"), 2);
  EXPECT_CONTAINS(err, "\"1X\" is not a size");
  EXPECT_EQ(tutti("explain all_reduce 1M float31"), 2);
  EXPECT_CONTAINS(err,
                  "there is no data type 'float31' (did you mean 'float32'?); there are int8, ");
  EXPECT_EQ(tutti("explain all_reduce 1M -n 0"), 2);
  EXPECT_EQ(tutti("explain all_reduce 1M --memory stack"), 2);
  EXPECT_EQ(tutti("explain all_reduce 1M -n 8 --cores 2 --domains 4"), 2);
  EXPECT_CONTAINS(err, "8 ranks on 2 cores cannot share 4 last-level caches (--cores)");
  EXPECT_EQ(tutti("explain all_reduce 1M --machine no_such_file"), 1);
  EXPECT_CONTAINS(err, "cannot read no_such_file: No such file or directory");
  folder.write("garbage", "latency_ns: 3\n");
  EXPECT_EQ(tutti("explain all_reduce 1M --machine garbage"), 2);
  EXPECT_CONTAINS(err, "tutti: garbage: line 1: expected NAME = VALUE");
}

TEST_F(Cli, ChecksPlansAgainstTheirHosts) {
  ASSERT_EQ(tutti("plan verify all_reduce -a hierarchical_direct --hosts 2x2"), 0) << err;
  EXPECT_CONTAINS(out, "between hosts, in chunks:");
  EXPECT_CONTAINS(out, "host 1                   4         4");
  ASSERT_EQ(tutti("plan show broadcast -a hierarchical_chain --hosts 3,1 --in-turn --root 1"), 0);
  folder.write("plan.txt", out);
  EXPECT_EQ(tutti("plan verify --file plan.txt --hosts 3,1 --in-turn"), 0) << err;
  EXPECT_EQ(tutti("plan verify --file plan.txt --hosts 2x2"), 1);
  EXPECT_CONTAINS(err, "does not run on these hosts: rank 0 on host 0 addresses ");
  EXPECT_EQ(tutti("plan verify all_reduce -a two_shot_window --hosts 2x2"), 1);
  EXPECT_CONTAINS(err, "rank 0 on host 0 addresses out[0]@2, but rank 2 is on host 1");
  ASSERT_EQ(tutti("plan draw all_gather -a ring --hosts 2x2 --in-turn"), 0) << err;
  EXPECT_EQ(tutti("plan show all_reduce -a ring --hosts 2x2 --ranks 5"), 2);
  EXPECT_CONTAINS(err, "--hosts 2x2 has 4 ranks, but --ranks says 5");
  for (const char* hosts : {"2", "2x", "x2", "0x2", "2x2x2", "2,0", ",", "2000x2000"}) {
    const int status = tutti(fmt::format("plan show all_reduce -a ring --hosts {}", hosts));
    EXPECT_EQ(status, std::string(hosts) == "2" ? 0 : 2) << hosts << err;
  }
  EXPECT_EQ(tutti("plan show all_reduce -a ring --ranks 4 --in-turn"), 2);
  EXPECT_CONTAINS(err, "say which hosts with --hosts");
}

TEST_F(Cli, ExplainsWhatWouldRunOnSeveralHosts) {
  ASSERT_EQ(tutti("explain all_reduce 16M --hosts 2x2 --cores 2 --machine defaults"), 0) << err;
  EXPECT_EQ(out.rfind("all_reduce of 16 MiB (float32), 4 ranks, 2 hosts, on 2 cores each", 0), 0u);
  EXPECT_CONTAINS(out, "\n* hierarchical_");
  EXPECT_EQ(out.find("two_shot_window"), std::string::npos) << out;
  EXPECT_CONTAINS(out, "BY A HOST");
  ASSERT_EQ(tutti("explain all_gather 1M --hosts 4,2 --memory malloc --machine defaults"), 0);
  ASSERT_EQ(tutti("explain all_reduce 1M --hosts 100x8 --cores 8 --machine defaults"), 0) << err;
  ASSERT_EQ(tutti("explain all_reduce 1M --hosts 2x8 --machine gpu"), 0) << err;
  EXPECT_EQ(tutti("explain all_reduce 1M --hosts 2x2 --cores 2 --domains 3"), 2);
  EXPECT_CONTAINS(err, "2 ranks on 2 cores cannot share 3 last-level caches");
}

TEST_F(Cli, CalibratesToAFileThatExplainReads) {
  ASSERT_EQ(tutti("calibrate --rounds 1 --output machine.txt"), 0) << err;
  EXPECT_CONTAINS(out, "latency_ns");
  EXPECT_CONTAINS(out, "written to machine.txt");
  ASSERT_EQ(tutti("explain all_reduce 1M --machine machine.txt"), 0) << err;
  EXPECT_CONTAINS(out, "constants: machine.txt: ");
  EXPECT_EQ(tutti("calibrate --rounds 1 --output /proc/no/machine.txt"), 1);
  EXPECT_CONTAINS(err, "tutti: cannot write /proc/no/machine.txt");
  EXPECT_EQ(tutti("calibrate --rounds 0"), 2);
}

/// The constant `name` in the text of a file.
double constant(const std::string& file, const std::string& name) {
  const auto at = file.find("\n" + name + " = ");
  return at == std::string::npos ? -1 : std::strtod(file.c_str() + at + name.size() + 4, nullptr);
}

TEST_F(Cli, CalibrateSaysThatTheMachineWasBusy) {
  ASSERT_EQ(tutti("calibrate --rounds 1 --output machine.txt & main=$!; while :; do :; done & "
                  "wait $main; status=$?; kill $!; exit $status"),
            0)
      << err;
  EXPECT_CONTAINS(err,
                  "tutti: warning: this machine was not idle, so the constants may be wrong; other "
                  "processes used ");
  EXPECT_CONTAINS(err, "Calibrate again when nothing else runs");
  EXPECT_CONTAINS(out, "written to machine.txt");
}

TEST_F(Cli, CalibratesTheNetworkBetweenHosts) {
  ASSERT_EQ(tutti("run -n 2 -- sh -c 'TUTTI_HOST_ID=h$TUTTI_RANK exec " TUTTI_COMMAND
                  " calibrate --rounds 1 --output machine.txt'"),
            0)
      << err;
  EXPECT_CONTAINS(out, "Between hosts (tcp): ");
  EXPECT_CONTAINS(out, "GB/s by 1 at once.");
  EXPECT_CONTAINS(out, "written to machine.txt");
  ASSERT_EQ(tutti("explain all_reduce 1M --hosts 2x2 --machine machine.txt"), 0) << err;
  const std::string file = folder.read("machine.txt");
  const Machine defaults = default_machine();
  for (const MachineConstant& c : machine_constants()) {
    if (!c.name.starts_with("net_")) continue;
    const double measured = constant(file, std::string(c.name));
    EXPECT_GT(measured, 0) << c.name;
    // Nobody measures a guess to all its digits.
    EXPECT_NE(measured, defaults.*c.value) << c.name;
  }
}

TEST_F(Cli, CalibratesOnceForAllRanksOfAHost) {
  ASSERT_EQ(tutti("run -n 2 -- " TUTTI_COMMAND " calibrate --rounds 1 --output machine.txt"), 0)
      << err;
  EXPECT_CONTAINS(out, "The 2 ranks are all on this host: the network was not measured.");
  EXPECT_EQ(constant(folder.read("machine.txt"), "net_wire"), default_machine().net_wire);
}

TEST_F(Cli, PrintsTheSettings) {
  ASSERT_EQ(tutti("settings"), 0) << err;
  EXPECT_CONTAINS(out, "TUTTI_");
  ASSERT_EQ(tutti("settings --markdown"), 0) << err;
  EXPECT_EQ(out.rfind("#", 0), 0u) << out.substr(0, 80);
}

TEST_F(Cli, SaysThatItsOutputIsLost) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(tutti("plan list >/dev/full"), 1);
  EXPECT_EQ(err.rfind("tutti: cannot write ", 0), 0u) << err;
  EXPECT_EQ(err.find('\n'), err.size() - 1) << err;
}

}  // namespace
}  // namespace tutti
