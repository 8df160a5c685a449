// Real topology files (tests/topology/topology_data.h), each with one fault at a time: it is named
// once, and plans keep half of the bandwidth at least.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <pugixml.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "collectives/model/lanes.h"
#include "core/error.h"
#include "tests/topology/topology_data.h"
#include "tests/topology/topology_file_checks.h"
#include "topology/discover.h"
#include "topology/nics.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

using namespace tutti::test;

/// The doubts of each record, without line numbers (these move when an element goes). "gpu0, gpu1
/// say so" is two of them.
std::set<std::string> said(const Graph& g) {
  std::set<std::string> all;
  for (const Doubt& d : g.doubts) {
    const std::string text = d.what.substr(d.what.find(": ") + 2);
    std::size_t verb = std::string::npos;
    for (const char* v : {" has ", " says ", " is ", " does ", " calls ", " would "}) {
      verb = std::min(verb, text.find(v));
    }
    std::string names = text.substr(0, verb);
    const std::string rest = verb == std::string::npos ? "" : text.substr(verb);
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t end = std::min(names.find(", ", at), names.size());
      all.insert(names.substr(at, end - at) + rest);
      at = end + 2;
    }
  }
  return all;
}

std::string text_of_xml(const pugi::xml_document& document) {
  std::ostringstream stream;
  document.save(stream, "", pugi::format_indent | pugi::format_no_declaration);
  return stream.str();
}

/// What rings carry: inside of the host, and through it where it has ports.
struct Carried {
  double inside = 0, through = 0;

  explicit Carried(const Graph& g) {
    if (g.gpus().size() < 2) return;
    LanesRequest request;
    inside = find_lanes(g, 0, request).bandwidth;
    request.several_hosts = true;
    if (!data_ports(g, 0).empty()) through = find_lanes(g, 0, request).bandwidth;
  }
};

/// A file as it is, and what is said of it with one fault in it.
class Faulty {
 public:
  explicit Faulty(const std::string& file)
      : text(read_file(file)), healthy_(graph(text)), before_(said(healthy_)), carried_(healthy_) {
    if (text.starts_with('<')) {
      EXPECT_TRUE(document.load_string(text.c_str())) << file;
    }
  }

  int new_doubts(const pugi::xml_document& changed) { return new_doubts(text_of_xml(changed)); }
  /// How many doubts are new. Plans stay valid, and have half of the bandwidth at least.
  int new_doubts(const std::string& changed) {
    const Graph g = graph(changed);
    expect_valid(g);
    int fresh = 0;
    shown.clear();
    for (const std::string& d : said(g)) {
      if (before_.contains(d)) continue;
      ++fresh;
      shown += (shown.empty() ? "" : " | ") + d;
    }
    assumed = g.unseen != healthy_.unseen;
    gpus = static_cast<int>(g.gpus().size()) - static_cast<int>(healthy_.gpus().size());
    left = 1;
    if (alike(g, healthy_)) return fresh;
    const Carried carried(g);
    if (g.gpus().size() > 1 && carried_.inside > 0) left = carried.inside / carried_.inside;
    if (g.gpus().size() > 1 && carried_.through > 0) {
      left = std::min(left, carried.through / carried_.through);
    }
    return fresh;
  }

  std::string text;
  pugi::xml_document document;  // of XML
  std::string shown;            // the new doubts
  double left = 1;              // of the bandwidth
  int gpus = 0;                 // more than before
  bool assumed = false;         // it says of other things that they are not in the file

 private:
  /// Then plans are the same, and need not be made.
  static bool alike(const Graph& a, const Graph& b) {
    return a.nodes().size() == b.nodes().size() &&
           std::ranges::equal(a.links(), b.links(), [](const Link& x, const Link& y) {
             return x.from == y.from && x.to == y.to && x.kind == y.kind &&
                    std::abs(x.bandwidth - y.bandwidth) < 1e-9;
           });
  }
  static Graph graph(const std::string& text) {
    Records r = records_of(text, "file");
    return graph_of(r);
  }

  Graph healthy_;
  std::set<std::string> before_;
  Carried carried_;
};

constexpr double kLeft = 0.5 - 1e-9;

/// Each link of GPUs, in each file, dropped, zeroed, doubled, made asymmetric.
TEST(Faults, OfGpuLinksAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int faults = 0;
  for (const std::string& file : topology_files("nccl-xml")) {
    if (base(file).find("ASYMMETRIC") != std::string::npos) continue;  // it has a fault already
    Faulty faulty(file);
    for (const char* name : {"nvlink", "xgmi", "c2c"}) {
      const auto all = faulty.document.select_nodes(fmt::format("//{}", name).c_str());
      // Of hundreds that are alike, some.
      const std::size_t stride = std::max<std::size_t>(1, all.size() / 12);
      for (std::size_t i = 0; i < all.size(); i += stride) {
        pugi::xml_node node = all[i].node();
        pugi::xml_attribute count = node.attribute("count");
        const int healthy_count = count.as_int();
        for (const int value : {0, 2 * healthy_count, healthy_count + 1, -1}) {
          if (value < 0) {
            pugi::xml_document without;
            without.reset(faulty.document);
            auto same = without.select_nodes(fmt::format("//{}", name).c_str())[i].node();
            same.parent().remove_child(same);
            EXPECT_EQ(faulty.new_doubts(without), 1)
                << base(file) << " " << name << " " << i << " dropped: " << faulty.shown;
          } else {
            count.set_value(value);
            EXPECT_EQ(faulty.new_doubts(faulty.document), 1)
                << base(file) << " " << name << " " << i << " count " << value << ": "
                << faulty.shown;
            count.set_value(healthy_count);
          }
          EXPECT_GE(faulty.left, kLeft) << base(file) << " " << name << " " << i << ": " << value;
          ++faults;
        }
      }
    }
  }
  RecordProperty("faults", faults);
  EXPECT_GT(faults, 1000);
}

/// Where links go, and what is said to be there: of one GPU, one record and all of them. Nothing
/// costs more than half without a word, and where a switch joins GPUs nothing does at all.
TEST(Faults, OfWhereLinksGoCostNoHalfSilently) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int faults = 0;
  for (const std::string& file : topology_files("nccl-xml")) {
    if (base(file).find("ASYMMETRIC") != std::string::npos) continue;  // it has a fault already
    Faulty faulty(file);
    const auto gpus = faulty.document.select_nodes("//gpu[nvlink]");
    for (std::size_t i = 0; i < gpus.size(); i += std::max<std::size_t>(1, gpus.size() / 2)) {
      for (const auto& [what, value] : std::map<std::string, std::string>{
               {"tclass", "0x020000"}, {"tclass ", "0x030200"}, {"target", "0000:f7:00.0"}}) {
        for (const bool all : {false, true}) {
          pugi::xml_document changed;
          changed.reset(faulty.document);
          const auto gpu = changed.select_nodes("//gpu[nvlink]")[i].node();
          const std::string attribute = what.substr(0, 6);
          for (pugi::xml_node link : gpu.children("nvlink")) {
            link.attribute(attribute.c_str()).set_value(value.c_str());
            if (!all) break;
          }
          const bool switches =
              std::string(gpu.child("nvlink").attribute("tclass").value()) == "0x068000";
          const int doubts = faulty.new_doubts(changed);
          EXPECT_TRUE(doubts > 0 || faulty.left >= kLeft)
              << base(file) << " gpu " << i << " " << what << " " << value << " all " << all;
          if (switches || attribute == "tclass") {
            EXPECT_GE(faulty.left, kLeft) << base(file) << " gpu " << i << " " << what << " "
                                          << value << " all " << all << ": " << faulty.shown;
          }
          ++faults;
        }
      }
    }
  }
  EXPECT_GT(faults, 50);
}

/// Speeds: of PCI links, and of ports.
TEST(Faults, OfSpeedsAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const std::string kOfNoLink = "link_speed of a host bridge dropped";
  std::map<std::string, std::pair<int, int>> found;  // by kind: named once, all
  for (const std::string& file : topology_files("nccl-xml")) {
    Faulty faulty(file);
    const auto attempt = [&](pugi::xml_node node, const char* attribute, const char* value,
                             const std::string& kind) {
      pugi::xml_attribute a = node.attribute(attribute);
      if (a.empty() || std::string(a.value()).empty()) return;
      const std::string was = a.value();
      if (was == value) return;
      a.set_value(value);
      const int n = faulty.new_doubts(faulty.document);
      a.set_value(was.c_str());
      auto& [once, all] = found[kind];
      once += n == 1 ? 1 : 0;
      ++all;
      EXPECT_LE(n, 1) << base(file) << " " << kind << ": " << faulty.shown;
      EXPECT_GE(faulty.left, kLeft) << base(file) << " " << kind << ": " << faulty.shown;
    };
    const auto pcis = faulty.document.select_nodes("//pci");
    const std::size_t stride = std::max<std::size_t>(1, pcis.size() / 8);
    for (std::size_t i = 0; i < pcis.size(); i += stride) {
      // A host bridge has no link: whatever its record says counts for nothing, and is not missed.
      const bool host_bridge =
          std::string(pcis[i].node().attribute("class").value()).starts_with("0x0600");
      attempt(pcis[i].node(), "link_speed", "", host_bridge ? kOfNoLink : "link_speed dropped");
      attempt(pcis[i].node(), "link_speed", "0 GT/s", "link_speed zero");
      attempt(pcis[i].node(), "link_width", "0", "link_width zero");
      attempt(pcis[i].node(), "link_width", "-16", "link_width negative");
    }
    for (const auto& net : faulty.document.select_nodes("//pci/nic/net")) {
      attempt(net.node(), "speed", "0", "speed zero");
      attempt(net.node(), "speed", "200000000", "speed in another unit");
    }
  }
  for (const auto& [kind, count] : found) {
    fmt::print("{}: {} of {} named\n", kind, count.first, count.second);
    EXPECT_EQ(count.first, kind == kOfNoLink ? 0 : count.second) << kind;
  }
}

/// Any attribute of a device or a processor, with other values: whatever it is, nothing costs more
/// than half without a word. One in ten is tried; TOPOLOGY_FAULTS says how many are one (`make
/// test-long`: 1).
TEST(Faults, OfAnyAttributeCostNoHalfSilently) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  const char* const wanted = std::getenv("TOPOLOGY_FAULTS");
  const int stride = std::max(1, wanted == nullptr ? 10 : std::atoi(wanted));
  int all = 0, faults = 0, silent = 0, twice = 0;
  for (const std::string& file : topology_files("nccl-xml")) {
    Faulty faulty(file);
    for (const char* name : {"cpu", "pci", "nic", "net", "gpu", "nvlink", "xgmi", "c2c"}) {
      const auto nodes = faulty.document.select_nodes(fmt::format("//{}", name).c_str());
      for (std::size_t i = 0; i < nodes.size(); i += std::max<std::size_t>(1, nodes.size() / 3)) {
        for (pugi::xml_attribute a : nodes[i].node().attributes()) {
          const std::string was = a.value();
          for (const char* value : {"", "0", "-1", "x", "2147483648"}) {
            if (was == value || ++all % stride != 0) continue;
            a.set_value(value);
            ++faults;
            const std::string what = fmt::format("{} {} {} {}='{}', was '{}'", base(file), name, i,
                                                 a.name(), value, was);
            try {
              const int doubts = faulty.new_doubts(faulty.document);
              const bool lost = faulty.left < kLeft && !faulty.assumed;
              EXPECT_FALSE(lost && doubts == 0) << what << ": " << faulty.left;
              silent += lost && doubts == 0 ? 1 : 0;
              twice += doubts > 1 ? 1 : 0;
              if (doubts > 1) fmt::print("{} doubts: {}: {}\n", doubts, what, faulty.shown);
            } catch (const Error& e) {
              EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << what << ": " << e.what();
            }
            a.set_value(was.c_str());
          }
        }
      }
    }
  }
  fmt::print("{} faults: {} cost more than half silently, {} have several doubts\n", faults, silent,
             twice);
  EXPECT_GT(faults, 100);
}

/// Cells of matrices: of nvidia-smi's links, and of hwloc's bandwidths.
TEST(Faults, OfMatricesAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int faults = 0;
  const auto attempt = [&](const std::string& file, const std::regex& cell, std::size_t most,
                           auto&& values_of) {
    Faulty faulty(file);
    std::vector<std::smatch> cells(
        std::sregex_iterator(faulty.text.begin(), faulty.text.end(), cell), {});
    const std::size_t stride = std::max<std::size_t>(1, cells.size() / most);
    for (std::size_t i = 0; i < cells.size(); i += stride) {
      for (const std::string& value : values_of(cells[i].str())) {
        std::string changed = faulty.text;
        changed.replace(static_cast<std::size_t>(cells[i].position()), cells[i].str().size(),
                        value);
        EXPECT_EQ(faulty.new_doubts(changed), 1)
            << base(file) << " cell " << i << " is " << value << ": " << faulty.shown;
        EXPECT_GE(faulty.left, kLeft) << base(file) << " cell " << i << " is " << value;
        ++faults;
      }
    }
  };
  for (const std::string& file : topology_files("smi")) {
    if (read_file(file).find("OK") != std::string::npos) continue;
    attempt(file, std::regex("NV[0-9]+"), 7, [](const std::string& was) {
      const int links = std::stoi(was.substr(2));
      return std::vector<std::string>{"SYS", fmt::format("NV{}", 2 * links),
                                      fmt::format("NV{}", links + 1)};
    });
  }
  for (const std::string& file : topology_files("hwloc-xml")) {
    if (read_file(file).find("NVLinkBandwidth") == std::string::npos) continue;
    attempt(file, std::regex("\\b25000\\b"), 7, [](const std::string&) {
      return std::vector<std::string>{"0", "50000", "100"};
    });
  }
  RecordProperty("faults", faults);
  EXPECT_GT(faults, 50);
}

/// Whole elements: lost, and there twice. Where an element has others in it, these are as many
/// records; so here are those that have none, and GPUs' records with their links.
TEST(Faults, OfElementsAreNamedOnce) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  struct Seen {
    int faults = 0, silent = 0, once = 0;
  };
  std::map<std::string, Seen> seen;
  for (const std::string& file : topology_files("nccl-xml")) {
    if (base(file).find("ASYMMETRIC") != std::string::npos) continue;
    Faulty faulty(file);
    for (const std::string name : {"gpu", "net", "nvlink", "xgmi", "c2c"}) {
      const auto all = faulty.document.select_nodes(("//pci//" + name).c_str());
      const std::size_t stride = std::max<std::size_t>(1, all.size() / 4);
      for (std::size_t i = 0; i < all.size(); i += stride) {
        for (const bool twice : {false, true}) {
          pugi::xml_document changed;
          changed.reset(faulty.document);
          auto node = changed.select_nodes(("//pci//" + name).c_str())[i].node();
          if (twice) {
            node.parent().insert_copy_after(node, node);
          } else {
            node.parent().remove_child(node);
          }
          const int fresh = faulty.new_doubts(changed);
          Seen& s = seen[name + (twice ? " twice" : " lost")];
          ++s.faults;
          s.silent += fresh == 0 ? 1 : 0;
          s.once += fresh == 1 ? 1 : 0;
          EXPECT_LE(fresh, 1) << base(file) << " " << name << " " << i
                              << (twice ? " twice: " : ": ") << faulty.shown;
          EXPECT_EQ(faulty.gpus, 0) << base(file) << " " << name << " " << i;
          EXPECT_GE(faulty.left, kLeft) << base(file) << " " << name << " " << i
                                        << (twice ? " twice" : " lost") << ": " << faulty.shown;
        }
      }
    }
  }
  for (const auto& [kind, s] : seen) {
    fmt::print("{}: {} of {} named, {} silent\n", kind, s.once, s.faults, s.silent);
  }
}

}  // namespace
}  // namespace tutti::topology
