// Topologies that chance has changed, in bytes and in elements: whatever comes out, a graph or an
// error, nothing crashes and nothing hangs. TOPOLOGY_MUTANTS says how many (`make test-long` takes
// 100,000); under AddressSanitizer this looks at each byte that is read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "collectives/draw/topology.h"
#include "core/error.h"
#include "tests/support/nccl_graphs.h"
#include "tests/topology/topology_data.h"
#include "tests/topology/topology_samples.h"
#include "topology/discover.h"
#include "topology/show/json.h"
#include "topology/show/text.h"
#include "topology/source.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t n) { return n == 0 ? 0 : random() % n; }

std::vector<std::string> seeds() {
  std::vector<std::string> all{
      kMesh,
      kSwitched,
      kAmd,
      kSkeleton,
      kHwloc1,
      kHwloc3,
      "      GPU0 GPU1 NIC0\nGPU0 X NV4 PIX\nGPU1 NV4 X SYS\nNIC0 PIX SYS X\n"};
  for (const char* folder : {"nccl-xml", "nccl-graph-xml", "hwloc-xml", "smi"}) {
    for (const std::string& file : topology_files(folder)) {
      const std::string text = read_file(file);
      if (text.size() < 120'000) all.push_back(text);
    }
  }
  return all;
}

void change_bytes(std::string& text, Random& random) {
  static const std::vector<std::string> kTokens{"0",
                                                "-1",
                                                "99999999999999999999",
                                                "0x",
                                                "\"",
                                                "<",
                                                ">",
                                                "/>",
                                                "<!--",
                                                "-->",
                                                "<![CDATA[",
                                                "&lt;",
                                                "fffffff:ff:ff.0",
                                                "NV999999",
                                                "\xff\xfe",
                                                std::string(1, '\0'),
                                                "\t",
                                                "nan",
                                                "1e308"};
  const std::size_t at = below(random, text.size());
  switch (below(random, 5)) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, 1 + below(random, 40));
      break;
    case 2:
      text.insert(at, kTokens[below(random, kTokens.size())]);
      break;
    case 3: {
      const std::size_t from = below(random, text.size());
      text.insert(at, text.substr(from, below(random, 400)));
      break;
    }
    default:
      text.resize(at);
  }
}

/// A number in quotes becomes another one; an element goes, comes twice, or moves.
void change_elements(std::string& text, Random& random) {
  static const std::vector<std::string> kValues{
      "0",        "-1", "2147483648", "18446744073709551616", "", "0x030200", "0x068000", "16",
      "2.5 GT/s", "x",  "1000000"};
  const std::size_t start = below(random, text.size());
  if (below(random, 2) == 0) {
    const std::size_t open = text.find("=\"", start);
    const std::size_t close = open == std::string::npos ? open : text.find('"', open + 2);
    if (close == std::string::npos) return;
    text.replace(open + 2, close - open - 2, kValues[below(random, kValues.size())]);
    return;
  }
  const std::size_t open = text.find('<', start);
  const std::size_t close = open == std::string::npos ? open : text.find("/>", open);
  if (close == std::string::npos || close - open > 2000) return;
  const std::string element = text.substr(open, close + 2 - open);
  if (below(random, 2) == 0) text.erase(open, element.size());
  const std::size_t to = text.find('<', below(random, text.size()));
  if (to != std::string::npos && below(random, 3) > 0) text.insert(to, element);
}

/// Everything that reads a topology reads it.
void use(const std::string& text) {
  if (text.find("<graphs") != std::string::npos) {
    read_nccl_graphs(XmlSource(text, "mutant"));
    return;
  }
  Records records = records_of(text, "mutant");
  const Inventory inventory = inventory_of(records);
  const Graph graph = graph_of(records);
  for (const Link& l : graph.links()) {
    ASSERT_TRUE(std::isfinite(l.bandwidth) && l.bandwidth > 0);
    ASSERT_NE(l.from, l.to);
  }
  if (graph.nodes().size() > 300) return;
  tree_text(graph);
  matrix_text(graph);
  to_json(graph, inventory);
  draw_topology(graph);
  records_of(to_nccl_xml(records), "again");
}

TEST(Mutants, NeitherCrashNorHang) {
  const char* const wanted = std::getenv("TOPOLOGY_MUTANTS");
  const int count = wanted == nullptr ? 1500 : std::atoi(wanted);
  const auto all = seeds();
  Random random(20260);
  int graphs = 0;
  for (int i = 0; i < count; ++i) {
    std::string text = all[static_cast<std::size_t>(i) % all.size()];
    for (std::size_t n = 1 + below(random, 6); n > 0 && !text.empty(); --n) {
      below(random, 3) == 0 ? change_bytes(text, random) : change_elements(text, random);
    }
    try {
      use(text);
      ++graphs;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    }
  }
  // They are no mutants if nothing is left of what they were.
  EXPECT_GT(graphs, count / 4);
  EXPECT_LT(graphs, count);
}

}  // namespace
}  // namespace tutti::topology
