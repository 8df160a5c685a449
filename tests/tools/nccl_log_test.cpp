// What nccl-tests prints, in its dialects: made-up samples of each trap, and the real logs where
// they are at hand (tests/topology/topology_data.h).
#include "tools/cluster/nccl_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/topology/topology_data.h"

namespace tutti {
namespace {

NcclLog parsed(const std::string& text, const std::string& name = "log") {
  return parse_nccl_log(text, name);
}

TEST(NcclLog, ReadsTheUsualTable) {
  const NcclLog log = parsed(
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 64\n"
      "#\n# Using devices\n"
      "#  Rank  0 Group  0 Pid  11 on node-a device  0 [0000:8f:00] NVIDIA B200\n"
      "#  Rank  1 Group  0 Pid  12 on node-b device  1 [0000:90:00] NVIDIA B200\n"
      "#\n"
      "#       size  count  type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
      "     1048576  262144 float  sum  -1  100.0 10.49 10.49  0  99.0 10.59 10.59 0\n"
      "     2097152  524288 float  sum  -1  150.5 13.93 13.93  0  99.0 21.18 21.18 0\n"
      "# Out of bounds values : 0 OK\n",
      "all_reduce.log");
  ASSERT_EQ(log.rows.size(), 2U);
  EXPECT_EQ(log.rows[1].bytes, 2097152);
  EXPECT_EQ(log.rows[1].us, 150.5);
  EXPECT_EQ(log.rows[1].busbw, 13.93);
  EXPECT_EQ(log.rows[1].line, 9);
  EXPECT_EQ(log.ranks, 2);
  EXPECT_EQ(log.hosts, 2);
  EXPECT_EQ(log.gpu, "NVIDIA B200");
  EXPECT_EQ(log.collective, Collective::all_reduce);
  EXPECT_EQ(log.left_out, 0);
}

TEST(NcclLog, ReadsSizesAsPeopleWriteThem) {
  const NcclLog log = parsed(
      "     1M  256K float  sum  -1  100.0 10.49 10.49  0  99.0 10.59 10.59 0\n"
      "     1,048,576  262,144 float  sum  -1  100.0 10.49 10.49  0  99.0 10.59 10.59 0\n"
      "     1.5MiB  384K float  sum  -1  1,572.864 1.00 1.00  0  99.0 10.59 10.59 0\n"
      "     2GB  512M float  sum  -1  21,474.84 100.00 100.00  0  99.0 10.59 10.59 0\n"
      "     4096  2048 bf16  sum  -1  10.0 0.41 0.41  0  99.0 10.59 10.59 0\n");
  ASSERT_EQ(log.rows.size(), 5U);
  const std::int64_t bytes[] = {1 << 20, 1 << 20, 3 << 19, std::int64_t{2} << 30, 4096};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(log.rows[i].bytes, bytes[i]);
  EXPECT_EQ(log.rows[2].us, 1572.864);
  EXPECT_EQ(log.rows[4].type, "bf16");
  EXPECT_EQ(log.left_out, 0);
}

TEST(NcclLog, CountsRowsWhoseSizesFitNothing) {
  // 1M of a million: the times do not fit a MiB.
  const NcclLog log = parsed(
      "     1M  250K float  sum  -1  100.0 10.00 10.00  0  99.0 10.59 10.59 0\n"
      "     2097152  524288 float  sum  -1  150.5 13.93 13.93  0  99.0 21.18 21.18 0\n");
  EXPECT_EQ(log.rows.size(), 1U);
  EXPECT_EQ(log.left_out, 1);
  for (const char* const none : {"1,04,8576", "1,048,57", ",048,576", "1048,576", "1..5M", "1X"}) {
    const NcclLog bad =
        parsed(none + std::string(" 262144 float sum -1  100.0 10.49 10.49 0 99.0 1 1 0\n"));
    EXPECT_TRUE(bad.rows.empty()) << none;
  }
}

TEST(NcclLog, ReadsPrefixesAndOldAndBlankColumns) {
  // A launcher's prefix, with a time and without; no root; N/A; no operator; four dots for rows.
  const NcclLog log = parsed(
      "   [1,0]<stdout>:      4096   1024   float  sum  -1   16.00  0.26  0.45  0  16.0 0.26 0.45 "
      "0\n"
      "2024-01-01 10:00:00 [1,12]<stdout>: 8192 2048 float sum -1 20.00 0.41 0.72 N/A\n"
      "     16384   4096   float   sum    25.00  0.66  1.15   0e+00   24.0 0.68 1.19 0e+00\n"
      "     32768   8192   float          40.00  0.82  1.43   N/A\n"
      "     65536  16384   half   none   0   50.00  1.31  2.29   N/A  N/A N/A N/A N/A\n"
      "        ...\n"
      "         0      0   float   sum  -1    0.30  0.00  0.00   0\n");
  ASSERT_EQ(log.rows.size(), 5U);
  const double us[] = {16, 20, 25, 40, 50};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(log.rows[i].us, us[i]);
  EXPECT_EQ(log.rows[4].type, "half");
  EXPECT_EQ(log.left_out, 0);
}

TEST(NcclLog, JoinsRowsThatWereInterruptedOnlyWhereTheyFit) {
  // Something else is printed into a row: its times come later, if they fit the size.
  const NcclLog log = parsed(
      " 8388608  2097152  float  sum  -1host:1:1 [0] NCCL INFO AllReduce\n"
      "host:1:1 [0] NCCL INFO count 2097152\n"
      "   80.98  103.59  103.59      0host:1:1 [0] NCCL INFO\n"
      " 16777216  4194304  float  sum  -1host:1:1 [0] NCCL INFO AllReduce\n"
      "   80.98  103.59  103.59      0\n"
      " 33554432  8388608  float  sum  -1   100.0  335.54  335.54  0\n");
  ASSERT_EQ(log.rows.size(), 2U);
  EXPECT_EQ(log.rows[0].bytes, 8388608);
  EXPECT_EQ(log.rows[0].us, 80.98);
  EXPECT_EQ(log.rows[1].bytes, 33554432);
  EXPECT_EQ(log.left_out, 1);
}

TEST(NcclLog, ReadsWhatLaunchersAndTerminalsAdd) {
  const std::string header = "#  Rank  0 Group 0 Pid 11 on node-a device 0 [0x8f] NVIDIA B200";
  const std::string row = "  1048576  262144  float  sum  -1  100.0 10.49 10.49  0";
  for (const std::string prefix :
       {"0: ", "node001: ", "2025-01-05T10:11:12.123456Z stdout F ", "[0] ", "launcher-xyz  | ",
        "[2025-01-05 10:11:12] ", "[1,0]<stdout>:", "Tue Mar 12 11:00:01 2024[1,0]<stdout>:",
        "\x1b[36mlauncher-0\x1b[0m \x1b[1;32m| "}) {
    const NcclLog log = parsed(prefix + header + "\x1b[0m\r\n" + prefix + row + "\x1b[0m\r\n");
    ASSERT_EQ(log.rows.size(), 1U) << prefix;
    EXPECT_EQ(log.rows[0].us, 100) << prefix;
    EXPECT_EQ(log.gpu, "NVIDIA B200") << prefix;
    EXPECT_EQ(log.hosts, 1) << prefix;
  }
  // In two halves, each with the prefix.
  const NcclLog halves = parsed("0:  8388608 2097152 float sum -1\n0: 80.98 103.59 103.59 0\n");
  ASSERT_EQ(halves.rows.size(), 1U);
  EXPECT_EQ(halves.rows[0].us, 80.98);
}

TEST(NcclLog, OnePortOfEthernetBesideInfiniBandIsForStorage) {
  const std::string row = " 1073741824 268435456 float sum -1 3108.8 345.38 681.17 0\n";
  const auto network = [&](const std::string& ports) {
    return parsed("a:1:2 [0] NCCL INFO NET/IB : Using " + ports +
                  " [RO]; OOB eth0:10.0.0.1<0>\na:1:2 [0] NCCL INFO Using network IB\n" + row)
        .debug.network;
  };
  EXPECT_EQ(network("[0]mlx5_0:1/RoCE [1]mlx5_2:1/IB [2]mlx5_3:1/IB"), "ib");
  EXPECT_EQ(network("[0]mlx5_0:1/RoCE [1]mlx5_2:1/RoCE [2]mlx5_3:1/RoCE"), "roce");
}

TEST(NcclLog, AGpuThatTheDriverDoesNotKnowIsThatOfTheName) {
  const NcclLog log = parsed(
      "#  Rank 71 Group 0 Pid 11 on a device 3 [0x01] NVIDIA Graphics Device\n"
      " 1073741824 268435456 float sum -1 3108.8 345.38 681.17 0\n",
      "72xGB200_1node.log");
  EXPECT_EQ(log.gpu, "GB200");
  EXPECT_TRUE(log.guessed.gpu);
}

TEST(NcclLog, KeepsTheTestsOfAFileApart) {
  const std::string ranks =
      "# nThread: 1 nGpus: 8 minBytes: 8\n"
      "#  Rank  7 Group 0 Pid 11 on a device 0 [0x8f] NVIDIA H100\n";
  const std::string text = "# Collective test starting: all_reduce_perf\n" + ranks +
                           " 1073741824 268435456 float sum -1 4000 268.44 469.76 0\n"
                           "# Collective test concluded: all_reduce_perf\n"
                           "+ /opt/nccl-tests/build/alltoall_perf -b 8 -g 8\n" +
                           ranks + " 1073741824 33554432 float none -1 3000 357.91 313.17 N/A\n" +
                           " 2147483648 67108864 float none -1 6000 357.91 313.17 N/A\n";
  const NcclLog first = parsed(text);
  EXPECT_EQ(first.collective, Collective::all_reduce);
  EXPECT_EQ(first.rows.size(), 1U);
  EXPECT_EQ(first.of_others, 2);
  EXPECT_EQ(first.ranks, 8);
  EXPECT_EQ(first.gpus_of_thread, 8);
  const NcclLog second = parse_nccl_log(text, "log", Collective::all_to_all);
  EXPECT_EQ(second.collective, Collective::all_to_all);
  EXPECT_EQ(second.rows.size(), 2U);
  EXPECT_EQ(second.of_others, 1);
  // Without names: another number of ranks is another test.
  const NcclLog unnamed = parsed(
      "# nThread 1 nGpus 8\n"
      " 1073741824 268435456 float sum -1 4000 268.44 469.76 0\n"
      "# nThread 1 nGpus 2\n"
      " 1073741824 268435456 float sum -1 4000 268.44 268.44 0\n");
  EXPECT_EQ(unnamed.rows.size(), 1U);
  EXPECT_EQ(unnamed.ranks, 8);
  const NcclLog pairs = parsed(
      "# Collective test starting: sendrecv_perf\n"
      " 1048576 262144 float sum -1 100.0 10.49 10.49 0\n");
  EXPECT_EQ(pairs.collective, Collective::send_recv);
  // What is no collective is called none.
  const NcclLog cube = parsed(
      "# Collective test starting: hypercube_perf\n"
      " 1048576 262144 float sum -1 100.0 10.49 10.49 0\n");
  EXPECT_FALSE(cube.collective.has_value());
  EXPECT_EQ(cube.unpredicted, "hypercube");
}

TEST(NcclLog, BelievesTheRatioOverTheNameAndRankLines) {
  // 483.05 / 276.03 is 2 * 7 / 8.
  const std::string row = " 17179869184 4294967296 float sum -1 62239 276.03 483.05 0\n";
  EXPECT_EQ(parsed(row).ranks, 8);
  EXPECT_EQ(parsed("#  Rank  0 Pid 1 on a device 0 [0x01] NVIDIA H100\n" + row).ranks, 8);
  // 1.9844 may be 127 to 129: then what is said counts.
  const std::string many = " 17179869184 4294967296 float sum -1 92173 186.39 369.86 0\n";
  EXPECT_EQ(parsed(many, "128xH200_16node.log").ranks, 128);
  EXPECT_EQ(parsed(many, "128xH200_16node.log").hosts, 16);
  // Below 1 it is no all_reduce.
  EXPECT_EQ(parsed(" 8388608 131072 float none -1 166.6 50.35 47.20 0\n").collective,
            Collective::all_gather);
}

TEST(NcclLog, BelievesNoStrayRankLine) {
  // 1.9844 is 127 to 129 ranks; one line of another job is no reason for 144.
  const std::string stray = "#  Rank 143 Group 0 Pid 7 on other device 0 [0x8f] NVIDIA H200\n";
  const std::string row = " 17179869184 4294967296 float sum -1 92173 186.39 369.86 0\n";
  EXPECT_EQ(parsed(stray + row).ranks, 128);
  EXPECT_TRUE(parsed(stray + row).guessed.ranks_by_rows);
  EXPECT_EQ(parsed(stray + " 17179869184 4294967296 float sum -1 62239 276.03 483.05 0\n").ranks,
            8);
  // Without digits that say it, the name comes before a line alone.
  const std::string few = " 1024 256 float sum -1 20.00 0.05 0.09 0\n";
  EXPECT_EQ(parsed(stray + few, "16xH200_2node.log").ranks, 16);
}

TEST(NcclLog, FindsRanksRowByRow) {
  // all_reduce with 8, 16, 32 and 64 ranks: busbw / algbw is 1.75, 1.875, 1.9375, 1.96875.
  const std::vector<NcclLog> tables = parse_nccl_logs(
      " 1073741824 268435456 float sum -1 4000.0 268.44 469.77 0\n"
      " 1073741824 268435456 float sum -1 5000.0 214.75 402.66 0\n"
      " 1073741824 268435456 float sum -1 6000.0 178.96 346.74 0\n"
      " 1073741824 268435456 float sum -1 7000.0 153.39 301.99 0\n",
      "log");
  ASSERT_EQ(tables.size(), 4U);
  const int ranks[] = {8, 16, 32, 64};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tables[i].ranks, ranks[i]);
    EXPECT_EQ(tables[i].hosts, ranks[i] / 8);
    EXPECT_EQ(tables[i].of_others, 3);
  }
}

TEST(NcclLog, MakesATableOfEachRun) {
  const std::string run =
      "# nThread 1 nGpus 8 warmup iters: 0 iters: 20\n"
      " 1048576 262144 float sum -1 50.0 20.97 36.70 0\n"
      " 1073741824 268435456 float sum -1 4000.0 268.44 469.77 0\n";
  const std::vector<NcclLog> twice = parse_nccl_logs(run + run, "log");
  ASSERT_EQ(twice.size(), 2U);
  for (const NcclLog& t : twice) {
    EXPECT_EQ(t.rows.size(), 2U);
    EXPECT_EQ(t.warmups, 0);
  }
  // Runs of one size each are one table, as is a size again and again.
  const std::string one = " 1048576 262144 float sum -1 50.0 20.97 36.70 0\n";
  EXPECT_EQ(parse_nccl_logs("# nThread 1\n" + one + "# nThread 1\n" + one, "log").size(), 1U);
}

TEST(NcclLog, SaysWhatItGuesses) {
  // (n - 1) / n without a name: all_gather fits, and all_to_all, which has nothing in place.
  const NcclLog gather =
      parsed(" 8388608 131072 float none -1 166.6 50.35 47.20 0 166.6 50.35 47.20 0\n");
  EXPECT_EQ(gather.collective, Collective::all_gather);
  EXPECT_TRUE(gather.guessed.collective_by_rows);
  const NcclLog all = parsed(" 8388608 131072 float none -1 166.6 50.35 47.20 0 N/A N/A N/A N/A\n");
  EXPECT_EQ(all.collective, Collective::all_to_all);
  EXPECT_TRUE(all.guessed.collective_by_rows);
  EXPECT_EQ(parsed(" 8388608 131072 float none 0 166.6 50.35 47.20 0\n").collective,
            Collective::gather);
  const std::string even = " 8388608 2097152 float none -1 166.6 50.35 50.35 0\n";
  EXPECT_EQ(parsed(even).collective, Collective::send_recv);
  EXPECT_EQ(parsed(even, "sendrecv.log").collective, Collective::send_recv);
  EXPECT_TRUE(parsed(even, "sendrecv.log").guessed.collective);
  EXPECT_FALSE(parsed("+ ./sendrecv_perf -g 8\n" + even).guessed.collective_by_rows);
}

TEST(NcclLog, BelievesNcclOverNames) {
  const std::string host = "node-a:11:12 [0] NCCL INFO ";
  const std::string debug =
      host + "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eno1:10.0.0.1<0>\n" +
      host + "NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=Mlx5 speed=200000 context=0x7f\n" + host +
      "NET/IB: [1] mlx5_1:uverbs1:1/RoCE provider=Mlx5 speed=200000 context=0x7f\n" + host +
      "Using network IB\n" + host +
      "comm 0x55 rank 0 nRanks 16 nNodes 4 localRanks 4 localRank 0 MNNVL 0\n" + host +
      "              + NVL[240.0] - GPU/0-17000\n" + host +
      "Channel 00/0 : 3[3] -> 4[0] [receive] via NET/IB/0\n" + host +
      "Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0/GDRDMA\n" + host +
      "Channel 00/24 : 0[0] -> 1[1] via SHM/direct/direct\n" + host +
      "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels\n" + host +
      "AllGather: opCount 0 sendbuff 0x7f recvbuff 0x7f count 8 datatype 0\n" + host +
      "AllGather: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}\n" + host +
      "AllGather: 1024 Bytes -> Algo 1 proto 0 time 12.5\n";
  const NcclLog log = parsed(debug + " 8388608 131072 float none -1 166.6 50.35 47.20 0\n",
                             "8xH100_1node_NDR_alltoall.log");
  EXPECT_EQ(log.collective, Collective::all_gather);
  EXPECT_FALSE(log.guessed.collective);
  EXPECT_EQ(log.ranks, 16);
  EXPECT_EQ(log.hosts, 4);
  EXPECT_FALSE(log.guessed.hosts);
  const NcclDebug& d = log.debug;
  EXPECT_EQ(d.network_words(), "roce 2x200G");
  EXPECT_EQ(d.nvlink, 240);
  EXPECT_EQ(d.direct, 1);
  EXPECT_EQ(d.staged, 1);
  EXPECT_EQ(d.memory, 1);
  EXPECT_EQ(d.channels, 24);
  ASSERT_EQ(d.choices.size(), 2U);
  EXPECT_EQ(d.choices[0].algorithm, "ring");
  EXPECT_EQ(d.choices[0].protocol, "simple");
  EXPECT_EQ(d.choices[1].protocol, "ll");
}

TEST(NcclLog, ReadsWhatNcclIsToldInCommandsAndByItself) {
  const std::string row = "  1048576  262144  float  sum  -1  100.0 10.49 19.66  0\n";
  const auto told = [&](const std::string& line) { return parsed(line + "\n" + row).debug; };
  const NcclDebug d = told(
      "mpirun -np 16 -x NCCL_IB_HCA==mlx5_0:1,mlx5_1:1,mlx5_3 -x NCCL_ALGO=Ring "
      "-x NCCL_IB_GID_INDEX=3 ./all_reduce_perf -b 8");
  EXPECT_EQ(d.listed_ports, 3);
  EXPECT_EQ(d.algorithm, "ring");
  EXPECT_EQ(d.address_kind, "roce");
  EXPECT_EQ(d.network, "");
  EXPECT_EQ(told("export NCCL_IB_GID_INDEX=0").address_kind, "ib");
  EXPECT_EQ(told("export NCCL_IB_HCA=mlx5").listed_ports, 0);
  EXPECT_EQ(told("export NCCL_IB_HCA=^mlx5_8").listed_ports, 0);
  EXPECT_EQ(told("FI_PROVIDER=efa NCCL_PROTO=Simple all_gather_perf").network, "efa");
  EXPECT_EQ(told("FI_PROVIDER=efa NCCL_PROTO=Simple all_gather_perf").protocol, "simple");
  EXPECT_EQ(told("export FI_CXI_RX_MATCH_MODE=hybrid").network, "slingshot");
  EXPECT_EQ(told("h:1:1 [0] NCCL INFO NCCL_ALGO set by environment to TREE.").algorithm, "tree");
  EXPECT_FALSE(told("h:1:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.").switches);
  // What somebody suggests is not what was run.
  EXPECT_EQ(told("Then try NCCL_ALGO=Ring once more.").algorithm, "");
  // Of two runs each has its own.
  const auto two = parse_nccl_logs(
      "export NCCL_ALGO=RING\n" + row + "export NCCL_ALGO=TREE\n# nThread 1 nGpus 1\n" + row,
      "text");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].debug.algorithm, "ring");
  EXPECT_EQ(two[1].debug.algorithm, "tree");
  // Libfabric's provider says whether it is Amazon's or HPE's.
  const NcclDebug cxi = told(
      "h:1:1 [0] NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)\n"
      "h:1:1 [0] NCCL INFO Using network AWS Libfabric");
  EXPECT_EQ(cxi.network, "slingshot");
}

TEST(NcclLog, CountsHostsOfAnNvlinkDomainAsOne) {
  std::string lines;
  for (int rank = 0; rank < 8; ++rank) {
    lines += "#  Rank  " + std::to_string(rank) + " Group 0 Pid 1 on tray-" +
             std::to_string(rank / 4) + " device 0 [0x01] NVIDIA GB300\n";
  }
  const std::string row = " 17179869184 4294967296 float sum -1 62239 276.03 483.05 0\n";
  const NcclLog rack = parsed(lines + row);
  EXPECT_EQ(rack.hosts, 1);
  EXPECT_TRUE(rack.guessed.one_domain);
  const NcclLog apart =
      parsed(lines + "a:1:1 [0] NCCL INFO Channel 00/0 : 3[3] -> 4[0] via NET/IB/0\n" + row);
  EXPECT_EQ(apart.hosts, 2);
}

TEST(NcclLog, SurvivesAnyDebugLine) {
  NcclDebug d;
  for (const char* line :
       {"NCCL INFO ", "NCCL INFO nRanks ", "NCCL INFO nRanks 99999999999999999999",
        "NCCL INFO NET/IB: [99999999] mlx5 speed=-1", "NCCL INFO NET/IB : Using [0][",
        "NCCL INFO x: 9e300 Bytes -> Algo 99 proto 99", "NCCL INFO : Bytes -> Algo ",
        "NCCL INFO NVL[", "NCCL INFO Channel via ", " coll channels NCCL INFO coll channels"}) {
    EXPECT_TRUE(read_nccl_debug(line, d)) << line;
  }
  EXPECT_EQ(d.ranks, 0);
  EXPECT_LE(d.ports.size(), 1024U);
  EXPECT_FALSE(read_nccl_debug("nRanks 8", d));
}

/// Without what its name says, a log is still read, and says the same of what its text has.
TEST(NcclLog, NeedsNoName) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int logs = 0, answered = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::topology_data() + "/nccl-tests-logs")) {
    if (entry.path().extension() != ".log") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const NcclLog named = parse_nccl_log(text.str(), entry.path().string());
    const NcclLog log = parse_nccl_log(text.str(), "1.log");
    ++logs;
    if (!log.collective || log.ranks == 0) continue;
    ++answered;
    EXPECT_EQ(log.ranks, named.ranks) << entry.path();
    EXPECT_EQ(log.rows.size(), named.rows.size()) << entry.path();
    EXPECT_EQ(log.collective, named.collective) << entry.path();
  }
  EXPECT_GE(10 * answered, 9 * logs);
}

TEST(NcclLog, SurvivesAnything) {
  EXPECT_TRUE(parsed("").rows.empty());
  EXPECT_TRUE(parsed(std::string(1000, '\0')).rows.empty());
  EXPECT_TRUE(parsed("-8 -2 float sum -1 10 1 1 0\n").rows.empty());
  EXPECT_TRUE(parsed("99999999999999999999999 1 float sum -1 10 1 1 0\n").rows.empty());
  EXPECT_TRUE(parsed(" 8388608 2097152 float sum -1 nan inf 1 0\n").rows.empty());
  EXPECT_TRUE(parsed(" 8388608 2097152 float sum -1 -5 1 1 0\n").rows.empty());
  // Cut in the middle of a row.
  const NcclLog cut = parsed(" 8388608 2097152 float sum -1 166.6");
  EXPECT_TRUE(cut.rows.empty());
  EXPECT_EQ(cut.left_out, 1);
  EXPECT_TRUE(parsed("# Rank 99999999999999 on\n# nGpus -1\n").rows.empty());
}

TEST(NcclLog, ReadsRealLogs) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const std::string folder = test::topology_data() + "/nccl-tests-logs";
  // Ranks and rows of each, by the begin of its name.
  struct Known {
    int ranks, hosts;
    std::size_t rows;
  };
  const std::map<std::string, Known> known{{"2xA100PCIe80", {2, 1, 11}},
                                           {"2xRTX4090_1node_all_reduce", {2, 1, 27}},
                                           {"2xRTX4090_1node_broadcast", {2, 1, 27}},
                                           {"8xA100", {8, 1, 32}},
                                           {"8xRTX4090", {8, 1, 27}},
                                           {"8xH100", {8, 1, 32}},
                                           {"16xB200_2node_GCP", {16, 2, 11}},
                                           {"128xH200", {128, 16, 3}},
                                           {"2xK80", {2, 2, 11}}};
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".log") continue;
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const NcclLog log = parse_nccl_log(text.str(), entry.path().string());
    EXPECT_FALSE(log.rows.empty()) << name;
    EXPECT_TRUE(log.collective.has_value()) << name;
    EXPECT_FALSE(log.gpu.empty()) << name;
    for (const auto& [start, expected] : known) {
      if (!name.starts_with(start)) continue;
      ++seen;
      EXPECT_EQ(log.ranks, expected.ranks) << name;
      EXPECT_EQ(log.hosts, expected.hosts) << name;
      EXPECT_EQ(log.rows.size(), expected.rows) << name;
    }
  }
  EXPECT_GE(seen, 1);
}

}  // namespace
}  // namespace tutti
