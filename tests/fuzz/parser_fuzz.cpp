// One fuzz target for each parser (PARSER says which), for libFuzzer: whatever bytes come, there is
// a result or Error(invalid_argument), in bounded time and memory. What a machine's parser has read
// goes on through all that uses it: doubts, the graph, its texts.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"
#include "tests/support/nccl_graphs.h"
#include "tools/cluster/nccl_log.h"
#include "topology/describe.h"
#include "topology/discover.h"
#include "topology/network.h"
#include "topology/readers.h"
#include "topology/show/json.h"
#include "topology/show/text.h"
#include "topology/source.h"
#include "topology/write_nccl.h"

namespace tutti::topology {
namespace {

constexpr std::string_view kParser = PARSER;

void require(bool condition) {
  if (!condition) std::abort();
}

[[maybe_unused]] void use(Records records) {
  const Inventory inventory = inventory_of(records);
  const Graph graph = graph_of(records);
  for (const Link& l : graph.links()) {
    require(std::isfinite(l.bandwidth) && l.bandwidth > 0 && l.from != l.to);
  }
  if (graph.nodes().size() > 200) return;  // pictures of those are slow, and no parser's
  require(!tree_text(graph).empty());
  matrix_text(graph);
  to_json(graph, inventory);
  records_of(to_nccl_xml(records), "again");
}

/// A folder that goes with the process.
[[maybe_unused]] const std::string& folder() {
  struct Folder {
    std::string path = "/tmp/tutti-fuzz-XXXXXX";
    Folder() { require(mkdtemp(path.data()) != nullptr); }
    Folder(const Folder&) = delete;
    ~Folder() {
      std::error_code error;
      std::filesystem::remove_all(path, error);
    }
  };
  static const Folder made;
  return made.path;
}

/// The bytes as a tree of files: path, NUL, content, NUL, path, ...; a path that ends with @ is a
/// link to its content.
[[maybe_unused]] void make_tree(std::string_view data, const std::string& root) {
  namespace fs = std::filesystem;
  constexpr int kMostFiles = 48;
  const auto next = [&] {
    const std::size_t end = std::min(data.find('\0'), data.size());
    const std::string_view part = data.substr(0, end);
    data.remove_prefix(std::min(end + 1, data.size()));
    return part;
  };
  std::error_code error;
  fs::remove_all(root, error);
  fs::create_directories(root + "/sys", error);
  for (int i = 0; i < kMostFiles && !data.empty(); ++i) {
    std::string path(next().substr(0, 200));
    const std::string content(next().substr(0, 4096));
    const bool link = path.ends_with('@');
    if (link) path.pop_back();
    // Inside of the tree, and nothing that leads out of it.
    const auto leads_out = [](const std::string& p) {
      return p.empty() || p.starts_with('/') || p.find("..") != std::string::npos;
    };
    if (leads_out(path)) continue;
    path = root + "/" + path;
    fs::create_directories(fs::path(path).parent_path(), error);
    if (link) {
      if (!content.starts_with('/')) fs::create_symlink(content, path, error);
      continue;
    }
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) continue;
    require(write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
    close(fd);
  }
}

void parse(const std::string& text) {
  if constexpr (kParser == "nccl_system") {
    use(read_nccl_system(XmlSource(text, "input")));
  } else if constexpr (kParser == "nccl_graphs") {
    for (const auto& g : read_nccl_graphs(XmlSource(text, "input")).graphs) {
      for (const auto& c : g.channels) require(c.gpus.size() <= text.size());
    }
  } else if constexpr (kParser == "hwloc") {
    use(read_hwloc(XmlSource(text, "input")));
  } else if constexpr (kParser == "smi") {
    use(read_smi(text, "input"));
  } else if constexpr (kParser == "sysfs") {
    make_tree(text, folder());
    use(read_sysfs(folder()));
  } else if constexpr (kParser == "nccl_log") {
    for (const LogRow& row : parse_nccl_log(text, "input").rows) {
      require(row.bytes >= 0 && std::isfinite(row.us) && row.us >= 0);
    }
  } else if constexpr (kParser == "machine") {
    const Described d = parse_machine(text);
    if (d.count <= 64) use(records_of(machine_xml(*d.model, d.count, 0, 0, d.bridged), "input"));
  } else {  // network
    const Network n = parse_network(text);
    require(std::isfinite(n.rate) && n.rate >= 0 && n.ports >= 0 && n.leaf >= 0);
    require(std::isfinite(n.latency) && n.latency >= 0 && n.efficiency > 0);
  }
}

}  // namespace
}  // namespace tutti::topology

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    tutti::topology::parse(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const tutti::Error& e) {
    tutti::topology::require(e.code() == tutti::ErrorCode::invalid_argument);
  }
  return 0;
}
