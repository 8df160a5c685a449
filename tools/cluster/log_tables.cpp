// See log_tables.h.
#include "tools/cluster/log_tables.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>

#include "core/number.h"
#include "tools/cluster/log_words.h"

namespace tutti {
namespace {

constexpr int kMostNamed = 1'000'000;  // ranks, hosts
constexpr int kOfADomain = 72;         // GPUs of the largest NVLink domain
constexpr int kOfATray = 4;            // ... of one of its hosts

/// What busbw / algbw of rows may be, as so few digits are printed.
struct Ratio {
  double low = 0, high = std::numeric_limits<double>::infinity();

  static Ratio of(const LogRow& r) {
    constexpr double kDigit = 0.0051;
    if (r.algbw <= 2 * kDigit) return {};
    return {(r.busbw - kDigit) / (r.algbw + kDigit), (r.busbw + kDigit) / (r.algbw - kDigit)};
  }
  bool fits(const Ratio& o) const { return o.low <= high + kSlack && o.high >= low - kSlack; }
  void narrow(const Ratio& o) {
    const Ratio whole = *this;
    low = std::max(low, o.low);
    high = std::min(high, o.high);
    if (low > high) *this = {(whole.low + whole.high) / 2, (whole.low + whole.high) / 2};
  }
  double width() const { return high - low; }
  double middle() const { return (low + high) / 2; }
  static constexpr double kSlack = 0.001;  // some dialects cut digits off
};

Ratio ratio_of(const std::vector<LogRow>& rows) {
  Ratio ratio;
  for (const LogRow& r : rows) ratio.narrow(Ratio::of(r));
  return ratio;
}

/// A part of a run: its sizes rise, and its ratios are those of one number of ranks.
std::vector<LogRun> parts_of(const LogRun& run) {
  std::vector<LogRun> parts;
  Ratio ratio;
  for (const LogRow& row : run.rows) {
    const Ratio own = Ratio::of(row);
    const bool again = !parts.empty() && row.bytes < parts.back().rows.back().bytes;
    if (parts.empty() || again || !ratio.fits(own)) {
      parts.push_back(run);
      parts.back().rows.clear();
      ratio = {};
    }
    ratio.narrow(own);
    parts.back().rows.push_back(row);
  }
  return parts;
}

/// What a name like "16xH100_2node_NDR_all_gather.log" says.
struct Name {
  std::optional<Collective> collective;
  std::string unpredicted, gpu;
  int ranks = 0, hosts = 0;

  explicit Name(std::string_view path) {
    const auto slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    collective = collective_in(name);
    if (!collective) unpredicted = no_collective_in(name);
    const auto x = name.find('x');
    const auto end = std::min(name.find('_'), name.size());
    if (x != name.npos && x > 0 && x < end) {
      ranks = number(name.substr(0, x));
      if (ranks > 0) gpu = name.substr(x + 1, end - x - 1);
    }
    if (const auto node = name.find("node"); node != name.npos) {
      std::size_t begin = node;
      while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
      hosts = number(name.substr(begin, node - begin));
    }
  }
  static int number(std::string_view word) {
    const auto n = parse_number<std::int64_t>(word);
    return n && *n > 0 && *n <= kMostNamed ? static_cast<int>(*n) : 0;
  }
};

/// What a run does that nobody names. Several collectives have one ratio; root, operator and the
/// columns for buffers in place tell some of them apart.
std::optional<Collective> collective_of(const LogRun& run, const Ratio& ratio, int ranks) {
  const LogRow& row = run.rows.front();
  const bool rooted = row.root && *row.root >= 0, rootless = row.root && *row.root < 0;
  if (ratio.low > 1.03) return Collective::all_reduce;
  if (ratio.high < 0.97) {
    if (row.adds) return Collective::reduce_scatter;
    if (rooted) return Collective::gather;
    const bool none = std::ranges::none_of(run.rows, &LogRow::in_place);
    return none ? Collective::all_to_all : Collective::all_gather;
  }
  if (ratio.width() > 0.2) return std::nullopt;
  // An all_reduce of two ranks has 1, too.
  if (row.adds) return rooted || ranks > 2 ? Collective::reduce : Collective::all_reduce;
  return rootless ? Collective::send_recv : Collective::broadcast;
}

/// Numbers of ranks that a collective's ratio fits.
struct Range {
  double low = 1, high = std::numeric_limits<double>::infinity();
  bool has(int n) const { return n >= low - 1e-6 && n <= high + 1e-6; }
  bool is_bounded() const { return high < kMostNamed; }
};
Range ranks_by(const Ratio& ratio, std::optional<Collective> collective) {
  double once = 1;
  switch (collective.value_or(Collective::broadcast)) {
    case Collective::all_reduce:
      once = 2;
      break;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter:
      break;
    default:
      return {};  // 1, however many there are
  }
  const auto ranks = [&](double r) {
    return r >= once ? std::numeric_limits<double>::infinity() : std::max(1.0, once / (once - r));
  };
  return {ranks(ratio.low - Ratio::kSlack / 10), ranks(ratio.high + Ratio::kSlack / 10)};
}

void set_ranks(NcclLog& log, const LogRun& run, const Name& name, const Ratio& ratio) {
  const Range range = ranks_by(ratio, log.collective);
  const int listed = run.ranks.empty() ? 0 : *run.ranks.rbegin() + 1;
  const bool all_listed = listed == static_cast<int>(run.ranks.size());
  // A line or two of many, or of something else, are worth less than a name.
  const int said[] = {run.debug.ranks, all_listed ? listed : 0, name.ranks, listed};
  const bool sure = range.is_bounded() && std::floor(range.high) <= std::ceil(range.low);
  for (const int n : said) {
    if (log.ranks == 0 && n > 0 && range.has(n)) log.ranks = n;
  }
  log.guessed.ranks = !sure && log.ranks > 0 && log.ranks == name.ranks &&
                      log.ranks != run.debug.ranks && log.ranks != listed;
  if (log.ranks > 0 || !range.is_bounded() || ratio.width() > 0.2) return;
  // What most machines have: a multiple of eight, or as many as that is.
  const double middle = 2 / (1 / range.low + 1 / range.high);
  const int eights = static_cast<int>(std::lround(middle / 8)) * 8;
  log.ranks =
      !sure && eights > 0 && range.has(eights) ? eights : static_cast<int>(std::lround(middle));
  log.guessed.ranks_by_rows = !sure;
}

/// Hosts that share an NVLink domain count as one.
void set_hosts(NcclLog& log, const LogRun& run, const Name& name) {
  const NcclDebug& d = run.debug;
  const auto fits = [&](int hosts) {
    return hosts > 0 && (log.ranks == 0 || log.ranks % hosts == 0);
  };
  const auto listed = static_cast<int>(run.hosts.size());
  const bool all_listed = static_cast<int>(run.ranks.size()) == log.ranks;
  if (fits(d.hosts) && d.ranks == log.ranks) {
    log.hosts = d.hosts;
  } else if (fits(listed) && (all_listed || listed > 1)) {
    log.hosts = listed;
  } else if (fits(name.hosts)) {
    log.hosts = name.hosts;
    log.guessed.hosts = true;
  } else if (fits(listed) && log.ranks <= 8) {
    log.hosts = listed;
  } else if (log.ranks > 0) {
    log.hosts = (log.ranks + 7) / 8;
    log.guessed.eight_of_a_host = true;
  }
  if (log.hosts <= 1) return;
  if (d.clique > 1 && log.ranks % d.clique == 0) {
    log.hosts = log.ranks / d.clique;
    return;
  }
  const std::string gpu = lower(log.gpu);
  const bool superchip = gpu.find("gb200") != gpu.npos || gpu.find("gb300") != gpu.npos;
  const bool by_network = d.direct + d.staged > 0;
  if (superchip && !by_network && log.ranks <= kOfADomain && log.ranks <= log.hosts * kOfATray) {
    log.hosts = 1;
    log.guessed.one_domain = true;
  }
}

NcclLog table_of(const LogRun& run, const std::string& source, const Name& name) {
  NcclLog log;
  log.source = source;
  log.gpus_of_thread = run.gpus_of_thread;
  log.warmups = run.warmups;
  log.debug = run.debug;
  log.rows = run.rows;
  // A driver that is older than the GPU does not know its name.
  log.gpu = run.gpu == "NVIDIA Graphics Device" ? "" : run.gpu;
  if (log.gpu.empty()) {
    log.gpu = name.gpu;
    log.guessed.gpu = !log.gpu.empty();
  }
  const Ratio ratio = ratio_of(run.rows);
  log.collective = run.collective;
  log.unpredicted = run.unpredicted;
  const bool named = log.collective || !log.unpredicted.empty();
  if (!named) log.collective = run.debug.collective;
  if (!named && !log.collective) {
    log.collective = name.collective;
    log.unpredicted = name.unpredicted;
    log.guessed.collective = log.collective.has_value();
  }
  if (!log.collective && log.unpredicted.empty()) {
    const int listed = run.ranks.empty() ? 0 : *run.ranks.rbegin() + 1;
    log.collective = collective_of(run, ratio, std::max(listed, name.ranks));
    log.guessed.collective_by_rows = log.collective.has_value();
  }
  set_ranks(log, run, name, ratio);
  set_hosts(log, run, name);
  return log;
}

/// Whether rows of `b` may stand below those of `a`: of the same calls, and of other sizes, or one
/// size again and again.
bool are_one_table(const NcclLog& a, const NcclLog& b) {
  const auto same = [](int x, int y) { return x == y || x == 0 || y == 0; };
  const bool alike = a.unpredicted == b.unpredicted && same(a.ranks, b.ranks) &&
                     same(a.hosts, b.hosts) && a.gpu == b.gpu &&
                     a.debug.algorithm == b.debug.algorithm &&
                     a.debug.protocol == b.debug.protocol && a.gpus_of_thread == b.gpus_of_thread;
  if (!alike) return false;
  const LogRow &first = a.rows.front(), &other = b.rows.front();
  const bool unclear =
      (!a.collective || !b.collective) && first.adds == other.adds && first.root == other.root;
  if (a.collective != b.collective && !unclear) return false;
  const auto size = [&](const LogRow& r) { return r.bytes == b.rows.front().bytes; };
  const bool repeats = std::ranges::all_of(a.rows, size) && std::ranges::all_of(b.rows, size);
  return repeats || std::ranges::none_of(a.rows, [&](const LogRow& r) {
           return std::ranges::any_of(b.rows, [&](const LogRow& o) { return o.bytes == r.bytes; });
         });
}

}  // namespace

std::optional<Collective> collective_in(std::string_view text) {
  std::string s = lower(text);
  std::erase_if(s, [](char c) { return c == '_' || c == '-'; });
  constexpr std::array<std::pair<const char*, Collective>, 9> kNames{
      {{"allreduce", Collective::all_reduce},
       {"allgather", Collective::all_gather},
       {"reducescatter", Collective::reduce_scatter},
       {"alltoall", Collective::all_to_all},
       {"sendrecv", Collective::send_recv},
       {"broadcast", Collective::broadcast},
       {"scatter", Collective::scatter},
       {"gather", Collective::gather},
       {"reduce", Collective::reduce}}};
  for (const auto& [word, c] : kNames) {
    if (s.find(word) != s.npos) return c;
  }
  return std::nullopt;
}

std::string no_collective_in(std::string_view text) {
  constexpr const char* kNone = "hypercube";
  return lower(text).find(kNone) != std::string::npos ? kNone : "";
}

std::vector<NcclLog> tables_of(const std::vector<LogRun>& runs, const std::string& name) {
  std::vector<NcclLog> tables;
  const Name said(name);
  for (const LogRun& run : runs) {
    for (const LogRun& part : parts_of(run)) {
      NcclLog table = table_of(part, name, said);
      const auto like =
          std::ranges::find_if(tables, [&](const NcclLog& t) { return are_one_table(t, table); });
      if (like == tables.end()) {
        tables.push_back(std::move(table));
        continue;
      }
      // Short calls show less than long ones.
      if (like->ranks == 0 || (!like->collective && table.collective)) {
        like->collective = table.collective;
        like->ranks = table.ranks;
        like->hosts = table.hosts;
        like->guessed = table.guessed;
      }
      like->rows.insert(like->rows.end(), table.rows.begin(), table.rows.end());
    }
  }
  return tables;
}

}  // namespace tutti
