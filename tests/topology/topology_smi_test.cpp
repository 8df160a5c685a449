// The matrix that `nvidia-smi topo -m` prints, with one wrong record at a time and without.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <string>

#include "tests/support/contains.h"
#include "tests/topology/topology_texts.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

constexpr const char* kSmiHead =
    "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";

TEST(Smi, ReadsTabsSpacesAndMissingColumns) {
  const std::string tabs = std::string("\033[4m") + kSmiHead + "\033[0m" +
                           "GPU0\t X \tNV4\tPIX\tSYS\t0-3,8-11\t0\t\tN/A\n"
                           "GPU1\tNV4\t X \tSYS\tPXB\t4-7\t1\t\tN/A\n"
                           "NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t\nNIC1\tSYS\tPXB\tSYS\t X \t\t\t\t\n\n"
                           "Legend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_7\n";
  const Graph g = graph_of_text(tabs);
  EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
  EXPECT_EQ(near(g, "gpu0", "gpu1"), "NV4");
  EXPECT_EQ(near(g, "gpu0", "mlx5_7"), "PIX");
  EXPECT_EQ(near(g, "gpu1", "NIC1"), "PXB");
  EXPECT_EQ(near(g, "gpu0", "NIC1"), "SYS");
  const Graph spaces = graph_of_text(
      "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
      "GPU0     X      NODE     0-23            N/A\nGPU1    NODE     X      0-23            "
      "N/A\n");
  EXPECT_EQ(near(spaces, "gpu0", "gpu1"), "NODE");
}

TEST(Smi, EightOnSwitchesAreNoMesh) {
  std::string text = "      GPU0 GPU1 GPU2 GPU3\n";
  for (int i = 0; i < 4; ++i) {
    text += fmt::format("GPU{}", i);
    for (int j = 0; j < 4; ++j) text += i == j ? " X" : " NV18";
    text += "\n";
  }
  const Graph g = graph_of_text(text);
  EXPECT_EQ(g.all(NodeKind::gpu_switch).size(), 1u);
  EXPECT_EQ(near(g, "gpu0", "gpu3"), "NV18");
}

TEST(Smi, RefusesStatusMatrices) {
  EXPECT_CONTAINS(refusal(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tNS\tX\n"), "topo -m");
  EXPECT_CONTAINS(refusal("GPU0 GPU1\nGPU0 X\n"), "sample:2");
  EXPECT_CONTAINS(refusal("GPU0 GPU1 GPU2\nGPU0 X PIX PIX\n"), "no row of GPU1");
}

TEST(Smi, WhatIsNearerThanItsCellsIsSaid) {
  // NIC0 is near to GPU1, GPU1 to GPU0; and GPU0 to NIC0 is not, both ways.
  const Graph g = graph_of_text(
      "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNODE\tSYS\t0-3\t0\nGPU1\tNODE\t X \tNODE\t0-3\t0\nNIC0\tSYS\tNODE\t X \t\t\n");
  EXPECT_EQ(near(g, "gpu0", "NIC0"), "NODE");
  ASSERT_EQ(g.doubts.size(), 1U);
  EXPECT_CONTAINS(
      g.doubts[0].what,
      "GPU0 -> NIC0, NIC0 -> GPU0 is SYS, but what else is said of the two makes it NODE, "
      "which is taken");
}

/// Two pairs of a GPU and a NIC on each of two domains; `change` is told each cell.
std::string smi_matrix(const std::function<std::string(int, int, std::string)>& change,
                       const std::string& numa = "", int without_row = -1) {
  std::string text =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity\n";
  for (int i = 0; i < 8; ++i) {
    if (i == without_row) continue;
    text += fmt::format("{}{}", i < 4 ? "GPU" : "NIC", i % 4);
    for (int j = 0; j < 8; ++j) {
      const std::string cell = i == j                   ? " X "
                               : i < 4 && j < 4         ? "NV18"
                               : i % 4 == j % 4         ? "PIX"
                               : i % 4 / 2 == j % 4 / 2 ? "NODE"
                                                        : "SYS";
      text += "\t" + change(i, j, cell);
    }
    if (i < 4)
      text += fmt::format("\t{}\t{}", i < 2 ? "0-3" : "4-7",
                          numa.empty() || i != 1 ? (i < 2 ? "0,2-9" : "1,10-17") : numa);
    text += "\n";
  }
  return text;
}

std::string as_is(int, int, std::string cell) { return cell; }

/// What a healthy matrix says, with one doubt that names what is wrong.
void expect_mended(const std::string& text, const std::string& doubt) {
  const Graph g = graph_of_text(text);
  ASSERT_EQ(g.doubts.size(), 1u) << doubt << ": " << (g.doubts.empty() ? "" : g.doubts.back().what);
  EXPECT_CONTAINS(g.doubts[0].what, doubt);
  EXPECT_EQ(g.all(NodeKind::numa).size(), 2u) << doubt;
  EXPECT_EQ(near(g, "gpu0", "NIC0"), "PIX") << doubt;
  EXPECT_EQ(near(g, "gpu0", "NIC1"), "NODE") << doubt;
  EXPECT_EQ(near(g, "gpu0", "NIC3"), "SYS") << doubt;
  EXPECT_EQ(near(g, "gpu1", "gpu2"), "NV18") << doubt;
}

TEST(Smi, OneWrongRecordDoesNotDecide) {
  const Graph healthy = graph_of_text(smi_matrix(as_is));
  EXPECT_TRUE(healthy.doubts.empty()) << healthy.doubts.front().what;
  EXPECT_EQ(healthy.node(healthy.find("numa1")).number, 1) << "of 1,10-17";
  const auto one = [](int row, int column, const std::string& value) {
    return smi_matrix([=](int i, int j, const std::string& cell) {
      return i == row && j == column ? value : cell;
    });
  };
  expect_mended(one(0, 7, "PIX"), "GPU0 -> NIC3 is PIX, back it is SYS; SYS is taken");
  expect_mended(one(7, 0, "NODE"), "GPU0 -> NIC3 is SYS, back it is NODE; SYS is taken");
  expect_mended(one(0, 4, "SYS"), "GPU0 -> NIC0 is SYS, back it is PIX; PIX is taken");
  expect_mended(one(4, 0, "N/A"), "NIC0 -> GPU0 has 'N/A'");
  expect_mended(one(1, 2, "NV0"), "gpu1 -> gpu2 has 0 links");
  expect_mended(smi_matrix(as_is, "1"), "GPU1 says NUMA domain 1");
  expect_mended(smi_matrix(as_is, "", 1), "GPU1 has no row");
  expect_mended(smi_matrix(as_is, "", 5), "NIC1 has no row");
  const std::string text = smi_matrix(as_is);
  const std::size_t row = text.find("GPU1\tNV18"), end = text.find('\n', row);
  expect_mended(text + text.substr(row, end + 1 - row), "GPU1 has two rows");
  expect_mended(text + "\n" + text, "another matrix");
}

/// The healthy matrix with another head.
std::string with_head(const std::string& head) {
  const std::string text = smi_matrix(as_is);
  return head + "\tCPU Affinity\tNUMA Affinity" + text.substr(text.find('\n'));
}

TEST(Smi, RowsTellTheColumnsWhereTheHeadIsDamaged) {
  for (const auto& [head, doubt] : {
           std::pair{"\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2", "(without NIC3); the rows"},
           {"\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC2\tNIC3", "(without NIC1); the rows"},
           {"\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC3", "(without GPU0); the rows"},
           {"\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1NIC2\tNIC3",
            "(without NIC1, NIC2; with NIC1NIC2); the rows"},
           {"\tGPU0GPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC3",
            "(without GPU0, GPU1; with GPU0GPU1); the rows"},
           {"\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC1",
            "(without NIC3; twice NIC1); the rows"},
           {"\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC1\tNIC2\tNIC3", "(twice NIC1); the rows"},
           {"\tGPU0\tGPU1\tGPU2\tGPU3", "(without NIC0, NIC1, NIC2, NIC3); the rows"},
           {"\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tNIC3CPU",
            "(without NIC3; with NIC3CPU, Affinity); the rows"},
       }) {
    const std::string text =
        doubt == std::string("(without NIC3; with NIC3CPU, Affinity); the rows")
            ? head + std::string(" Affinity\tNUMA Affinity") +
                  smi_matrix(as_is).substr(smi_matrix(as_is).find('\n'))
            : with_head(head);
    expect_mended(text, doubt);
    EXPECT_EQ(graph_of_text(text).all(NodeKind::port).size(), 4u) << head;
  }
}

TEST(Smi, WhatFitsNeitherHeadNorRowsIsNamedAndLeftOut) {
  // The last device's name and its row are lost: its cells are left.
  std::string text = smi_matrix(as_is, "", 7);
  text.erase(text.find("\tNIC3"), 5);
  const Graph g = graph_of_text(text);
  EXPECT_EQ(g.all(NodeKind::port).size(), 3u);
  EXPECT_EQ(g.all(NodeKind::numa).size(), 2u);
  EXPECT_EQ(g.node(g.find("numa1")).number, 1);
  ASSERT_FALSE(g.doubts.empty());
  EXPECT_CONTAINS(g.doubts[0].what, "1 more cell than there are columns (7)");
  // The same of one in the middle: nobody can tell whose cells are whose.
  text = smi_matrix(as_is, "", 5);
  text.erase(text.find("\tNIC1"), 5);
  EXPECT_CONTAINS(refusal(text),
                  "NIC3 has its X in place 8, and its name is in place 7 of the head");
  // A row that has lost a cell.
  text = smi_matrix(as_is);
  const std::size_t row = text.find("GPU1\tNV18\t");
  text.erase(row + 4, 5);
  const Graph short_row = graph_of_text(text);
  EXPECT_EQ(short_row.doubts.size(), 2u);
  EXPECT_CONTAINS(short_row.doubts[0].what, "GPU1 has its X in place 1");
  EXPECT_EQ(near(short_row, "gpu1", "NIC1"), "PIX");
  // A row with a name of its own.
  text = smi_matrix(as_is);
  text.replace(text.find("\nNIC3\t") + 1, 4, "NIC9");
  EXPECT_EQ(graph_of_text(text).all(NodeKind::port).size(), 4u);
  EXPECT_CONTAINS(graph_of_text(text).doubts[0].what, "(without NIC9; with NIC3)");
}

TEST(Smi, AffinitiesAndLegendsThatDoNotFitAreNamed) {
  expect_mended(std::regex_replace(smi_matrix(as_is), std::regex("\t0-3\t"), "\t0..3\t",
                                   std::regex_constants::format_first_only),
                "GPU0 has the CPU affinity '0..3', which is no list of numbers");
  const std::string legend = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n";
  EXPECT_TRUE(graph_of_text(smi_matrix(as_is) + legend).doubts.empty());
  for (const auto& [line, doubt] :
       {std::pair{"  NIC4: mlx5_4\n", "the legend names NIC4 that the matrix does not have"},
        {"  NIC1: mlx5_9\n", "the legend names NIC1 twice; the first name counts"}}) {
    const Graph g = graph_of_text(smi_matrix(as_is) + legend + line);
    ASSERT_EQ(g.doubts.size(), 1u);
    EXPECT_CONTAINS(g.doubts[0].what, doubt);
    EXPECT_EQ(near(g, "gpu1", "mlx5_1"), "PIX");
  }
}

TEST(Smi, ManyDoubtsAreOneShortLine) {
  std::string text = "\t", rows;
  for (int i = 0; i < 64; ++i) {
    text += fmt::format("GPU{}\t", i);
    rows += fmt::format("\nGPU{}", i);
    for (int j = 0; j < 64; ++j) rows += i == j ? "\tX" : i < j ? "\tSYS" : "\tNODE";
  }
  const Graph g = graph_of_text(text + rows);
  ASSERT_EQ(g.doubts.size(), 1u);
  EXPECT_CONTAINS(g.doubts[0].what, "and 1760 more is SYS, back it is NODE; NODE is taken");
}

TEST(Smi, IgnoresBlankLinesMarksAndEndsOfLines) {
  const std::string text = smi_matrix(as_is);
  for (const auto& [what, with] : {std::pair{"\n", "\n\n"}, {"\n", "\r\n"}}) {
    const Graph g =
        graph_of_text("\xef\xbb\xbf" + std::regex_replace(text, std::regex(what), with));
    EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
    EXPECT_EQ(g.all(NodeKind::port).size(), 4u);
  }
}

TEST(Smi, GuestsWithoutDomainsHaveOne) {
  // The same cores, or none at all: no reason to put a socket's link between GPUs.
  for (const char* cores : {"0-23\tN/A", "\t", "N/A\tN/A"}) {
    const Graph g = graph_of_text(fmt::format(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV2\t{}\nGPU1\tNV2\tX\t{}\n", cores,
        cores));
    EXPECT_TRUE(g.doubts.empty()) << g.doubts.front().what;
    EXPECT_EQ(g.all(NodeKind::numa).size(), 1u) << cores;
  }
}

}  // namespace
}  // namespace tutti::topology
