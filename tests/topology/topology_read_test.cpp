// Topologies from files: addresses and masks as text, and what is no topology is refused with a
// reason.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "core/cpu_mask.h"
#include "core/error.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/topology/topology_texts.h"
#include "topology/show/inventory.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

TEST(BusIds, AreReadAndWritten) {
  EXPECT_EQ(text_of(*parse_bus_id("0000:3b:00.1")), "0000:3b:00.1");
  EXPECT_EQ(text_of(*parse_bus_id("3b:00.0")), "0000:3b:00.0");
  EXPECT_EQ(text_of(*parse_bus_id("10000:00:04.0")), "10000:00:04.0");
  EXPECT_TRUE(parse_bus_id("fffffff:ff:ff.0")->is_nameless_switch());
  for (const char* none : {"", ":", "0000:3b:00", "0000:3b:00.g", "0000:3b:00.0x", "x:00:00.0",
                           "123456789:00:00.0", "0000:100:00.0", "0000::00.0", "gpu0"}) {
    EXPECT_FALSE(parse_bus_id(none)) << none;
  }
}

TEST(Masks, AreReadAndWritten) {
  EXPECT_EQ(members_of_mask("00000001,80000000"), (std::set<int>{31, 32}));
  EXPECT_EQ(members_of_mask("0x00000001,0x00000003"), (std::set<int>{0, 1, 32}));
  EXPECT_EQ(members_of_list("0-2,8"), (std::set<int>{0, 1, 2, 8}));
  EXPECT_EQ(mask_of({0, 33}), "00000002,00000001");
  EXPECT_TRUE(members_of_mask("zz,").empty());
  EXPECT_LE(members_of_list("0-99999999999").size(), 65536u);
}

TEST(Bad, TextsAreRefusedWithTheirLine) {
  EXPECT_CONTAINS(refusal(""), "is empty");
  EXPECT_CONTAINS(refusal("hello"), "sample:1");
  EXPECT_CONTAINS(refusal("<system version=\"1\">\n<cpu\n"), "sample:");
  EXPECT_CONTAINS(refusal("<a/>"), "expected <system>, found <a>");
  EXPECT_CONTAINS(refusal("<!-- only this -->"), "expected an element");
  EXPECT_CONTAINS(refusal("\n\n<system version=\"1\"/>"), "sample:3: expected <cpu>");
  EXPECT_CONTAINS(refusal("<topology version=\"2.0\"/>"), "Machine");
  EXPECT_CONTAINS(refusal(std::string("<system>\0</system>", 18)), "binary");
}

TEST(Bad, BombsAndTowersAreRefused) {
  std::string bomb = "<?xml version=\"1.0\"?>\n<!DOCTYPE lolz [<!ENTITY lol \"lol\">";
  for (int i = 1; i < 10; ++i) {
    bomb += fmt::format("<!ENTITY lol{0} \"&lol{1};&lol{1};\">", i,
                        i == 1 ? "" : std::to_string(i - 1));
  }
  bomb += "]>\n<system version=\"1\"><cpu numaid=\"&lol9;\"/></system>";
  EXPECT_CONTAINS(refusal(bomb), "entities");
  std::string tower = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100'000; ++i) tower += "<pci busid=\"0000:01:00.0\">";
  EXPECT_NE(refusal(tower), "");  // not closed
  for (int i = 0; i < 100'000; ++i) tower += "</pci>";
  EXPECT_CONTAINS(refusal(tower + "</cpu></system>"), "in each other");
}

TEST(Bad, ManyElementsAreNoReasonToStop) {
  std::string wide = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100'000; ++i) {
    wide += fmt::format("<pci busid=\"{:04x}:{:02x}:{:02x}.0\" class=\"0x060400\"/>", i >> 13,
                        i >> 5 & 0xff, i & 0x1f);
  }
  const auto start = std::chrono::steady_clock::now();
  Records records = records_of(wide + "</cpu></system>", "wide");
  EXPECT_EQ(inventory_of(records).pci, 100'000);
  EXPECT_GE(graph_of(records).nodes().size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Bad, ManyHostsAndManyProcessorsAreNoReasonToStop) {
  std::string hosts = "<system version=\"1\">", processors = hosts;
  for (int i = 0; i < 50'000; ++i) {
    hosts += fmt::format("<cpu numaid=\"0\" host_hash=\"0x{:x}\"/>", i);
    processors += fmt::format("<cpu numaid=\"{}\"/>", i);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(graph_of_text(hosts + "</system>").hosts(), 50'000);
  EXPECT_EQ(graph_of_text(processors + "</system>").all(NodeKind::numa).size(), 50'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Bad, AMachineThatIsThereTwiceCountsOnce) {
  // The same host twice: what is there twice is named, and counts once.
  const Graph g = graph_of_text(std::string(kMesh) + kMesh);
  EXPECT_EQ(g.gpus().size(), 4u);
  EXPECT_EQ(g.hosts(), 1);
  EXPECT_FALSE(g.doubts.empty());
}

TEST(Bad, FilesThatAreNoneAreRefused) {
  TemporaryFolder folder;
  const auto refused = [](const std::string& path) -> std::string {
    try {
      read_records(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_CONTAINS(refused(folder.path() + "/none"), "cannot open");
  EXPECT_CONTAINS(refused(folder.path()), "neither sys/");
  EXPECT_CONTAINS(refused("/dev/zero"), "no regular file");
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_CONTAINS(refused(pipe), "no regular file");
  const std::string large = folder.path() + "/large";
  const int fd = open(large.c_str(), O_CREAT | O_WRONLY, 0600);
  ASSERT_EQ(ftruncate(fd, 100 << 20), 0);
  close(fd);
  EXPECT_CONTAINS(refused(large), "MiB");
}

TEST(Bad, ValuesAreNamedAndLeftOut) {
  Records r = records_of(
      "<system version=\"7\"><cpu numaid=\"x\">\n<pci busid=\"nowhere\" class=\"0x030200\" "
      "link_speed=\"fast\" link_width=\"-4\"><gpu dev=\"99999999999\"/></pci></cpu></system>",
      "odd");
  const Graph g = graph_of(r);
  std::string all;
  for (const Doubt& d : g.doubts) all += d.what + "\n";
  for (const char* part : {"version 7", "numaid=\"x\"", "odd:2: busid=\"nowhere\"",
                           "link_speed=\"fast\"", "-4 lanes", "dev=\"99999999999\""}) {
    EXPECT_CONTAINS(all, part);
  }
  EXPECT_EQ(g.gpus().size(), 1u);
}

TEST(Bad, UnicodeIsNoTrouble) {
  std::string text = kMesh;
  text.replace(text.find("mlx5_0"), 6, "\xe2\x98\x83\xff&gt;");
  const Graph g = graph_of_text(text);
  for (const Node& n : g.nodes()) {
    for (const char c : n.name) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

}  // namespace
}  // namespace tutti::topology
