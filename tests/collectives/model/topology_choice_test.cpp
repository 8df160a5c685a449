// What is chosen for a cluster beside the best of all plans that there are (plan_trial.h), on real
// machines: three in `make test`, all with TOPOLOGY_CHOICE=all, which prints the table of
// docs/topology.md. TOPOLOGY_CHOICE_EACH=1 also shows each call that is not the best.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "collectives/cluster/choose.h"
#include "collectives/model/lanes.h"
#include "core/error.h"
#include "tests/collectives/model/plan_trial.h"
#include "tests/topology/topology_data.h"
#include "topology/discover.h"
#include "topology/nics.h"

namespace tutti::cluster {
namespace {

/// Chosen by how they differ: links, GPUs, ports, and how many of each.
constexpr std::array kMachines{"2xA100PCIe80-NVL12-200G",
                               "4xRTX4090-Threadripper",
                               "8xAdaPCIe",
                               "8xPCIe-10de26ba-L20",
                               "8xRTX3090-2xPCIeSwitch",
                               "aws-p5.48xlarge",
                               "azure-NC48ads",
                               "azure-NDv2",
                               "azure-NDv4-8xA100-8xHDR200",
                               "azure-class-8xB200-13net-gVisor-fixed",
                               "gb300-nvl72-1tray",
                               "hgx-h200-8x",
                               "oci-BM.GPU.H100.8",
                               "perlmutter-4xA100",
                               "amd-16gfx90a-8NIC-4AMD-B-VM",
                               "amd-3gfx910-PCIe",
                               "amd-4gfx940",
                               "amd-8gfx906-2H2XGMI-1NIC-2AMD",
                               "amd-8gfx908-2H3XGMI-4NIC-4AMD-A",
                               "amd-8gfx90a-8NIC-2AMD-A"};

struct Worst {
  double ratio = 1;
  std::string where;
  int calls = 0;
  long tried = 0, hopeless = 0;
  double chosen_s = 0, tried_s = 0;
};

topology::Graph graph_of_machine(const std::string& start) {
  for (const std::string& file : test::topology_files("nccl-xml")) {
    if (!std::filesystem::path(file).filename().string().starts_with(start)) continue;
    topology::Records records = topology::read_records(file);
    return topology::graph_of(records);
  }
  throw Error(ErrorCode::invalid_argument, start + " is not among the data");
}

/// The file's own ports, or one of 100 Gbit/s where it knows none.
std::string network_of(const topology::Graph& graph) {
  return topology::data_ports(graph, 0).empty() ? "roce 1x100G" : "roce";
}

void compare(const topology::Graph& graph, int hosts, Collective collective, double bytes,
             Worst& worst) {
  const Cluster c(graph, hosts, topology::parse_network(network_of(graph)), {});
  Workload call;
  call.collective = collective;
  call.bytes = static_cast<std::size_t>(bytes);
  const auto start = std::chrono::steady_clock::now();
  const Prediction chosen = choose(c, call);
  const auto then = std::chrono::steady_clock::now();
  const test::Trial trial = test::try_all(c, call, chosen);
  const auto end = std::chrono::steady_clock::now();
  worst.chosen_s += std::chrono::duration<double>(then - start).count();
  worst.tried_s += std::chrono::duration<double>(end - then).count();
  ++worst.calls;
  worst.tried += trial.tried;
  worst.hopeless += trial.hopeless;
  const double ratio = chosen.ns / trial.best.ns;
  const auto text = [](const Prediction& p) {
    return fmt::format("{} {} {} tile{}{} {:.1f} us", p.algorithm->name, name(p.protocol), p.tiles,
                       p.tiles == 1 ? "" : "s",
                       p.orders.empty() ? ""
                                        : fmt::format(" {} orders ({})", p.orders.size(),
                                                      fmt::join(p.orders.front(), " ")),
                       p.us());
  };
  const std::string where = fmt::format("{} of {:.0f} B, {} hosts: {}; best {}", name(collective),
                                        bytes, hosts, text(chosen), text(trial.best));
  if (std::getenv("TOPOLOGY_CHOICE_EACH") != nullptr && ratio > 1.01) {
    fmt::print("{:.3f} {}\n", ratio, where);
  }
  if (ratio > worst.ratio) {
    worst.ratio = ratio;
    worst.where = where;
  }
}

constexpr std::array kSizes{16.0 * 1024, 1024.0 * 1024, 64.0 * 1024 * 1024};
constexpr std::array kOthers{Collective::all_gather, Collective::reduce_scatter,
                             Collective::broadcast, Collective::all_to_all};

/// All_reduce and another collective, in turn, as sizes are.
Worst worst_of(const topology::Graph& graph, std::size_t turn, const std::vector<int>& hosts) {
  Worst worst;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const double bytes = kSizes[(turn + h) % kSizes.size()];
    compare(graph, hosts[h], Collective::all_reduce, bytes, worst);
    compare(graph, hosts[h], kOthers[(turn + h) % kOthers.size()], bytes, worst);
  }
  return worst;
}

constexpr double kMost = 1.05;
constexpr int kMostRanks = 64;

TEST(Choice, IsWithinFivePercentOfTheBest) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const std::array few{"perlmutter-4xA100", "8xRTX3090-2xPCIeSwitch", "amd-4gfx940"};
  for (std::size_t i = 0; i < few.size(); ++i) {
    const Worst worst = worst_of(graph_of_machine(few[i]), i, {2});
    EXPECT_LE(worst.ratio, kMost) << few[i] << ": " << worst.where;
  }
}

/// TOPOLOGY_CHOICE=all, or the beginning of a machine's name.
TEST(ChoiceOfAll, IsWithinFivePercentOfTheBest) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const char* const given = std::getenv("TOPOLOGY_CHOICE");
  if (given == nullptr) GTEST_SKIP() << "TOPOLOGY_CHOICE=all takes a quarter of an hour";
  fmt::print(
      "| machine | calls | plans simulated | others ruled out | chosen / best | worst |\n"
      "|---|---|---|---|---|---|\n");
  for (std::size_t m = 0; m < kMachines.size(); ++m) {
    const std::string machine = kMachines[m];
    if (std::string(given) != "all" && !machine.starts_with(given)) continue;
    const topology::Graph graph = graph_of_machine(machine);
    // So many hosts that all of this takes minutes.
    int hosts = 4 << m % 3;
    while (hosts > 2 && hosts * static_cast<int>(graph.gpus().size()) > kMostRanks) hosts /= 2;
    const Worst worst = worst_of(graph, m, {2, hosts});
    fmt::print("| {} | {} | {} | {} | {:.3f} | {} |\n", machine, worst.calls, worst.tried,
               worst.hopeless, worst.ratio, worst.where);
    std::fflush(stdout);
    fmt::print(stderr, "{}: chosen in {:.1f} s, tried in {:.1f} s\n", machine, worst.chosen_s,
               worst.tried_s);
    EXPECT_LE(worst.ratio, kMost) << machine << ": " << worst.where;
  }
}

}  // namespace
}  // namespace tutti::cluster
