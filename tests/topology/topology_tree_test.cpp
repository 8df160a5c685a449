// Topologies in trees of files: /sys of a machine, and of KFD.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/topology/topology_texts.h"
#include "topology/nics.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

class Tree : public ::testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) {
    const std::string full = folder.path() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full) << text << "\n";
  }
  void link(const std::string& path, const std::string& target) {
    const std::string full = folder.path() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::filesystem::create_symlink(target, full);
  }
  void device(const std::string& chain, const std::string& pci_class, const std::string& vendor,
              const std::string& numa) {
    const std::string id = chain.substr(chain.rfind('/') + 1);
    const std::string real = "sys/devices/" + chain + "/";
    file(real + "class", pci_class);
    file(real + "vendor", vendor);
    file(real + "device", "0x1234");
    file(real + "numa_node", numa);
    file(real + "current_link_speed", "16.0 GT/s PCIe");
    file(real + "current_link_width", "16");
    link("sys/bus/pci/devices/" + id, "../../../devices/" + chain);
  }
  TemporaryFolder folder;
};

TEST_F(Tree, ReadsProcessorsDevicesAndPorts) {
  file("sys/devices/system/node/online", "0-2");
  file("sys/devices/system/node/node0/cpumap", "00000000");
  file("sys/devices/system/node/node1/cpumap", "0000000f");
  file("sys/devices/system/node/node2/cpumap", "000000f0");
  file("proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 106");
  device("pci0000:10/0000:10:01.0", "0x060400", "0x8086", "1");
  device("pci0000:10/0000:10:01.0/0000:11:00.0", "0x030200", "0x10de", "1");
  device("pci0000:10/0000:10:01.0/0000:12:00.0", "0x020700", "0x15b3", "1");
  device("pci10000:80/10000:80:02.0", "0x020000", "0x8086", "2");
  device("pci10000:80/10000:80:02.1", "0x020000", "0x8086", "2");
  link("sys/devices/pci10000:80/10000:80:02.1/physfn", "../10000:80:02.0");
  device("pci10000:80/10000:80:03.0", "0x030000", "0x1a03", "2");  // of a management controller
  link("sys/class/net/eth7", "../../devices/pci10000:80/10000:80:02.0/net/eth7");
  file("sys/devices/pci10000:80/10000:80:02.0/net/eth7/speed", "25000");
  file("sys/devices/pci10000:80/10000:80:02.0/net/eth7/operstate", "up");
  link("sys/class/net/ib0", "../../devices/pci0000:10/0000:10:01.0/0000:12:00.0/net/ib0");
  link("sys/class/net/docker0", "../../devices/virtual/net/docker0");
  const std::string ib = "sys/devices/pci0000:10/0000:10:01.0/0000:12:00.0/infiniband/mlx5_3";
  link("sys/class/infiniband/mlx5_3",
       "../../devices/pci0000:10/0000:10:01.0/0000:12:00.0/infiniband/mlx5_3");
  file(ib + "/ports/1/rate", "200 Gb/sec (4X HDR)");
  file(ib + "/ports/1/state", "4: ACTIVE");
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(r.cpus.size(), 2u);
  EXPECT_EQ(r.cpus[0].numa, 1);
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_EQ(near(g, "gpu0", "mlx5_3"), "PIX");
  EXPECT_EQ(near(g, "gpu0", "eth7"), "SYS");
  EXPECT_EQ(g.find("ib0"), -1);
  EXPECT_EQ(g.find("docker0"), -1);
  const Path path = g.path(g.gpus()[0], g.find("mlx5_3"));
  EXPECT_DOUBLE_EQ(g.link(path.links.back()).bandwidth, 25);
  EXPECT_DOUBLE_EQ(path.bandwidth, 24);
  EXPECT_EQ(g.node(nics_of_gpus(g)[0].port).name, "mlx5_3");
}

/// A machine at rest: the GPU's link, at both ends, and a NIC that no driver has.
TEST_F(Tree, IdleGpusAreAsFastAsTheirSlots) {
  file("sys/devices/system/node/node0/cpumap", "f");
  const std::string port = "pci0000:10/0000:10:01.0", gpu = port + "/0000:11:00.0";
  device(port, "0x060400", "0x1022", "0");
  device(gpu, "0x030200", "0x10de", "0");
  device("pci0000:10/0000:10:02.0", "0x060400", "0x1022", "0");
  device("pci0000:10/0000:10:02.0/0000:12:00.0", "0x020000", "0x14e4", "0");
  for (const std::string& end : {port, gpu}) {
    file("sys/devices/" + end + "/current_link_speed", "2.5 GT/s PCIe");
    file("sys/devices/" + end + "/max_link_width", "16");
  }
  file("sys/devices/" + port + "/max_link_speed", "16.0 GT/s PCIe");
  file("sys/devices/" + gpu + "/max_link_speed", "32.0 GT/s PCIe");
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_DOUBLE_EQ(g.path(g.gpus()[0], g.find("numa0")).bandwidth, 24) << "the slot's 16 GT/s";
  EXPECT_TRUE(std::ranges::any_of(g.unseen, [](auto& u) { return u.starts_with("NVLink"); }));
  const Graph again = graph_of_text(to_nccl_xml(r));
  EXPECT_TRUE(again.doubts.empty()) << again.doubts.front().what;
  EXPECT_TRUE(again.all(NodeKind::nic).empty());
}

TEST_F(Tree, DevicesThatDoNotSayWhatTheyAreAreKnownByTheirIds) {
  file("sys/devices/system/node/node0/cpumap", "f");
  const auto put = [&](const std::string& id, const char* vendor, const char* number) {
    device("pci0000:10/" + id, "", vendor, "0");
    file("sys/devices/pci0000:10/" + id + "/device", number);
  };
  put("0000:10:01.0", "0x10de", "0x2330");
  put("0000:10:02.0", "0x15b3", "0x1021");
  put("0000:10:03.0", "0x8086", "0x1234");  // nobody knows it
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  ASSERT_EQ(g.gpus().size(), 1u);
  EXPECT_EQ(g.node(g.gpus()[0]).model, "H100 SXM5");
  EXPECT_EQ(std::ranges::count_if(
                g.doubts, [](auto& d) { return d.what.find("class says nothing") != d.what.npos; }),
            2);
}

TEST_F(Tree, ReadsKfd) {
  file("nodes/0/properties", "cpu_cores_count 8\nsimd_count 0");
  for (int i = 1; i <= 2; ++i) {
    const std::string node = fmt::format("nodes/{}/", i);
    file(node + "properties",
         fmt::format("cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\n"
                     "vendor_id 4098\ndevice_id 29711\nlocation_id {}\ndomain 0",
                     0x6300 * i));
    file(node + "io_links/0/properties", fmt::format("type 2\nnode_from {}\nnode_to 0", i));
    file(node + "io_links/1/properties",
         fmt::format("type 11\nnode_from {}\nnode_to {}\nmax_bandwidth 50000", i, 3 - i));
  }
  Records r = read_records(folder.path());
  const Graph g = graph_of(r);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  ASSERT_EQ(g.gpus().size(), 2u);
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "XG1");
  EXPECT_EQ(g.node(g.gpus()[0]).model, "MI210");
  EXPECT_EQ(r.devices[0].gpu->sm, 104);
}

/// Links that lead to themselves, and around.
TEST_F(Tree, LoopsOfLinksEnd) {
  file("sys/devices/system/node/online", "0");
  link("sys/bus/pci/devices/0000:01:00.0", "0000:01:00.0");
  link("sys/bus/pci/devices/0000:02:00.0", "../../../bus");
  link("sys/bus/pci/devices/0000:03:00.0", "../../../devices/pci0000:00/0000:03:00.0/0000:03:00.0");
  link("sys/class/net/eth0", "../net");
  link("sys/class/infiniband/mlx5_0", "mlx5_0");
  Records r = read_records(folder.path());
  EXPECT_TRUE(graph_of(r).gpus().empty());
}

TEST_F(Tree, ReadsThisMachine) {
  Records r = discover_records();
  const Graph g = graph_of(r);
  EXPECT_GE(g.all(NodeKind::numa).size(), 1u);
  EXPECT_GE(r.cpus.front().cores, 1);
}

}  // namespace
}  // namespace tutti::topology
