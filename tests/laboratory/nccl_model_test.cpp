// What NCCL is expected to do, on machines that are described.
#include "laboratory/predict/nccl_model.h"

#include <gtest/gtest.h>

#include <string>

#include "laboratory/predict/evidence.h"
#include "laboratory/predict/judge_log.h"
#include "tools/cluster/cluster_setup.h"

namespace tutti {
namespace {

/// GB/s (busbw) that each rank sends to the next one, and receives.
double rate(const std::string& machine, int hosts, const std::string& network) {
  ClusterArguments a;
  a.machine = machine;
  a.hosts = hosts;
  a.network = network;
  const ClusterSetup s = set_up(a, nullptr);
  const cluster::Cluster c(s.host, s.hosts, s.network, of_generation({}, {}, s.host), s.gpus);
  NcclCall call;
  call.collective = Collective::send_recv;
  call.bytes = 1UL << 32U;
  const Prediction p = predict_nccl(c, call).front();
  EXPECT_EQ(algorithm_of(p), "neighbours");
  EXPECT_NE(p.protocol, GpuProtocol::ll128);
  EXPECT_EQ(kind_of(c, call.collective, p),
            hosts > 1 ? CallKind::several_sends : CallKind::one_sends);
  return call.bytes / p.us() / 1000;
}

TEST(NcclModel, SendsToTheNextRank) {
  // Over the links of a GPU: however many ranks there are.
  const double links = rate("8xH100", 1, "");
  EXPECT_GT(links, 250);
  EXPECT_LT(links, 400);
  EXPECT_NEAR(rate("4xH100", 1, ""), links, 0.05 * links);
  // Between hosts a message takes the port of its GPU, at most.
  const double port = rate("8xH100", 2, "ib 8x400G");
  EXPECT_GT(port, 35);
  EXPECT_LT(port, 50);
  EXPECT_NEAR(rate("1xH100", 2, "ib 1x400G"), port, 0.1 * port);
}

/// A ring of many hosts is not simulated: two smaller ones are.
TEST(NcclModel, RingsOfManyHostsGoOnAsSmallOnesBegin) {
  for (const auto& [machine, network] :
       {std::pair{"8xH100", "ib 8x400G"}, {"8xA100", "roce 2x200G"}, {"4xRTX4090", "tcp 1x100G"}}) {
    ClusterArguments a;
    a.machine = machine;
    a.network = network;
    a.hosts = 11;
    const ClusterSetup s = set_up(a, nullptr);
    const cluster::Cluster c(s.host, s.hosts, s.network, of_generation({}, {}, s.host), s.gpus);
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather}) {
      NcclCall call;
      call.collective = collective;
      call.algorithm = "ring";
      call.protocol = GpuProtocol::ll;
      for (call.bytes = 4096; call.bytes <= 1 << 30; call.bytes *= 64) {
        const Prediction p = predict_nccl(c, call).front();
        const double whole = simulate_nccl(c, call, p, false).us + c.constants().call(p.protocol);
        const CallKind kind = kind_of(c, collective, p);
        EXPECT_NEAR(p.us() / ramp(kind, measured_bytes(c, p, kind, call.bytes)), whole,
                    0.01 * whole)
            << machine << " " << name(collective) << " " << call.bytes;
      }
    }
  }
}

/// us of all_reduces by switches that reduce, of hosts with eight GPUs; without the ramp.
double us_by_switches(int hosts) {
  ClusterArguments a;
  a.machine = "8xH100";
  a.network = "ib 8x100G";
  a.hosts = hosts;
  const ClusterSetup s = set_up(a, nullptr);
  const cluster::Cluster c(s.host, s.hosts, s.network, of_generation({}, {}, s.host), s.gpus);
  NcclCall call;
  call.algorithm = "switch";
  call.bytes = 1UL << 34U;
  const Prediction p = predict_nccl(c, call).front();
  const CallKind kind = kind_of(c, call.collective, p);
  return p.us() / ramp(kind, measured_bytes(c, p, kind, call.bytes));
}

TEST(NcclModel, TreesOfHostsAreAsFastAsTheirBusiestHost) {
  const double two = us_by_switches(2);
  EXPECT_NEAR(us_by_switches(3), 1.5 * two, 0.01 * two);
  EXPECT_NEAR(us_by_switches(4), 2 * two, 0.01 * two);
  EXPECT_NEAR(us_by_switches(64), 2 * two, 0.01 * two);
}

TEST(NcclModel, TakesWhatALogSaysThatNcclWasToldToTake) {
  const std::string row = "  1048576  262144  float  sum  -1  100.0 10.49 19.66  0\n";
  const auto told = [&](const std::string& settings, int hosts) {
    const NcclLog log = parse_nccl_log("mpirun " + settings + " all_reduce_perf\n" + row, "log");
    ClusterArguments a;
    a.machine = "8xH100";
    a.network = "ib 8x400G";
    a.hosts = hosts;
    const ClusterSetup s = set_up(a, nullptr);
    const cluster::Cluster c(s.host, s.hosts, s.network, of_generation({}, {}, s.host), s.gpus);
    std::string said;
    NcclCall call = call_of(log, c, Collective::all_reduce, said);
    call.bytes = 1UL << 32U;
    const Prediction p = predict_nccl(c, call).front();
    EXPECT_EQ(p.protocol, call.protocol.value_or(p.protocol));
    return std::string(algorithm_of(p)) + said;
  };
  EXPECT_EQ(told("-x NCCL_DEBUG=WARN", 1), "switch");
  EXPECT_EQ(told("-x NCCL_ALGO=Ring", 1), "ring; NCCL_ALGO=ring");
  EXPECT_EQ(told("-x NCCL_ALGO=Tree", 2), "hierarchical_tree; NCCL_ALGO=tree");
  EXPECT_EQ(told("-x NCCL_ALGO=Ring -x NCCL_PROTO=LL", 2), "ring; NCCL_ALGO=ring; NCCL_PROTO=ll");
  EXPECT_EQ(told("-x NCCL_NVLS_ENABLE=0", 1), "ring; NCCL_NVLS_ENABLE=0");
  // Of several, NCCL chooses.
  EXPECT_EQ(told("-x NCCL_ALGO=Ring,NVLS", 1), "switch");
}

}  // namespace
}  // namespace tutti
