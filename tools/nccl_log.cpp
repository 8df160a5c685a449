// See nccl_log.h.
#include "tools/nccl_log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "collectives/cluster/predict.h"
#include "transport/topology/source.h"

namespace tutti {
namespace {

using topology::whole_integer;
using topology::whole_number;

constexpr std::size_t kMostRows = 1'000'000;
constexpr std::size_t kMostWords = 32;

using Words = std::vector<std::string_view>;

/// The first words of a line, without what launchers write before it.
Words words_of(std::string_view line) {
  if (const auto mark = line.find("<stdout>"); mark < 120) {
    line.remove_prefix(mark + 8);
    if (line.starts_with(':')) line.remove_prefix(1);
  }
  Words words;
  for (std::size_t i = 0; i < line.size() && words.size() < kMostWords;) {
    if (std::isspace(static_cast<unsigned char>(line[i])) != 0) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < line.size() && std::isspace(static_cast<unsigned char>(line[i])) == 0) ++i;
    words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

bool is_type(std::string_view word) {
  constexpr std::array kTypes{"int8",     "uint8",    "int32",  "uint32",   "int64",  "uint64",
                              "half",     "float",    "double", "bfloat16", "f8e4m3", "f8e5m2",
                              "fp8_e4m3", "fp8_e5m2", "char",   "int"};
  return std::ranges::any_of(kTypes, [&](const char* t) { return word == t; });
}

struct Times {
  double us = 0, algbw = 0, busbw = 0;
};

/// Time, algbw and busbw at words[at], if they are this size's: algbw is size / time, as printed.
std::optional<Times> times_at(const Words& words, std::size_t at, std::int64_t bytes) {
  if (words.size() < at + 3) return std::nullopt;
  std::array<double, 3> v{};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = whole_number(words[at + i]);
    if (!n || !std::isfinite(*n) || *n < 0) return std::nullopt;
    v[i] = *n;
  }
  if (!(v[0] > 0)) return std::nullopt;
  const double algbw = static_cast<double>(bytes) / v[0] / 1000;
  if (std::abs(algbw - v[1]) > 0.0101 + 0.02 * algbw) return std::nullopt;
  return Times{v[0], v[1], v[2]};
}

/// Where a row's times begin: after the operator and the root, which are not in all dialects.
std::optional<Times> times_of(const Words& words, std::int64_t bytes) {
  for (std::size_t at = 3; at <= 5; ++at) {
    if (const auto t = times_at(words, at, bytes)) return t;
    if (at < words.size() && at > 3 && !whole_integer(words[at])) break;
  }
  return std::nullopt;
}

std::string lower(std::string_view text) {
  std::string s;
  for (const char c : text) s += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

std::optional<Collective> collective_in(std::string_view text) {
  std::string s = lower(text);
  std::erase_if(s, [](char c) { return c == '_' || c == '-'; });
  constexpr std::array<std::pair<const char*, Collective>, 8> kNames{
      {{"allreduce", Collective::all_reduce},
       {"allgather", Collective::all_gather},
       {"reducescatter", Collective::reduce_scatter},
       {"alltoall", Collective::all_to_all},
       {"broadcast", Collective::broadcast},
       {"scatter", Collective::scatter},
       {"gather", Collective::gather},
       {"reduce", Collective::reduce}}};
  for (const auto& [word, c] : kNames) {
    if (s.find(word) != s.npos) return c;
  }
  return std::nullopt;
}

/// "16xH100_2node": ranks, GPU, hosts.
void read_name(std::string_view path, NcclLog& log) {
  const auto slash = path.rfind('/');
  const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
  if (!log.collective) log.collective = collective_in(name);
  const auto x = name.find('x');
  const auto end = std::min(name.find('_'), name.size());
  if (x != name.npos && x > 0 && x < end) {
    const auto count = whole_integer(name.substr(0, x));
    if (count && *count > 0 && *count <= 1'000'000) {
      if (log.ranks == 0) log.ranks = static_cast<int>(*count);
      if (log.gpu.empty()) log.gpu = name.substr(x + 1, end - x - 1);
    }
  }
  if (const auto node = name.find("node"); node != name.npos && log.hosts == 0) {
    std::size_t begin = node;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
    const auto hosts = whole_integer(name.substr(begin, node - begin));
    if (hosts && *hosts > 0 && *hosts <= 1'000'000) log.hosts = static_cast<int>(*hosts);
  }
}

/// busbw / algbw of the rows whose digits say it best.
struct Ratio {
  double value = 0;
  bool exact = false;
};
Ratio ratio_of(const std::vector<LogRow>& rows) {
  double ratio = 0, best = 0;
  for (const LogRow& r : rows) {
    if (r.algbw <= best) continue;
    best = r.algbw;
    ratio = r.busbw / r.algbw;
  }
  return {best >= 0.4 ? ratio : 0, best >= 2};
}

void read_ratio(NcclLog& log) {
  const auto [ratio, exact] = ratio_of(log.rows);
  if (ratio <= 0) return;
  if (!log.collective) {
    const bool adds = log.rows.front().adds;
    log.collective = ratio > 1.03   ? Collective::all_reduce
                     : ratio < 0.97 ? (adds ? Collective::reduce_scatter : Collective::all_gather)
                     // All_reduce of two ranks, most likely.
                     : adds && log.ranks <= 2 ? Collective::all_reduce
                     : adds                   ? Collective::reduce
                                              : Collective::broadcast;
  }
  if (!exact) return;
  const double left = *log.collective == Collective::all_reduce ? 1 - ratio / 2 : 1 - ratio;
  const bool says =
      *log.collective != Collective::broadcast && *log.collective != Collective::reduce;
  if (!says || left <= 1e-4) return;
  // What is printed of it may be a rank or more off where there are many: then what else says it
  // counts, if it fits.
  const double said = log.ranks;
  if (said > 1 && std::abs(1 / said - left) < 0.004) return;
  log.ranks = static_cast<int>(std::lround(1 / left));
}

class Parser {
 public:
  explicit Parser(NcclLog& log) : log_(log) {}

  void line(std::string_view text, int number) {
    const Words words = words_of(text);
    if (words.empty()) return;
    if (words.front().starts_with('#') || words.front() == "Rank") return comment(text, words);
    const auto bytes = whole_integer(words[0]);
    const bool row = bytes && words.size() >= 3 && whole_integer(words[1]) && is_type(words[2]);
    if (!row) return rest(words);
    abandon();
    if (*bytes <= 0) return;
    LogRow r;
    r.bytes = *bytes;
    r.type = words[2];
    r.line = number;
    r.adds = words.size() > 3 && (words[3] == "sum" || words[3] == "prod" || words[3] == "min" ||
                                  words[3] == "max" || words[3] == "avg");
    if (const auto times = times_of(words, *bytes)) return add(r, *times);
    waiting_ = r;
  }

  void end() {
    abandon();
    log_.hosts = static_cast<int>(hosts_.size());
    log_.ranks = ranks_;
  }

 private:
  void comment(std::string_view text, const Words& words) {
    const bool of_rank = words[0] == "Rank" || (words.size() > 1 && words[1] == "Rank");
    // "# nThread 1 nGpus 8", "#  Rank  0 Group  0 Pid 12 on host device  0 [0000:8f:00] NVIDIA
    // B200"
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const auto value = whole_integer(words[i + 1]);
      if (words[i] == "nGpus" && value && *value >= 1 && *value <= 1024) {
        log_.gpus_of_thread = static_cast<int>(*value);
      }
      if (words[i] == "Rank" && i <= 1 && value && *value >= 0 && *value < 1'000'000) {
        ranks_ = std::max(ranks_, static_cast<int>(*value) + 1);
        const auto bracket = text.find(']', text.find("device"));
        if (bracket != text.npos && log_.gpu.empty()) {
          log_.gpu = topology::trimmed(text.substr(bracket + 1));
        }
      }
      if (of_rank && words[i] == "on" && hosts_.size() < 1'000'000) hosts_.emplace(words[i + 1]);
    }
    if (!log_.collective && text.find("_perf") != text.npos) log_.collective = collective_in(text);
  }

  /// The second half of a row that something was printed into: the first times that fit its size.
  void rest(const Words& words) {
    if (!waiting_) return;
    if (const auto times = times_at(words, 0, waiting_->bytes)) {
      add(*waiting_, *times);
      waiting_.reset();
    }
  }

  void add(LogRow row, const Times& times) {
    row.us = times.us;
    row.algbw = times.algbw;
    row.busbw = times.busbw;
    if (log_.rows.size() < kMostRows) {
      log_.rows.push_back(row);
    } else {
      ++log_.left_out;
    }
  }

  void abandon() {
    if (waiting_) ++log_.left_out;
    waiting_.reset();
  }

  NcclLog& log_;
  std::optional<LogRow> waiting_;
  std::set<std::string, std::less<>> hosts_;
  int ranks_ = 0;
};

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& name) {
  NcclLog log;
  log.source = name;
  Parser parser(log);
  int number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    parser.line(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  parser.end();
  read_name(name, log);
  read_ratio(log);
  if (log.hosts == 0 && log.ranks > 0) log.hosts = (log.ranks + 7) / 8;
  return log;
}

}  // namespace tutti
