// Records that are wrong: each is named once, and the machine stays usable. One fault at a time, in
// samples of our own; topology_data_test does the same to real files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/topology/topology_samples.h"
#include "topology/check.h"
#include "topology/discover.h"
#include "topology/show/text.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

/// `sample` with the `which`th occurrence of `what` replaced.
std::string with(std::string sample, const std::string& what, const std::string& by,
                 int which = 0) {
  std::size_t at = sample.find(what);
  for (int i = 0; i < which; ++i) at = sample.find(what, at + 1);
  EXPECT_NE(at, std::string::npos) << what;
  return sample.replace(at, what.size(), by);
}

Graph checked(const std::string& text) {
  Records r = records_of(text, "sample");
  return graph_of(r);
}

void expect_one(const Graph& g, const std::string& who, const std::string& what) {
  ASSERT_EQ(g.doubts.size(), 1u) << (g.doubts.empty() ? "no doubt" : g.doubts.back().what);
  EXPECT_NE(g.doubts[0].what.find(who), std::string::npos) << g.doubts[0].what;
  EXPECT_NE(g.doubts[0].what.find(what), std::string::npos) << g.doubts[0].what;
}

double between(const Graph& g, const char* a, const char* b) {
  return g.path(g.find(a), g.find(b)).bandwidth;
}

constexpr const char* kFirstLink =
    "<nvlink target=\"0001:05:00.0\" count=\"4\" tclass=\"0x030200\"/>";

TEST(Doubtful, ALinkThatOneSideDoesNotKnowIsTakenFromTheOther) {
  const Graph g = checked(with(kMesh, kFirstLink, ""));
  expect_one(g, "gpu0 -> gpu1", "has 0 links, back there are 4; 4 are taken");
  EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu1"), 80);
  EXPECT_DOUBLE_EQ(between(g, "gpu1", "gpu0"), 80);
}

TEST(Doubtful, OfCountsThatDifferTheUsualOneIsTaken) {
  for (const char* count : {"0", "1", "3", "8", "400", "-4"}) {
    const Graph g = checked(with(kMesh, "count=\"4\"", "count=\"" + std::string(count) + "\""));
    expect_one(g, "gpu0 -> gpu1", "4 are taken");
    EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu1"), 80) << count;
  }
}

TEST(Doubtful, TrustTakesThemAsTheyAre) {
  ASSERT_EQ(setenv("TUTTI_TOPO_TRUST", "1", 1), 0);
  const Graph g = checked(with(kMesh, "count=\"4\"", "count=\"1\""));
  unsetenv("TUTTI_TOPO_TRUST");
  EXPECT_TRUE(g.doubts.empty());
  EXPECT_DOUBLE_EQ(between(g, "gpu1", "gpu0"), 80);
  const auto& links = g.links();
  const int from = g.find("gpu0"), to = g.find("gpu1");
  const auto one =
      std::ranges::find_if(links, [&](const Link& l) { return l.from == from && l.to == to; });
  ASSERT_NE(one, links.end());
  EXPECT_DOUBLE_EQ(one->bandwidth, 20);
}

TEST(Doubtful, LinksToSwitchesThatAreMissingAreTakenFromTheOthers) {
  const std::string link = "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>";
  for (const std::string& by : {std::string(), with(link, "18", "0"), with(link, "18", "36"),
                                with(link, "18", "9"), link + link}) {
    const Graph g = checked(with(kSwitched, link, by, 2));
    expect_one(g, "gpu2", by == link + link ? "twice" : "18 are taken");
    EXPECT_NEAR(between(g, "gpu0", "gpu2"), 18 * 20.6, 1e-9) << by;
  }
}

TEST(Doubtful, SwitchesThatAreGpusAreFound) {
  std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 8; ++i) {
    text += "<pci busid=\"0000:0" + std::to_string(i) +
            ":00.0\" class=\"0x030200\" vendor=\"0x10de\" "
            "device=\"0x2901\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"" +
            std::to_string(i) + "\" sm=\"100\">";
    for (int j = 0; j < 8; ++j) {
      if (i == j) continue;
      text += "<nvlink target=\"0000:0" + std::to_string(j) +
              ":00.0\" count=\"18\" tclass=\"0x068000\"/>";
    }
    text += "</gpu></pci>";
  }
  const Graph g = checked(text + "</cpu></system>");
  expect_one(g, "gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7", "18 NVLinks to each other GPU");
  EXPECT_EQ(g.all(NodeKind::gpu_switch).size(), 1u);
  EXPECT_NEAR(between(g, "gpu0", "gpu7"), 18 * 40.1, 1e-9);
}

TEST(Doubtful, AVirtualBridgeLimitsNothing) {
  for (const char* speed : {"2.5 GT/s PCIe", "5.0 GT/s PCIe"}) {
    const Graph g = checked(with(kSwitched, "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"",
                                 "link_speed=\"" + std::string(speed) + "\" link_width=\"1\""));
    expect_one(g, "0008:01:00.0", "virtual bridges");
    EXPECT_DOUBLE_EQ(between(g, "0008:01:00.0", "numa0"), 48);
  }
}

TEST(Doubtful, PciLinksThatCannotBeAreNamed) {
  expect_one(checked(with(kMesh, "link_width=\"16\">\n        <gpu dev=\"0\"",
                          "link_width=\"-16\">\n        <gpu dev=\"0\"")),
             "gpu0", "-16 lanes");
  expect_one(checked(with(kMesh, "link_speed=\"16.0 GT/s PCIe\"", "link_speed=\"0 GT/s\"")), "gpu0",
             "0 GT/s");
  expect_one(checked(with(kMesh, "link_speed=\"16.0 GT/s PCIe\"", "")), "gpu0", "does not say");
  expect_one(checked(with(kMesh, "link_speed=\"16.0 GT/s PCIe\"", "link_speed=\"2.5 GT/s PCIe\"")),
             "gpu0", "idle");
  // A slot with fewer lanes is a pity and no lie.
  const Graph slow = checked(with(kMesh, "link_width=\"16\">\n        <gpu dev=\"0\"",
                                  "link_width=\"4\">\n        <gpu dev=\"0\""));
  expect_one(slow, "gpu0", "believed");
  EXPECT_DOUBLE_EQ(slow.path(slow.find("gpu0"), slow.find("mlx5_0")).bandwidth, 6);
}

TEST(Doubtful, PortSpeedsThatCannotBeAreMended) {
  for (const char* speed : {"200000000", "200000000000", "200"}) {
    const Graph g =
        checked(with(kMesh, "speed=\"200000\"", "speed=\"" + std::string(speed) + "\""));
    expect_one(g, "mlx5_0", "200000 Mb/s is taken");
  }
  expect_one(checked(with(kMesh, "speed=\"200000\"", "speed=\"0\"")), "mlx5_0", "200000");
  expect_one(checked(with(kMesh, "speed=\"200000\"", "speed=\"-1\"")), "mlx5_0", "200000");
  expect_one(checked(with(kMesh, "speed=\"200000\"", "")), "mlx5_0", "does not say");
}

TEST(Doubtful, ThingsThatAreThereTwiceCountOnce) {
  const std::string net =
      "<net name=\"mlx5_1\" dev=\"1\" speed=\"200000\" port=\"1\" latency=\"0.5\" guid=\"0x2\" "
      "maxconn=\"262144\" gdr=\"1\"/>";
  expect_one(checked(with(kMesh, net, net + net)), "mlx5_1", "twice");
  expect_one(checked(with(kMesh, kFirstLink, std::string(kFirstLink) + kFirstLink)),
             "gpu0 -> 0001:05:00.0", "twice");
  expect_one(checked(with(kMesh, "numaid=\"0\"", "numaid=\"1\"")), "NUMA domain 1", "twice");
  expect_one(checked(with(kMesh, "dev=\"2\"", "dev=\"1\"")), "gpu1", "several GPUs");
}

TEST(Doubtful, AnAddressOfTwoGpusIsGivenToOne) {
  // gpu3 says that it is where gpu2 is; links of the others lead to where it must be.
  const Graph g =
      checked(with(kMesh, "<pci busid=\"10000:05:00.0\"", "<pci busid=\"10000:04:00.0\""));
  expect_one(g, "10000:04:00.0", "gpu2 and gpu3; the latter gets 10000:05:00.0");
  EXPECT_EQ(g.gpus().size(), 4u);
  EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu2"), 80);
  EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu3"), 80);
}

TEST(Doubtful, ThingsThatAreThereTwiceWithWhatIsBelowCountOnce) {
  const std::string mesh = kMesh;
  // All of a processor.
  const std::size_t cpu = mesh.find("<cpu"), end = mesh.find("</cpu>") + 6;
  const Graph g = checked(mesh.substr(0, end) + mesh.substr(cpu, end - cpu) + mesh.substr(end));
  expect_one(g, "NUMA domain", "twice");
  EXPECT_EQ(g.gpus().size(), 4u);
  // A bridge.
  const std::string below =
      "<pci busid=\"0000:70:00.0\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" "
      "link_width=\"16\"><pci busid=\"0000:71:00.0\" class=\"0x020000\" vendor=\"0x15b3\" "
      "device=\"0x101b\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><nic><net "
      "name=\"mlx5_7\" dev=\"7\" speed=\"200000\" port=\"1\"/></nic></pci></pci>";
  const Graph two = checked(with(kMesh, "</cpu>", below + below + "</cpu>"));
  expect_one(two, "0000:70:00.0", "twice");
  EXPECT_EQ(two.all(NodeKind::port).size(), 3u);
}

TEST(Doubtful, AProcessorThatDoesNotSayItsHostIsOfTheOnlyOne) {
  const std::string one =
      with(with(kMesh, "<cpu numaid=\"0\"", "<cpu host_hash=\"0xa\" numaid=\"0\""),
           "<cpu numaid=\"1\"", "<cpu host_hash=\"0xa\" numaid=\"1\"");
  ASSERT_NE(one.find("0xa\" numaid=\"1\""), std::string::npos);
  EXPECT_TRUE(checked(one).doubts.empty());
  for (const char* numa : {"0", "1"}) {
    for (const char* hash : {"", "host_hash=\"0x0\" "}) {
      const std::string number = fmt::format("numaid=\"{}\"", numa);
      const Graph g = checked(with(one, "host_hash=\"0xa\" " + number, hash + number));
      expect_one(g, std::string("NUMA domain ") + numa, "of which host");
      EXPECT_EQ(g.hosts(), 1);
      EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu3"), 80);
    }
  }
  // Of several hosts, the one whose NUMA domain it can be.
  std::string other = one.substr(one.find("<cpu"), one.rfind("</cpu>") + 6 - one.find("<cpu"));
  for (std::size_t at; (at = other.find("0xa")) != std::string::npos;) other.replace(at, 3, "0xb");
  const std::string both = with(one, "</system>", other + "</system>");
  EXPECT_EQ(checked(both).hosts(), 2);
  const Graph g = checked(with(both, "host_hash=\"0xb\" numaid=\"0\"", "numaid=\"0\""));
  expect_one(g, "NUMA domain 0", "0xb is taken");
  EXPECT_DOUBLE_EQ(between(g, "h1.gpu0", "h1.gpu3"), 80);
}

TEST(Doubtful, AProcessorOfAHostOfItsOwnIsAPartOfTheOtherOne) {
  const auto mesh_of = [](const char* first, const char* second) {
    const std::string one = with(kMesh, "<cpu ", fmt::format("<cpu host_hash=\"{}\" ", first));
    return with(one, "<cpu numaid=\"0\"",
                fmt::format("<cpu host_hash=\"{}\" numaid=\"0\"", second));
  };
  ASSERT_TRUE(checked(mesh_of("0xa", "0xa")).doubts.empty());
  for (const char* hash : {"0xb", "x", "-1", "2147483648"}) {
    const Graph g = checked(mesh_of("0xa", hash));
    expect_one(g, "NUMA domain 0", "goes on where host 0xa ends");
    EXPECT_EQ(g.hosts(), 1) << hash;
    EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu3"), 80) << hash;
  }
  // Two hosts that count from the same number are two.
  std::string two = mesh_of("0xa", "0xb");
  two = with(two, "numaid=\"1\"", "numaid=\"0\"");
  EXPECT_EQ(checked(two).hosts(), 2);
}

TEST(Doubtful, AProcessorThatIsNotLikeTheOthersIsTakenAsTheyAre) {
  const std::string modern = [] {
    std::string s = kMesh;
    for (int i = 0; i < 2; ++i) s = with(s, "modelid=\"106\"", "modelid=\"143\"");
    return s;
  }();
  const double usual = between(checked(modern), "numa0", "numa1");
  EXPECT_DOUBLE_EQ(usual, 22);
  for (const int which : {0, 1}) {
    for (const auto& [was, by] : {std::pair{"vendor=\"GenuineIntel\"", "vendor=\"x\""},
                                  {"vendor=\"GenuineIntel\"", ""},
                                  {"familyid=\"6\"", "familyid=\"0\""},
                                  {"modelid=\"143\"", "modelid=\"1\""},
                                  {"arch=\"x86_64\"", "arch=\"arm64\""}}) {
      const Graph g = checked(with(modern, was, by, which));
      expect_one(g, which == 0 ? "NUMA domain 1" : "NUMA domain 0", "x86_64 GenuineIntel is taken");
      EXPECT_DOUBLE_EQ(between(g, "numa0", "numa1"), usual) << was << " " << by;
    }
  }
}

TEST(Doubtful, ValuesThatCannotBeReadAreNamed) {
  for (const char* target : {"", "-1", "0", "gpu1"}) {
    const Graph g = checked(with(kMesh, kFirstLink,
                                 fmt::format("<nvlink target=\"{}\" count=\"4\" "
                                             "tclass=\"0x030200\"/>",
                                             target)));
    expect_one(g, "gpu0", "where to");
    EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu1"), 80) << target;
  }
  for (const char* address : {"", "-1", "0000"}) {
    const Graph g = checked(
        with(kMesh, "<pci busid=\"10000:05:00.0\"", fmt::format("<pci busid=\"{}\"", address)));
    expect_one(g, "sample", "busid");
    EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu3"), 80) << address;
  }
  for (const char* speed : {"-1", "0", "fast"}) {
    expect_one(checked(with(kMesh, "link_speed=\"16.0 GT/s PCIe\"",
                            fmt::format("link_speed=\"{}\"", speed))),
               "gpu0", "no speed such as");
  }
}

TEST(Doubtful, AGpuThatHasLostItsRecordStaysAGpu) {
  std::string text = kMesh;
  const std::size_t from = text.find("<gpu dev=\"2\""), to = text.find("</gpu>", from) + 6;
  const Graph g = checked(text.erase(from, to - from));
  ASSERT_FALSE(g.doubts.empty());
  EXPECT_EQ(g.gpus().size(), 4u);
  EXPECT_DOUBLE_EQ(between(g, "gpu0", "gpu2"), 80);
}

TEST(Doubtful, LinksToAGpuThatIsNotThereAreLeftOut) {
  std::string text = kMesh;
  const std::size_t from = text.find("<pci busid=\"10000:05:00.0\""),
                    to = text.find("</pci>", from);
  const Graph g = checked(text.erase(from, to + 6 - from));
  expect_one(g, "10000:05:00.0", "no such device");
  EXPECT_EQ(g.gpus().size(), 3u);
}

TEST(Doubtful, C2cIsTakenFromTheOtherGpus) {
  const std::string c2c = "<c2c bw=\"44712\" count=\"10\"/>";
  for (const std::string& by : {std::string(), with(c2c, "10", "0"), with(c2c, "10", "20"),
                                with(c2c, "44712", "0"), c2c + c2c}) {
    const Graph g = checked(with(kSwitched, c2c, by, 1));
    expect_one(g, "gpu1", "C2C");
    EXPECT_NEAR(between(g, "gpu1", "numa0"), 447.12, 1e-9) << by;
  }
}

/// Parents may form a circle only in records that no file can make; the graph is a tree anyway.
TEST(Doubtful, CirclesOfParentsBecomeATree) {
  Records r = records_of(kMesh, "sample");
  r.devices[0].parent = 2;
  const std::vector<Doubt> doubts = check(r);
  ASSERT_FALSE(doubts.empty());
  const Graph g = build(r);
  EXPECT_EQ(g.gpus().size(), 4u);
  for (int n = 0; n < static_cast<int>(g.nodes().size()); ++n) EXPECT_LT(g.node(n).parent, n);
}

TEST(Check, WhatIsIgnoredAndItsRepairAreOneDoubt) {
  expect_one(checked(with(kMesh, "count=\"4\"", "count=\"x\"")),
             "count=\"x\" of <nvlink> is no whole number: gpu0 -> gpu1 has 0 links", "4 are taken");
}

}  // namespace
}  // namespace tutti::topology
