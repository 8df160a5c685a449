// `tutti topo` and `tutti predict` as their users see them, with what should not be given to them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/support/contains.h"
#include "tests/support/xml.h"
#include "tests/tools/tutti_command.h"
#include "tests/topology/topology_data.h"
#include "tests/topology/topology_samples.h"

namespace tutti {
namespace {

class TopologyCli : public TuttiCommand {};

TEST_F(TopologyCli, ShowsAFileInEachForm) {
  folder.write("m.xml", test::kMesh);
  ASSERT_EQ(tutti("topo --file m.xml"), 0) << err;
  EXPECT_CONTAINS(out, "gpu3");
  ASSERT_EQ(tutti("topo --matrix -f m.xml"), 0) << err;
  EXPECT_CONTAINS(out, "NV4");
  ASSERT_EQ(tutti("topo --svg -f m.xml -o m.svg"), 0) << err;
  EXPECT_EQ(test::xml_error(folder.read("m.svg")), "");
  // A small machine's picture does not end before its notes do.
  ASSERT_EQ(tutti("topo --svg --machine 1xA100 -o small.svg"), 0) << err;
  const std::string small = folder.read("small.svg");
  const double width = std::stod(small.substr(small.find("width=\"") + 7));
  const std::size_t note = small.find(">Bandwidth is what") + 1;
  ASSERT_NE(note, 0U);
  EXPECT_GE(width, 20 + 6.2 * static_cast<double>(small.find('<', note) - note));
  ASSERT_EQ(tutti("topo --json -f - < m.xml"), 0) << err;
  EXPECT_CONTAINS(out, "\"links\"");
  ASSERT_EQ(tutti("topo --xml -f m.xml -o again.xml"), 0) << err;
  ASSERT_EQ(tutti("topo --matrix -f again.xml"), 0) << err;
  EXPECT_CONTAINS(out, "NV4");
  ASSERT_EQ(tutti("topo --explain gpu2 -f m.xml"), 0) << err;
  EXPECT_CONTAINS(out, "mlx5");
  EXPECT_EQ(tutti("topo --explain gpu9 -f m.xml"), 2);
  EXPECT_EQ(tutti("topo --matrix --svg -f m.xml"), 2);
  EXPECT_EQ(tutti("topo -f none.xml"), 2);
  EXPECT_CONTAINS(err, "none.xml");
}

TEST_F(TopologyCli, TextsOfAPictureEndWhereItDoes) {
  // A machine that is narrower than its title and than what is said of it.
  std::string xml = test::kSkeleton;
  const std::size_t address = xml.find("busid=\"");
  xml.insert(xml.find("</cpu>"), "<pci " +
                                     xml.substr(address, xml.find('"', address + 7) - address) +
                                     "\" class=\"0x020000\" link_width=\"7\"/>");
  const std::string file = "a-machine-with-a-name-" + std::string(60, 'x') + ".xml";
  folder.write(file, xml);
  ASSERT_EQ(tutti("topo --svg -f " + file + " -o m.svg"), 0) << err;
  const std::string svg = folder.read("m.svg");
  EXPECT_CONTAINS(svg, "not believed");
  const double width = std::stod(svg.substr(svg.find("width=\"") + 7));
  const std::regex text("<text x=\"([0-9.]+)\"[^>]*text-anchor=\"start\">([^<]*)<");
  for (std::sregex_iterator t(svg.begin(), svg.end(), text), end; t != end; ++t) {
    EXPECT_LT(std::stod((*t)[1]) + 5.8 * static_cast<double>((*t)[2].length()), width) << (*t)[2];
  }
}

TEST_F(TopologyCli, RefusesAMatrixThatNobodyReads) {
  std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 1100; ++i) {
    xml += fmt::format(
        "<pci busid=\"{:04x}:{:02x}:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
        "link_width=\"16\"><gpu dev=\"{}\" sm=\"90\" rank=\"{}\"/></pci>",
        i >> 8, i & 255, i, i);
  }
  folder.write("many.xml", xml + "</cpu></system>");
  EXPECT_EQ(tutti("topo --matrix -f many.xml"), 2);
  EXPECT_CONTAINS(err, "1100 GPUs");
  EXPECT_CONTAINS(err, "--json");
  EXPECT_EQ(tutti("topo --json -f many.xml"), 0) << err;
}

TEST_F(TopologyCli, Predicts) {
  folder.write("m.xml", test::kMesh);
  ASSERT_EQ(tutti("predict all_reduce --topology m.xml --hosts 4 --network roce -b 8 -e 1M -f 8"),
            0)
      << err;
  EXPECT_CONTAINS(out, "with 16 ranks");
  EXPECT_CONTAINS(out, "busbw");
  EXPECT_EQ(test::count(out, "float"), 6U);
  // A cloud's skeleton names devices by class alone: what is assumed of them is said.
  folder.write("class.xml",
               "<system version=\"1\"><cpu numaid=\"0\">"
               "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_width=\"16\"/>"
               "<pci busid=\"0002:00:00.0\" class=\"0x030200\" link_width=\"16\"/>"
               "<pci busid=\"0101:00:00.0\" class=\"0x020700\" link_width=\"16\"/>"
               "</cpu></system>");
  ASSERT_EQ(tutti("predict all_reduce -t class.xml -H 2 -b 1M -e 1M"), 0) << err;
  EXPECT_CONTAINS(out, "ports of 10G are assumed");
  EXPECT_CONTAINS(out, "GPUs of no known model");
  ASSERT_EQ(tutti("predict all_reduce -t class.xml -H 2 -N 1x100G -b 1M -e 1M"), 0) << err;
  EXPECT_EQ(out.find("assumed"), out.npos) << out;
  ASSERT_EQ(tutti("predict all_gather -m 8xH100 -b 1M -e 1M --svg run.svg --heat heat.svg"), 0)
      << err;
  EXPECT_EQ(test::xml_error(folder.read("run.svg")), "");
  EXPECT_CONTAINS(folder.read("run.svg"), "height: its rate, at most ");
  EXPECT_EQ(test::xml_error(folder.read("heat.svg")), "");
  ASSERT_EQ(tutti("predict all_gather -m 8xH100 -b 1M -e 1M --copy-engines --svg copies.svg"), 0)
      << err;
  EXPECT_CONTAINS(out, "direct CE");
  EXPECT_EQ(test::xml_error(folder.read("copies.svg")), "");
  ASSERT_EQ(tutti("predict --constants --set staging=17"), 0) << err;
  EXPECT_CONTAINS(out, "17");
}

/// Eight modules with models and without links, as a cloud publishes them.
std::string skeleton(const std::string& device = "0x20b2") {
  std::string xml = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 8; ++i) {
    xml += fmt::format(
        "<pci busid=\"ffff:ff:{0:02x}.0\" class=\"0x060400\" link_speed=\"16 GT/s\" "
        "link_width=\"16\"><pci busid=\"0000:1{0}:00.0\" class=\"0x030200\" vendor=\"0x10de\" "
        "device=\"{1}\" link_speed=\"16 GT/s\" link_width=\"16\"/></pci>",
        i, device);
  }
  return xml + "</cpu></system>";
}

double busbw_of(const std::string& out) {
  std::istringstream last(out.substr(out.rfind("float")));
  std::string word;
  double value = 0;
  for (int column = 0; column < 3; ++column) last >> word;  // type, operator, root
  for (int column = 0; column < 3; ++column) last >> value;
  return value;
}

TEST_F(TopologyCli, AFileWithoutGpuLinksIsNotPredictedWithoutAWord) {
  folder.write("cloud.xml", skeleton());
  ASSERT_EQ(tutti("predict all_reduce -t cloud.xml -b 1G -e 1G"), 0) << err;
  EXPECT_CONTAINS(err, "no links between 8 GPUs (A100 SXM4 80GB)");
  EXPECT_CONTAINS(err, "--machine");
  EXPECT_CONTAINS(out, "without links between 8 GPUs");
  EXPECT_LT(busbw_of(out), 30);
  ASSERT_EQ(tutti("topo --file cloud.xml"), 0) << err;
  EXPECT_CONTAINS(err, "no links between 8 GPUs");
  ASSERT_EQ(tutti("explain --topology cloud.xml"), 0) << err;
  EXPECT_CONTAINS(err, "no links between 8 GPUs");
  // Also of GPUs whose architecture alone is known.
  folder.write("sm.xml",
               "<system version=\"1\"><cpu numaid=\"0\">"
               "<pci busid=\"0001:00:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"90\"/></pci>"
               "<pci busid=\"0002:00:00.0\" class=\"0x030200\"><gpu dev=\"1\" sm=\"90\"/></pci>"
               "</cpu></system>");
  ASSERT_EQ(tutti("predict all_reduce -t sm.xml -b 1G -e 1G"), 0) << err;
  EXPECT_CONTAINS(err, "no links between 2 GPUs (sm90)");
  ASSERT_EQ(tutti("predict all_reduce -t sm.xml -m 2xH100 -b 1G -e 1G"), 0) << err;
  EXPECT_EQ(err, "");
  // GPUs that are sold without them lack nothing.
  folder.write("cards.xml", skeleton("0x26b9"));
  ASSERT_EQ(tutti("predict all_reduce -t cards.xml -b 1G -e 1G"), 0) << err;
  EXPECT_EQ(err, "");
}

TEST_F(TopologyCli, ADescriptionFillsInWhatAFileLeavesOut) {
  ASSERT_EQ(tutti("predict all_reduce -m 8xA100 -b 1G -e 1G"), 0) << err;
  const double described = busbw_of(out);
  folder.write("cloud.xml", skeleton());
  folder.write("classes.xml",
               std::regex_replace(skeleton(), std::regex("vendor=\"0x10de\" device=\"[^\"]*\""),
                                  std::string()));
  for (const char* file : {"cloud.xml", "classes.xml"}) {
    ASSERT_EQ(tutti(fmt::format("predict all_reduce -t {} -m 8xA100 -b 1G -e 1G", file)), 0) << err;
    EXPECT_EQ(err, "");
    EXPECT_CONTAINS(out, "links of 8xA100");
    EXPECT_NEAR(busbw_of(out), described, 0.02 * described) << file;
  }
  ASSERT_EQ(tutti("topo -f cloud.xml -m 8xA100 --matrix"), 0) << err;
  EXPECT_CONTAINS(out, "NV12");
  // What the file says counts; what contradicts it is refused.
  folder.write("whole.xml", test::kMesh);
  ASSERT_EQ(tutti("predict all_reduce -t whole.xml -m 4xA100 -b 1M -e 1M"), 0) << err;
  EXPECT_CONTAINS(out, "lacks nothing");
  ASSERT_EQ(tutti("predict all_reduce -t cloud.xml -m 4xA100"), 2);
  EXPECT_CONTAINS(err, "8 GPUs, and 4 are described");
  ASSERT_EQ(tutti("predict all_reduce -t cloud.xml -m 8xH100"), 2);
  EXPECT_CONTAINS(err, "is A100 SXM4 80GB by its ids, and H100 SXM5 is described");
  // Ports that the file does not know are those of such machines.
  ASSERT_EQ(tutti("predict all_reduce -t cloud.xml -m 8xA100 -H 2 -b 1G -e 1G"), 0) << err;
  EXPECT_CONTAINS(out, "network ib 8x200G");
  EXPECT_CONTAINS(out, "# guessed: ports of 200G");
}

TEST_F(TopologyCli, WhatALogsNameIsTakenToSayIsSaid) {
  const std::string rows = "   1048576  262144  float  sum  -1  149.1  7.03  13.18  0\n";
  folder.write("16xH100_2node_site-NDR.log", rows);
  // It took longer than it would over such ports, which is the verdict.
  ASSERT_EQ(tutti("predict all_reduce --log 16xH100_2node_site-NDR.log"), 1) << err;
  // NDR is the rate of a port, and no host with eight GPUs has one port.
  EXPECT_CONTAINS(out, "network ib 8x400G");
  EXPECT_CONTAINS(out, "# guessed: H100, by the log's name");
  EXPECT_CONTAINS(out, "# guessed: 2 hosts, by the log's name");
  EXPECT_CONTAINS(out, "# guessed: network ndr, by the log's name");
  EXPECT_CONTAINS(out, "# guessed: 8 ports, one for each GPU");
  ASSERT_EQ(tutti("predict all_reduce --csv --log 16xH100_2node_site-NDR.log"), 0) << err;
  EXPECT_CONTAINS(err, "guessed: network ndr");
  EXPECT_EQ(out.find("guessed"), out.npos) << out;
  // The same of options. A user that says all of it is told of no guess.
  ASSERT_EQ(tutti("predict all_reduce -m 8xH100 -H 2 -N 'ib 400G' -b 1M -e 1M"), 0) << err;
  EXPECT_CONTAINS(out, "network ib 8x400G");
  EXPECT_CONTAINS(out, "# guessed: 8 ports, one for each GPU");
  ASSERT_EQ(tutti("predict all_reduce -m 8xH100 -H 2 -N 'ib 1x400G' -b 1M -e 1M"), 0) << err;
  EXPECT_CONTAINS(out, "network ib 1x400G");
  EXPECT_EQ(out.find("guessed"), out.npos) << out;
}

TEST_F(TopologyCli, MigsInstancesAreThoseThatTheDriverLists) {
  setenv("LD_LIBRARY_PATH", FAKE_NVML, 1);
  ASSERT_EQ(tutti("topo --matrix"), 0) << err;
  EXPECT_CONTAINS(out, "NV4");
  EXPECT_EQ(out.find("GPU2"), out.npos) << out;
  setenv("FAKE_MIG", "3", 1);
  ASSERT_EQ(tutti("topo"), 0) << err;
  unsetenv("LD_LIBRARY_PATH");
  unsetenv("FAKE_MIG");
  EXPECT_CONTAINS(out, "GPU in 3 parts");
  EXPECT_EQ(test::count(out, "MIG 2g.10gb"), 3U);
  EXPECT_CONTAINS(out, "gpu3");
  EXPECT_EQ(out.find("NVLink x"), out.npos) << out;
  EXPECT_CONTAINS(out, "not seen: NVLink of gpu0");
}

TEST_F(TopologyCli, ComparesWithALog) {
  folder.write("2xRTX4090_1node.log",
               "   1048576  262144  float  sum  -1  149.1  7.03  7.03  0\n"
               "   2097152  524288  float  sum  -1host: NCCL INFO\n"
               "   4194304 1048576  float  sum  -1  590.5  7.10  7.10  0\n");
  ASSERT_EQ(tutti("predict --log 2xRTX4090_1node.log"), 0) << err;
  EXPECT_CONTAINS(out, "with 2 ranks: 2xRTX-4090");
  EXPECT_CONTAINS(out, "1 that are not whole");
  EXPECT_CONTAINS(out, "# error of 2 rows of 1 KiB and more: median ");
}

TEST_F(TopologyCli, JudgesALog) {
  // At the rate of PCI, and as fast as a sound machine.
  folder.write("8xA100_1node_slow.log",
               "    67108864   16777216  float  sum  -1   5836  11.50  20.12  0\n"
               "  1073741824  268435456  float  sum  -1  93369  11.50  20.12  0\n");
  folder.write("2xRTX4090_1node_fine.log",
               "   1048576  262144  float  sum  -1  149.1  7.03  7.03  0\n"
               "   4194304 1048576  float  sum  -1  590.5  7.10  7.10  0\n");
  EXPECT_EQ(tutti("predict --log 8xA100_1node_slow.log"), 1) << err;
  EXPECT_TRUE(out.starts_with("slow: 64 MiB to 1 GiB 20 GB/s where ")) << out;
  EXPECT_CONTAINS(out, "likely causes, the best fit first");
  EXPECT_CONTAINS(out, "PCI instead of NVLink");
  EXPECT_CONTAINS(out, "guessed A100, by the log's name");
  EXPECT_EQ(tutti("predict --log 2xRTX4090_1node_fine.log"), 0) << err;
  EXPECT_TRUE(out.starts_with("fine: 2 of 2 sizes from 1 MiB to 4 MiB")) << out;
  EXPECT_EQ(tutti("predict --json --log 8xA100_1node_slow.log"), 1) << err;
  const auto slow = nlohmann::json::parse(out);
  EXPECT_EQ(slow["verdict"], "slow");
  EXPECT_GT(slow["at_least"], 3);
  EXPECT_FALSE(slow["causes"].empty());
  // Programs that read tables are not told.
  EXPECT_EQ(tutti("predict --csv --log 8xA100_1node_slow.log"), 0) << err;
  // Nobody says which network it was, and some networks are as slow as this.
  folder.write("16xH100_2node_slow.log",
               " 1073741824  268435456  float  sum  -1  300000  3.58  6.71  0\n");
  EXPECT_EQ(tutti("predict all_reduce --log 16xH100_2node_slow.log"), 3) << err;
  EXPECT_TRUE(out.starts_with("no verdict: 1 GiB")) << out;
  EXPECT_CONTAINS(out, "G would be as fast as this");
  EXPECT_EQ(tutti("predict all_reduce --log 16xH100_2node_slow.log -N '8x400G ib'"), 1) << err;
  EXPECT_EQ(tutti("predict all_reduce --json -m 8xH100"), 2);
  EXPECT_CONTAINS(err, "--log");
}

TEST_F(TopologyCli, JudgesAllTablesOfALog) {
  const std::string ranks =
      "# nThread 1 nGpus 8 minBytes 8\n"
      "#  Rank  7 Group 0 Pid 11 on a device 7 [0x8f] NVIDIA A100-SXM4-80GB\n";
  const std::string fast = "# Collective test starting: all_reduce_perf\n" + ranks +
                           " 1073741824  268435456  float  sum  -1  8000  134.22  234.88  0\n";
  const std::string sends = "# Collective test starting: sendrecv_perf\n" + ranks +
                            " 1073741824  268435456  float  sum  -1  53687  20.00  20.00  0\n";
  const std::string none = "# Collective test starting: hypercube_perf\n" + ranks +
                           " 1073741824  33554432  float  none  -1  8000  134.22  117.44  0\n";
  folder.write("tables.log", fast + sends + none);
  EXPECT_EQ(tutti("predict --log tables.log"), 1) << err;
  EXPECT_TRUE(out.starts_with("slow: 1 of 3 tables\n")) << out;
  EXPECT_CONTAINS(out, "  1. all_reduce of 8 ranks on 1 host: fine: ");
  EXPECT_CONTAINS(out, "  2. send_recv of 8 ranks on 1 host: slow: 1 GiB 20 GB/s where ");
  EXPECT_CONTAINS(out, "hypercube is no collective that is predicted");
  EXPECT_CONTAINS(out, "# predicted all_reduce with 8 ranks");
  EXPECT_CONTAINS(out, "# predicted send_recv with 8 ranks");
  EXPECT_EQ(out.find("left out"), out.npos) << out;
  EXPECT_EQ(tutti("predict --json --log tables.log"), 1) << err;
  const auto all = nlohmann::json::parse(out);
  ASSERT_EQ(all["tables"].size(), 3U);
  EXPECT_EQ(all["tables"][1]["verdict"], "slow");
  EXPECT_EQ(tutti("predict --csv --log tables.log"), 0) << err;
  EXPECT_EQ(test::count(out, "\n"), 2U) << out;
  // One collective's table alone.
  EXPECT_EQ(tutti("predict all_reduce --log tables.log"), 0) << err;
  EXPECT_TRUE(out.starts_with("fine: 1 of 1 size")) << out;
  EXPECT_CONTAINS(out, "2 rows of other tests in it are left out");
}

TEST_F(TopologyCli, GuessesGpusByTheRatesOfTheirLinks) {
  const auto guess = [&](const std::string& row) {
    folder.write("plain.log", "# nThread 1 nGpus 8 minBytes 8\n" + row);
    tutti("predict --json --log plain.log");
    return nlohmann::json::parse(out)["machine"].get<std::string>();
  };
  EXPECT_EQ(guess(" 1073741824 268435456 float sum -1 7368 145.73 255.00 0\n"), "8xA100-SXM4-80GB");
  EXPECT_EQ(guess(" 1073741824 268435456 float sum -1 3145 341.41 597.47 0\n"), "8xH100-SXM5");
  EXPECT_EQ(guess(" 1073741824 268435456 float sum -1 2200 488.06 854.11 0\n"), "8xB200");
}

TEST_F(TopologyCli, RefusesWhatItCannotUse) {
  const auto refused = [&](const std::string& arguments, const std::string& part) {
    EXPECT_EQ(tutti(arguments), 2) << arguments;
    EXPECT_CONTAINS(err, part);
    EXPECT_LT(err.size(), 1000U);
  };
  folder.write("empty.log", "");
  folder.write("binary.log", std::string("\x7f"
                                         "ELF\0\1\2\xff\xfe",
                                         9));
  folder.write("cut.log", "   1048576  262144  float  sum  -1  149");
  folder.write("negative.log", "  -1048576 -262144 float sum -1 149.1 7.03 7.03 0\n");
  folder.write("bomb.xml",
               "<?xml version=\"1.0\"?><!DOCTYPE b [<!ENTITY a \"aaaa\"><!ENTITY c "
               "\"&a;&a;&a;&a;&a;&a;\">]><system version=\"1\">&c;</system>");
  // 100 MB; no byte of them lies on the disk.
  std::ofstream(folder.path() + "/large").seekp(100'000'000).put('\n');
  refused("predict --log empty.log", "no row");
  refused("predict --log binary.log", "no row");
  refused("predict --log cut.log", "not whole");
  refused("predict --log negative.log", "no row");
  refused("predict --log .", ".");
  refused("predict --log large", "large");
  refused("predict --log none.log", "none.log");
  refused("predict all_reduce --topology bomb.xml", "bomb.xml");
  refused("predict all_reduce --topology large", "large");
  refused("predict all_reduce --topology binary.log", "binary.log");
  refused("predict all_reduce", "--topology");
  refused("predict nonsense -m 8xH100", "nonsense");
  refused("predict barrier -m 8xH100", "barrier");
  refused("predict all_reduce -m 8xH100 -b -8", "-8");
  refused("predict all_reduce -m 8xH100 -b 2M -e 1M", "-b");
  refused("predict all_reduce -m 8xH100 --hosts -1", "-1");
  refused("predict all_reduce -m 8xH100 --hosts 2 --network carrier-pigeon", "carrier-pigeon");
  refused("predict all_reduce -m 8xH100 --gpus 9", "8 GPUs");
  refused("predict all_reduce -m 8xH100 --copy-engines", "copy engines");
  refused("predict all_gather -m 8xH100 --copy-engines --hosts 2", "no other hosts");
  refused("predict all_gather -m 8xH100 --copy-engines --ours", "--ours");
}

}  // namespace
}  // namespace tutti
