// The matrix of `nvidia-smi topo -m`. It says how near devices are, not where they are. The reader
// makes addresses up. It makes a switch for devices that are PIX or PXB to each other, as they must
// share one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "core/counted.h"
#include "core/cpu_mask.h"
#include "core/error.h"
#include "core/number.h"
#include "topology/check.h"
#include "topology/disjoint_sets.h"
#include "topology/readers.h"
#include "topology/smi_cells.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

using std::string_view;
using Words = std::vector<std::string>;

constexpr std::size_t kMostColumns = 4096;

/// Without the escapes that underline the head on a terminal, and an editor's mark before it.
std::string plain(string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033' && i + 1 < text.size() && text[i + 1] == '[') {
      i = std::min(text.find_first_not_of("0123456789;", i + 2), text.size() - 1);
    } else {
      out += text[i];
    }
  }
  return out;
}

Words words_of(const std::string& line) {
  std::istringstream stream(line);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool is_gpu_name(string_view word) {
  return word.starts_with("GPU") && parse_number<std::int64_t>(word.substr(3)).has_value();
}

/// Also of names that have lost the space between them.
bool begins_with_gpu(string_view word) {
  return word.starts_with("GPU") && is_gpu_name(word.substr(0, 4));
}

/// The head names GPUs first, then NICs (NIC0, mlx5_0), then "CPU Affinity".
Words columns_of(const Words& head) {
  Words columns;
  for (const std::string& word : head) {
    if (word == "CPU" || word == "NUMA") break;
    columns.push_back(word);
  }
  return columns;
}

bool is_list(string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,-") == string_view::npos;
}

/// How near two devices are; not what may stand after the cells as well.
bool is_cell(string_view word) { return smi_level(word) >= 0 || smi_links(word) > 0; }

/// How many cells a row has: at least, and at most. "N/A" at its end may be no cell.
std::pair<std::size_t, std::size_t> cells_of(const Words& words) {
  const auto list = std::find_if(words.begin() + 1, words.end(), is_list);
  const auto most = static_cast<std::size_t>(list - words.begin() - 1);
  std::size_t least = most;
  while (least > 0 && words[least] == "N/A") --least;
  return {least, most};
}

/// Those of `words` that are not in `others`.
Words without(const Words& words, const Words& others) {
  Words result;
  for (const std::string& word : words) {
    if (std::ranges::find(others, word) == others.end()) result.push_back(word);
  }
  return result;
}

/// Those that are there more than once.
Words repeated(Words words) {
  std::ranges::sort(words);
  Words result;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool again = words[i] == words[i - 1];
    if (again && (result.empty() || result.back() != words[i])) result.push_back(words[i]);
  }
  return result;
}

/// "GPU1, NIC0 and 3 more".
std::string list(const Words& words) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(words.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + printable(words[i]);
  }
  return words.size() <= kMost ? text : fmt::format("{} and {} more", text, words.size() - kMost);
}

class MatrixReader {
 public:
  MatrixReader(const std::string& text, std::string name) : name_(std::move(name)) {
    std::istringstream stream(plain(text));
    for (std::string line; std::getline(stream, line);) lines_.push_back(line);
  }

  Records read() {
    find_head();
    read_rows();
    read_legend();
    return records();
  }

 private:
  [[noreturn]] void refuse(std::size_t line, const std::string& what) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}:{}: {}", name_, line + 1, what));
  }

  void find_head() {
    for (head_ = 0; head_ < lines_.size(); ++head_) {
      const Words words = words_of(lines_[head_]);
      const bool is_row = words.size() > 1 && is_cell(words[1]);
      if (!words.empty() && !is_row && begins_with_gpu(words.front())) break;
    }
    if (head_ == lines_.size()) refuse(0, "expected a head that names GPU0");
    columns_ = columns_of(words_of(lines_[head_]));
    if (columns_.size() > kMostColumns) {
      refuse(head_, fmt::format("more than {} columns", kMostColumns));
    }
  }

  struct Row {
    std::size_t line;
    Words words;  // its name, its cells, and what else is there
  };

  /// The lines between the head and the legend, or what else ends the matrix.
  void find_rows() {
    end_ = head_ + 1;
    for (; end_ < lines_.size(); ++end_) {
      Words words = words_of(lines_[end_]);
      if (words.empty()) continue;
      if (is_head(words) || words.front() == "Legend:" || words.front() == "NIC") break;
      const bool named = std::ranges::find(columns_, words.front()) != columns_.end();
      if (!named && (words.size() < 2 || !is_cell(words[1]))) break;
      rows_.push_back({end_, std::move(words)});
    }
  }

  /// A matrix has a row for each column, in the same order, with an X where the two meet. So the
  /// rows tell the columns where the head does not.
  void check_head() {
    Words names;
    for (const Row& row : rows_) names.push_back(row.words.front());
    const Words unnamed = without(names, columns_), rowless = without(columns_, names);
    const Words twice = repeated(columns_);
    if (unnamed.empty() && twice.empty()) return;
    const bool square =
        repeated(names).empty() && rows_.size() <= kMostColumns &&
        std::ranges::all_of(rows_, [&](const Row& row) {
          const std::size_t self = static_cast<std::size_t>(&row - rows_.data());
          const auto [least, most] = cells_of(row.words);
          return least <= rows_.size() && rows_.size() <= most && row.words[self + 1] == "X";
        });
    std::string what;
    const auto add = [&](const char* says, const Words& some) {
      if (!some.empty()) what += fmt::format("{}{} {}", what.empty() ? "" : "; ", says, list(some));
    };
    add("without", unnamed);
    add("with", rowless);
    add("twice", twice);
    doubts_.push_back(
        {fmt::format("{}:{}: the head does not fit the rows ({}); {}", name_, head_ + 1, what,
                     square ? "the rows are taken" : "rows without a column are left out")});
    if (square) columns_ = names;
  }

  void read_rows() {
    find_rows();
    check_head();
    const std::size_t n = columns_.size();
    m_.columns = columns_;
    m_.cells.assign(n, {});
    m_.cores.resize(n);
    m_.numa.assign(n, -1);
    m_.origins.assign(n, {name_, static_cast<int>(head_) + 1});
    std::size_t rows = 0, bad_line = head_;
    std::string bad_row;
    for (const auto& [l, words] : rows_) {
      const auto at = std::ranges::find(columns_, words.front());
      if (at == columns_.end()) continue;  // a doubt by now
      const auto row = static_cast<std::size_t>(at - columns_.begin());
      if (!m_.cells[row].empty()) {
        doubts_.push_back({fmt::format("{}:{}: {} has two rows; the first one counts", name_, l + 1,
                                       printable(words.front()))});
        continue;
      }
      m_.origins[row] = {name_, static_cast<int>(l) + 1};
      const auto self =
          static_cast<std::size_t>(std::find(words.begin() + 1, words.end(), "X") - words.begin());
      std::string wrong;
      if (words.size() < n + 1) {
        wrong = fmt::format("expected {} entries after {}, found {}", n, printable(words.front()),
                            words.size() - 1);
      } else if (words[row + 1] != "X" && self < words.size()) {
        wrong = fmt::format("{} has its X in place {}, and its name is in place {} of the head",
                            printable(words.front()), self, row + 1);
      }
      if (!wrong.empty()) {
        bad_row = wrong;
        bad_line = l;
        continue;
      }
      ++rows;
      m_.cells[row].assign(words.begin() + 1, words.begin() + 1 + static_cast<std::ptrdiff_t>(n));
      for (const std::string& cell : m_.cells[row]) {
        if (cell == "OK" || cell == "NS" || cell == "CNS" || cell == "GNS" || cell == "TNS") {
          refuse(l, "this is what `nvidia-smi topo -p2p` prints; expected `nvidia-smi topo -m`");
        }
      }
      read_affinity(row, words, lines_[l]);
    }
    // One that is lost can be told from the others; more are no matrix.
    if (rows + 1 < n || rows == 0) {
      const auto lost = std::ranges::find_if(m_.cells, [](const Words& w) { return w.empty(); });
      refuse(bad_line,
             !bad_row.empty()
                 ? bad_row
                 : fmt::format(
                       "no row of {}",
                       printable(columns_[static_cast<std::size_t>(lost - m_.cells.begin())])));
    }
    if (!bad_row.empty()) {
      doubts_.push_back(
          {fmt::format("{}:{}: {}; the row is left out", name_, bad_line + 1, bad_row)});
    }
    for (std::size_t l = end_; l < lines_.size(); ++l) {
      if (!is_head(words_of(lines_[l]))) continue;
      doubts_.push_back(
          {fmt::format("{}:{}: another matrix begins here; it is left out, put it "
                       "into a file of its own",
                       name_, l + 1)});
      break;
    }
    const auto found = agree(m_);
    doubts_.insert(doubts_.end(), found.begin(), found.end());
    join_domains();
  }

  static bool is_head(const Words& words) {
    return words.size() > 1 && is_gpu_name(words[0]) &&
           (is_gpu_name(words[1]) || words[1] == "CPU");
  }

  /// What stands after the cells: cores, NUMA domain, the GPU's own domain. Tabs tell where one of
  /// them is empty; of several domains (those of the memory of GPUs), the first has the cores.
  void read_affinity(std::size_t row, const Words& words, const std::string& line) {
    std::size_t at = columns_.size() + 1;
    std::vector<std::string_view> fields;
    for (std::size_t from = 0; from <= line.size();) {
      const std::size_t end = std::min(line.find('\t', from), line.size());
      fields.push_back(trimmed(string_view(line).substr(from, end - from)));
      from = end + 1;
    }
    if (fields.size() < at + 2 || fields[0] != words[0]) fields.assign(words.begin(), words.end());
    const auto field = [&](std::size_t i) { return i < fields.size() ? fields[i] : string_view(); };
    const auto doubt = [&](const std::string& what) {
      doubts_.push_back(
          {fmt::format("{}: {} {}", m_.origins[row].text(), printable(words[0]), what)});
    };
    const std::size_t cells_end = at;
    while (is_cell(field(at))) ++at;
    if (at > cells_end) {
      doubt(fmt::format("has {} than there are columns ({}); what is too much is left out",
                        counted(at - cells_end, "more cell"), columns_.size()));
    }
    const auto list_in = [&](std::size_t i, const char* what) {
      const string_view text = field(i);
      if (is_list(text)) return members_of_list(text);
      if (!text.empty() && text != "N/A") {
        doubt(fmt::format("has {} '{}', which is no list of numbers; it is left out", what,
                          printable(text)));
      }
      return std::set<int>();
    };
    m_.cores[row] = list_in(at, "the CPU affinity");
    const std::set<int> domains = list_in(at + 1, "the NUMA affinity");
    if (!domains.empty()) m_.numa[row] = *domains.begin();
  }

  /// NUMA domains: by how near devices are, then by what their rows say.
  void join_domains() {
    const std::size_t n = columns_.size();
    domains_ = shared(3);
    std::map<std::size_t, std::map<int, int>> said;
    std::map<int, std::set<std::size_t>> said_by;
    for (std::size_t i = 0; i < n; ++i) {
      if (m_.numa[i] < 0) continue;
      ++said[domains_.find(i)][m_.numa[i]];
      said_by[m_.numa[i]].insert(domains_.find(i));
    }
    std::vector<int> numa(n, -1);
    for (std::size_t i = 0; i < n; ++i) {
      // What most say; of two that as many say, the one that is of no other domain.
      const auto weight = [&](const auto& s) {
        return 2 * s.second + (said_by[s.first].size() == 1 ? 1 : 0);
      };
      const auto& own = said[domains_.find(i)];
      const auto most = std::ranges::max_element(own, {}, weight);
      if (most == own.end()) continue;
      numa[i] = most->first;
      const auto mine = own.find(m_.numa[i]);
      if (mine == own.end() || mine == most || weight(*mine) == weight(*most)) continue;
      doubts_.push_back({fmt::format(
          "{}: {} says NUMA domain {}, what is near to it {}; {} is taken", m_.origins[i].text(),
          printable(columns_[i]), m_.numa[i], numa[i], numa[i])});
    }
    m_.numa = numa;
    std::map<int, std::size_t> first;
    for (std::size_t i = 0; i < n; ++i) {
      if (numa[i] >= 0) domains_.join(first.try_emplace(numa[i], i).first->second, i);
    }
    // Guests may have no domains: those on the same cores, if nothing says that they are far.
    std::map<std::string, std::size_t> by_cores;
    for (std::size_t i = 0; i < n; ++i) {
      if (numa[i] >= 0 || !is_gpu_name(columns_[i])) continue;
      const std::size_t other = by_cores.try_emplace(mask_of(m_.cores[i]), i).first->second;
      if (m_.near[i][other] < 4) domains_.join(other, i);
    }
  }

  /// "  NIC0: mlx5_0"
  void read_legend() {
    for (std::size_t l = end_; l < lines_.size(); ++l) {
      const Words words = words_of(lines_[l]);
      if (words.size() != 2 || !words[0].ends_with(':')) continue;
      const std::string device = words[0].substr(0, words[0].size() - 1);
      const auto doubt = [&](const char* what) {
        doubts_.push_back(
            {fmt::format("{}:{}: the legend names {} {}", name_, l + 1, printable(device), what)});
      };
      const auto at = std::ranges::find(columns_, device);
      if (at == columns_.end()) {
        if (device.starts_with("NIC")) doubt("that the matrix does not have; it is left out");
        continue;
      }
      const auto column = static_cast<std::size_t>(at - columns_.begin());
      const bool is_new = names_.try_emplace(column, words[1]).second;
      if (!is_new && names_[column] != words[1]) doubt("twice; the first name counts");
    }
  }

  /// All sets of devices that share what `level` means, by pairs and by what follows from pairs.
  DisjointSets shared(int level) const {
    DisjointSets sets(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        if (m_.near[i][j] >= 0 && m_.near[i][j] <= level) sets.join(i, j);
      }
    }
    return sets;
  }

  Records records() {
    Records r;
    r.source = name_;
    r.format = "nvidia-smi topo -m";
    r.hosts.emplace_back("");
    std::array<DisjointSets, 4> sets{shared(0), shared(1), shared(2), domains_};
    say_nearer(sets);
    r.doubts = std::move(doubts_);
    std::map<std::size_t, int> cpus;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::size_t domain = sets[3].find(i);
      const auto [at, is_new] = cpus.try_emplace(domain, static_cast<int>(r.cpus.size()));
      if (is_new) r.cpus.emplace_back().origin = m_.origins[i];
      CpuRecord& cpu = r.cpus[static_cast<std::size_t>(at->second)];
      if (m_.numa[i] >= 0) cpu.numa = m_.numa[i];
      if (cpu.cores == 0 && !m_.cores[i].empty()) {
        cpu.cores = static_cast<int>(m_.cores[i].size());
        cpu.affinity = mask_of(m_.cores[i]);
      }
    }
    // Parents first: host bridges, switches of switches, switches, then the devices.
    std::array<std::map<std::size_t, int>, 3> bridges;
    for (const int level : {2, 1, 0}) {
      const auto l = static_cast<std::size_t>(level);
      for (std::size_t i = 0; i < columns_.size(); ++i) {
        const std::size_t set = sets[l].find(i);
        // A switch for those that share one. Where there are switches of switches, each device
        // has a switch of its own below them: that makes PXB.
        const std::size_t here = size_of(sets[0], sets[0].find(i));
        const std::size_t wider = size_of(sets[1], sets[1].find(i));
        const bool needed = level == 2 || (level == 1 ? wider > here : wider > 1);
        if (bridges[l].contains(set) || !needed) continue;
        DeviceRecord d;
        d.cpu = cpus[sets[3].find(i)];
        d.parent = parent_of(i, level + 1, sets, bridges);
        d.host_bridge = level == 2;
        if (level < 2) d.pci_class = 0x060400;
        d.bus = level < 2 ? made_up() : Maybe<BusId>();
        d.origin = m_.origins[i];
        bridges[l][set] = static_cast<int>(r.devices.size());
        r.devices.push_back(std::move(d));
      }
    }
    for (std::size_t i = 0; i < columns_.size(); ++i) add_device(r, i, cpus, sets, bridges);
    add_links(r);
    r.unseen = {
        "a matrix of nvidia-smi has no addresses (they are made up), no speeds of PCI "
        "links and network ports, and no models"};
    return r;
  }

  /// Pairs that are nearer than both of their cells say, by other cells and by NUMA affinities.
  void say_nearer(std::array<DisjointSets, 4>& sets) {
    constexpr std::array kNear{"PIX", "PXB", "PHB", "NODE"};
    Doubts doubts;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        std::size_t level = 0;
        while (level < 4 && sets[level].find(i) != sets[level].find(j)) ++level;
        const int said = smi_level(m_.cells[i][j]);
        if (m_.near[i][j] != said || static_cast<int>(level) >= said) continue;
        doubts.add(
            fmt::format("{} -> {}", printable(columns_[i]), printable(columns_[j])), m_.origins[i],
            fmt::format("is {}, but what else is said of the two makes it {}, which is taken",
                        m_.cells[i][j], kNear[level]));
      }
    }
    std::ranges::move(doubts.take(), std::back_inserter(doubts_));
  }

  std::size_t size_of(DisjointSets& sets, std::size_t set) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) n += sets.find(i) == set ? 1 : 0;
    return n;
  }

  static int parent_of(std::size_t i, int from_level, std::array<DisjointSets, 4>& sets,
                       const std::array<std::map<std::size_t, int>, 3>& bridges) {
    for (int level = from_level; level < 3; ++level) {
      const auto l = static_cast<std::size_t>(level);
      const auto at = bridges[l].find(sets[l].find(i));
      if (at != bridges[l].end()) return at->second;
    }
    return -1;
  }

  BusId made_up() {
    ++addresses_;
    return {static_cast<std::uint32_t>(addresses_ / 255),
            static_cast<std::uint8_t>(addresses_ % 255 + 1), 0, 0};
  }

  void add_device(Records& r, std::size_t i, std::map<std::size_t, int>& cpus,
                  std::array<DisjointSets, 4>& sets,
                  const std::array<std::map<std::size_t, int>, 3>& bridges) {
    DeviceRecord d;
    d.cpu = cpus[sets[3].find(i)];
    d.parent = parent_of(i, 0, sets, bridges);
    d.bus = made_up();
    d.origin = m_.origins[i];
    if (is_gpu_name(columns_[i])) {
      d.pci_class = 0x030200;
      d.vendor = "0x10de";
      d.gpu = GpuRecord();
      d.gpu->dev = static_cast<int>(*parse_number<std::int64_t>(columns_[i].substr(3)) & 0xffffff);
      d.gpu->rank = d.gpu->dev;
      d.gpu->origin = d.origin;
    } else {
      d.pci_class = 0x020000;
      d.has_nic = true;
      d.nic_elements = 1;
      NetRecord net;
      net.name = names_.contains(i) ? names_[i] : columns_[i];
      net.dev = nets_++;
      net.origin = d.origin;
      d.nets.push_back(std::move(net));
    }
    devices_[i] = r.devices.size();
    r.devices.push_back(std::move(d));
  }

  void add_links(Records& r) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        DeviceRecord& from = r.devices[devices_[i]];
        const DeviceRecord& to = r.devices[devices_[j]];
        const int count = i == j ? 0 : smi_links(m_.cells[i][j]);
        if (count == 0 || !from.gpu || !to.gpu) continue;
        GpuLinkRecord link;
        link.target = to.bus;
        link.target_class = to.pci_class;
        link.count = count;
        link.origin = m_.origins[i];
        from.gpu->links.push_back(link);
      }
    }
  }

  std::string name_;
  std::vector<std::string> lines_;
  std::size_t head_ = 0, end_ = 0;  // lines: of the head, and after the last row
  Words columns_;
  std::vector<Row> rows_;
  SmiMatrix m_;
  DisjointSets domains_{0};
  std::map<std::size_t, std::string> names_;
  std::map<std::size_t, std::size_t> devices_;
  std::vector<Doubt> doubts_;
  int addresses_ = 0, nets_ = 0;
};

}  // namespace

bool looks_like_smi(string_view text) {
  const std::string head = plain(text.substr(0, 1 << 14));
  std::istringstream stream(head);
  for (std::string line; std::getline(stream, line);) {
    const Words words = words_of(line);
    if (!words.empty() && is_gpu_name(words.front())) return true;
  }
  return false;
}

Records read_smi(const std::string& text, const std::string& name) {
  return MatrixReader(text, name).read();
}

}  // namespace tutti::topology
