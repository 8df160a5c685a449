// What NCCL's own lines, and nccl-tests', say of why a log is slow.
#include "laboratory/predict/said_causes.h"

#include <gtest/gtest.h>

#include <string>

#include "tools/cluster/cluster_setup.h"
#include "topology/network.h"

namespace tutti {
namespace {

PredictedMachine machine_of(const std::string& host, int hosts, const std::string& network) {
  ClusterArguments a;
  a.machine = host;
  a.hosts = hosts;
  a.network = network;
  const ClusterSetup s = set_up(a, nullptr);
  NcclCall call;
  call.collective = Collective::all_reduce;
  return {s.host, s.hosts, s.gpus, s.network, GpuConstants(), call};
}

SaidCauses said_by(const std::string& lines, const PredictedMachine& machine) {
  const std::string row = " 1073741824 268435456 float sum -1 4000 268.44 469.76 0\n";
  return said_causes(parse_nccl_log(lines + row, "log"), machine);
}

const PredictedMachine& two_hosts() {
  static const PredictedMachine machine = machine_of("8xH100", 2, "ib 8x400G");
  return machine;
}

using Said = SaidCauses;

TEST(SaidCauses, AreNoneWithoutLines) { EXPECT_EQ(said_by("hello\n", two_hosts()), Said()); }

TEST(SaidCauses, KnowGpuDirectPortsAndSockets) {
  const std::string one_port =
      "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n";
  EXPECT_EQ(
      said_by(one_port + "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0\n",
              two_hosts()),
      (Said{{"tcp", false}, {"no_gpudirect", true}, {"one_port", true}}));
  EXPECT_EQ(said_by("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n",
                    two_hosts()),
            (Said{{"no_gpudirect", false}}));
  EXPECT_EQ(
      said_by("a:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n", two_hosts())["tcp"],
      true);
  // A port for each GPU is what is expected.
  EXPECT_EQ(said_by(one_port, machine_of("1xH100", 2, "ib 1x400G"))["one_port"], false);
  EXPECT_EQ(
      said_by("a:1:2 [0] NCCL INFO NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=200000\n",
              two_hosts())["port_rate"],
      true);
}

TEST(SaidCauses, KnowWhatJoinsTheGpusOfAHost) {
  const PredictedMachine host = machine_of("8xH100", 1, "");
  const std::string memory =
      "a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";
  EXPECT_EQ(said_by(memory, host), (Said{{"no_peer_access", true}}));
  EXPECT_EQ(said_by("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n", host),
            (Said{{"no_peer_access", false}}));
  EXPECT_EQ(said_by("a:1:2 [0] NCCL INFO GPU/1B000 -> NVL[480.0] -> GPU/2\n", host),
            (Said{{"pci_for_nvlink", false}}));
  // Two channels carry 80 GB/s at most, and the links of an H100 370.
  const auto channels = [&](const std::string& n) {
    return said_by(
        "a:1:2 [0] NCCL INFO " + n +
            " coll channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer\n",
        host);
  };
  EXPECT_EQ(channels("2"), (Said{{"fewer_gpu_links", true}}));
  EXPECT_EQ(channels("16"), Said());
}

TEST(SaidCauses, KnowAlgorithmsProtocolsAndWarmUps) {
  const PredictedMachine host = machine_of("8xH100", 1, "");
  const std::string choice = "a:1:2 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo ";
  EXPECT_EQ(said_by(choice + "RING proto LL time 1\n", host),
            (Said{{"protocol", true}, {"no_switch_sums", true}}));
  EXPECT_EQ(said_by(choice + "NVLS proto SIMPLE time 1\n", host),
            (Said{{"protocol", false}, {"no_switch_sums", false}}));
  // Short calls may take any of them.
  EXPECT_EQ(
      said_by("a:1:2 [0] NCCL INFO AllReduce: 8192 Bytes -> Algo TREE proto LL time 1\n", host),
      Said());
  EXPECT_EQ(said_by("# nThread 1 nGpus 8 minBytes 8 warmup iters: 0 iters: 20\n", host),
            (Said{{"cold", true}}));
}

}  // namespace
}  // namespace tutti
