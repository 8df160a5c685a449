// What texts describe: networks, models of GPUs, and machines whose GPUs are wired as real ones
// are. Part of cluster_test.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "core/error.h"
#include "laboratory/predict/nccl_model.h"
#include "tests/collectives/model/clusters.h"

namespace tutti::cluster {
namespace {

TEST(Describe, Networks) {
  const topology::Network n =
      topology::parse_network("8x400G, leaf=32 oversubscription=2 latency=5us sharp roce");
  EXPECT_EQ(n.kind, "roce");
  EXPECT_EQ(n.latency, 5);
  EXPECT_EQ(n.ports, 8);
  EXPECT_EQ(n.rate, 400);
  EXPECT_EQ(n.leaf, 32);
  EXPECT_EQ(n.oversubscription, 2);
  EXPECT_TRUE(n.sums);
  EXPECT_EQ(topology::parse_network("a3mega").kind, "tcpxo");
  EXPECT_EQ(topology::parse_network("").kind, "ib");
  for (const char* bad : {"token", "8x", "0x400G", "-400G", "8x-400G", "99999x1G", "leaf=-1",
                          "leaf=", "efficiency=2", "400Gx8", "latency=infus", "latency=nan"}) {
    EXPECT_THROW(topology::parse_network(bad), Error) << bad;
  }
}

TEST(Describe, Gpus) {
  const auto name = [](const char* text) {
    const topology::GpuModel* m = topology::find_gpu_model(text);
    return m == nullptr ? std::string() : std::string(m->name);
  };
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "H100 SXM5");
  EXPECT_EQ(name("H200"), "H200 SXM");
  EXPECT_EQ(name("NVIDIA B200"), "B200");
  EXPECT_EQ(name("GB300"), "GB300");
  EXPECT_EQ(name("A100-SXM4-40GB"), "A100 SXM4 40GB");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe"), "A100 PCIe 80GB");
  EXPECT_EQ(name("A10G"), "A10G");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(name("RTX4090"), "RTX 4090");
  EXPECT_EQ(name("L40S"), "L40S");
  EXPECT_EQ(name("L20"), "L20");
  EXPECT_EQ(name("Tesla V100-SXM2-32GB"), "V100 SXM2 32GB");
  EXPECT_EQ(name("RTX A6000"), "RTX A6000");
  EXPECT_EQ(name("Tesla K80"), "K80");
  EXPECT_EQ(name("MI300X"), "MI300X");
  EXPECT_EQ(name("MI250X"), "MI250X/MI250");
  EXPECT_EQ(name("NVIDIA A800-SXM4-80GB"), "A800 SXM4 80GB");
  EXPECT_EQ(name("H800"), "H800 SXM");
  EXPECT_EQ(name("NVIDIA H20-3e"), "H20");
  EXPECT_EQ(name("H200NVL"), "H200 NVL");
  EXPECT_EQ(name("NVIDIA H100 NVL"), "H100 NVL");
  EXPECT_EQ(name("RTX4090D"), "RTX 4090D");
  EXPECT_EQ(name("RTX2080Ti"), "RTX 2080 Ti");
  EXPECT_EQ(name("RTX 3090 Ti"), "RTX 3090 Ti");
  EXPECT_EQ(name("RTX 3090"), "RTX 3090");
  EXPECT_EQ(name("NVIDIA RTX 6000 Ada Generation"), "RTX 6000 Ada");
  EXPECT_EQ(name("NVIDIA RTX PRO 6000 Blackwell Server Edition"), "RTX PRO 6000");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090 D"), "RTX 4090D");
  EXPECT_EQ(name("Quadro RTX 6000"), "Quadro RTX 6000");
  EXPECT_EQ(name("RTX6000Ada"), "RTX 6000 Ada");
  EXPECT_EQ(name("RTXPRO6000"), "RTX PRO 6000");
  EXPECT_EQ(name("NVIDIA RTX PRO 5000 Blackwell"), "");
  EXPECT_EQ(name("NVIDIA RTX 5000 Ada Generation"), "RTX 5000 Ada");
  EXPECT_EQ(name("NVIDIA GeForce RTX 2080"), "");
  EXPECT_EQ(name("NVIDIA GeForce GTX 1080 Ti"), "GTX 1080 Ti");
  EXPECT_EQ(name("GeForce GTX 1080"), "GTX 1080");
  EXPECT_EQ(name("NVIDIA A800 80GB PCIe"), "A800 PCIe 80GB");
  EXPECT_EQ(name("NVIDIA H800 PCIe"), "H800 PCIe");
  EXPECT_EQ(name("Tesla V100S-PCIE-32GB"), "V100S PCIe 32GB");
  EXPECT_EQ(name("Tesla P40"), "P40");
  EXPECT_EQ(name("DGXA100"), "A100 SXM4 40GB");
  EXPECT_EQ(name("A10080GB"), "A100 SXM4 80GB");
  EXPECT_EQ(name("AMD Instinct MI60"), "MI50/MI60");
  EXPECT_EQ(name("AMD Instinct MI250"), "MI250X/MI250");
  EXPECT_EQ(name("MI300"), "MI300X");
  EXPECT_EQ(name("AMD Instinct MI325 OAM"), "MI325X");
  EXPECT_EQ(name("AMD Instinct MI355 OAM"), "MI355X");
  EXPECT_EQ(name("AMD Instinct MI300A"), "MI300A");
  EXPECT_EQ(name("nothing"), "");
  for (const char* bad : {"", "x", "8", "8x", "0xH100", "-1xH100", "2000xH100", "8xnothing",
                          "8xH100 what", "8000000000000000000000xH100"}) {
    EXPECT_THROW(topology::parse_machine(bad), Error) << bad;
  }
  // Each model makes a machine without doubts, and is predicted.
  for (const topology::GpuModel& m : topology::gpu_models()) {
    if (m.device == 0) continue;
    topology::Records r = topology::records_of(topology::machine_xml(m, 4, 4, 200, true), "x");
    const topology::Graph g = topology::graph_of(r);
    EXPECT_TRUE(g.doubts.empty()) << m.name << ": " << g.doubts.front().what;
    EXPECT_EQ(g.gpus().size(), 4U) << m.name;
    NcclCall call;
    call.bytes = 1 << 20;
    EXPECT_GT(predict_nccl(Cluster(g, 2, topology::parse_network("ib"), {}), call).front().us(), 1)
        << m.name;
  }
}

/// What GPU 0 has to each of the others, in GPU links.
std::vector<int> links_of(const std::string& text, int gpu) {
  const topology::Graph g = machine(text);
  std::vector<int> lanes;
  for (const int other : g.gpus()) {
    int count = 0;
    for (const int l : g.out(g.gpus()[static_cast<std::size_t>(gpu)])) {
      const topology::Link& link = g.link(l);
      if (link.to == other) count += link.lanes;
    }
    lanes.push_back(count);
  }
  return lanes;
}

TEST(Describe, MachinesAreWiredAsTheyAre) {
  using V = std::vector<int>;
  EXPECT_EQ(links_of("8xV100-SXM2", 0), (V{0, 1, 1, 2, 2, 0, 0, 0}));
  EXPECT_EQ(links_of("8xV100-SXM2", 5), (V{0, 2, 0, 0, 1, 0, 2, 1}));
  EXPECT_EQ(links_of("8xP100-SXM2", 3), (V{1, 1, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(links_of("4xV100-SXM2", 1), (V{2, 0, 2, 2}));
  EXPECT_EQ(links_of("8xMI250X", 0), (V{0, 4, 1, 0, 0, 0, 2, 0}));
  EXPECT_EQ(links_of("16xMI250X", 9), (V{0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(links_of("8xMI210", 5), (V{0, 0, 0, 0, 1, 0, 1, 1}));
  EXPECT_EQ(links_of("4xMI50", 0), (V{0, 1, 0, 1}));
  EXPECT_EQ(links_of("4xMI300A", 2), (V{2, 2, 0, 2}));
  EXPECT_EQ(links_of("8xMI300X", 7), (V{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(links_of("8xH200-NVL", 6), (V{0, 0, 0, 0, 6, 6, 0, 6}));
  EXPECT_EQ(links_of("4xH100-NVL", 2), (V{0, 0, 0, 12}));
  EXPECT_EQ(links_of("4xA100-PCIe nvlink", 0), (V{0, 12, 0, 0}));
  EXPECT_EQ(links_of("4xA100-PCIe", 0), (V{0, 0, 0, 0}));
  // Through a switch: no two are joined. Nobody has more links than the model.
  EXPECT_EQ(links_of("8xH800", 0), V(8));
  for (const topology::GpuModel& m : topology::gpu_models()) {
    if (m.device == 0) continue;
    for (const int count : {2, 3, 4, 5, 8, 16}) {
      topology::Records r = topology::records_of(topology::machine_xml(m, count, 0, 0, true), "x");
      const topology::Graph g = topology::graph_of(r);
      EXPECT_TRUE(g.doubts.empty()) << count << " " << m.name << ": " << g.doubts.front().what;
      for (const int gpu : g.gpus()) {
        int links = 0;
        for (const int l : g.out(gpu)) {
          const auto kind = g.link(l).kind;
          const bool own = kind == topology::LinkKind::nvlink || kind == topology::LinkKind::xgmi;
          links += own ? g.link(l).lanes : 0;
        }
        EXPECT_LE(links, m.links) << count << " " << m.name;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::cluster
