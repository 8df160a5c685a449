// See nccl_log.h.
#include "tools/cluster/nccl_log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "core/number.h"
#include "topology/source.h"

namespace tutti {
namespace {

constexpr std::size_t kMostRows = 1'000'000;
constexpr std::size_t kMostWords = 48;
constexpr std::array<std::string_view, 2> kNoCollectives{"sendrecv", "hypercube"};
constexpr std::size_t kMostPrefix = 12;  // words that launchers and collectors of logs add

using Words = std::vector<std::string_view>;

/// Without the colours of terminals.
std::string plain(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b' || i + 1 == line.size() || line[i + 1] != '[') {
      text += line[i];
      continue;
    }
    for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~');) ++i;
  }
  return text;
}

/// The first words of a line, without what MPI's launchers write before it.
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

/// A number as people and spreadsheets write it: "1048576", "1,048,576", "1234.5".
std::optional<double> figure_in(std::string_view word) {
  std::string digits;
  const std::size_t end = std::min(word.find('.'), word.size());
  const std::size_t first = word.find(',');
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool comma = word[i] == ',';
    // Groups of three, from the point to the left; the first one may be shorter.
    if (comma && (i == 0 || i > end || (end - i) % 4 != 0 || first > 3)) return std::nullopt;
    if (!comma && i < end && i > first && (end - i) % 4 == 0) return std::nullopt;
    if (!comma) digits += word[i];
  }
  return parse_number<double>(digits);
}

/// Bytes, or elements: a figure, perhaps with a unit ("1M", "1.5MiB"); powers of 1024.
std::optional<std::int64_t> size_in(std::string_view word) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit_at = std::min(word.find_first_not_of("0123456789.,"), word.size());
  const std::string_view unit = word.substr(unit_at);
  auto figure = figure_in(word.substr(0, unit_at));
  if (!figure) return std::nullopt;
  if (!unit.empty() && unit != "B") {
    const char prefix = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
    const std::size_t power = kUnits.find(prefix);
    const std::string_view rest = unit.substr(1);
    const bool is_unit = power != kUnits.npos && (rest.empty() || rest == "B" || rest == "iB");
    if (!is_unit) return std::nullopt;
    *figure = std::ldexp(*figure, 10 * static_cast<int>(power + 1));
  }
  const bool whole = *figure >= 0 && *figure < 9e15 && std::floor(*figure) == *figure;
  return whole ? std::optional(static_cast<std::int64_t>(*figure)) : std::nullopt;
}

struct Times {
  double us = 0, algbw = 0, busbw = 0;
};

/// Time, algbw and busbw at words[at], if they are this size's: algbw is size / time, as printed.
std::optional<Times> times_at(const Words& words, std::size_t at, std::int64_t bytes) {
  if (words.size() < at + 3) return std::nullopt;
  std::array<double, 3> v{};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = figure_in(words[at + i]);
    if (!n || *n < 0) return std::nullopt;
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
    if (at < words.size() && at > 3 && !parse_number<std::int64_t>(words[at])) break;
  }
  return std::nullopt;
}

/// Where a row begins, behind what a launcher or a collector of logs may have put before it. A type
/// that is not known makes a row only with times that fit.
std::optional<std::size_t> row_in(const Words& words) {
  for (std::size_t at = 0; at + 2 < words.size() && at <= kMostPrefix; ++at) {
    const auto bytes = size_in(words[at]);
    if (!bytes || !size_in(words[at + 1])) continue;
    if (is_type(words[at + 2])) return at;
    const bool is_word = std::isalpha(static_cast<unsigned char>(words[at + 2][0])) != 0;
    const auto row = words.begin() + static_cast<std::ptrdiff_t>(at);
    if (is_word && *bytes > 0 && times_of(Words(row, words.end()), *bytes)) return at;
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
  if (!log.collective && log.unpredicted.empty()) {
    log.collective = collective_in(name);
    for (const std::string_view none : kNoCollectives) {
      if (!log.collective && lower(name).find(none) != name.npos) log.unpredicted = none;
    }
  }
  const auto x = name.find('x');
  const auto end = std::min(name.find('_'), name.size());
  if (x != name.npos && x > 0 && x < end) {
    const auto count = parse_number<std::int64_t>(name.substr(0, x));
    if (count && *count > 0 && *count <= 1'000'000) {
      if (log.ranks == 0) {
        log.ranks = static_cast<int>(*count);
        log.guessed.ranks = true;
      }
      if (log.gpu.empty()) {
        log.gpu = name.substr(x + 1, end - x - 1);
        log.guessed.gpu = true;
      }
    }
  }
  if (const auto node = name.find("node"); node != name.npos && log.hosts == 0) {
    std::size_t begin = node;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
    const auto hosts = parse_number<std::int64_t>(name.substr(begin, node - begin));
    if (hosts && *hosts > 0 && *hosts <= 1'000'000) {
      log.hosts = static_cast<int>(*hosts);
      log.guessed.hosts = true;
    }
  }
}

/// busbw / algbw of the row with the largest algbw: there the digits say it best.
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
  if (!log.collective && log.unpredicted.empty()) {
    const bool adds = log.rows.front().adds;
    log.collective = ratio > 1.03   ? Collective::all_reduce
                     : ratio < 0.97 ? (adds ? Collective::reduce_scatter : Collective::all_gather)
                     // All_reduce of two ranks, most likely.
                     : adds && log.ranks <= 2 ? Collective::all_reduce
                     : adds                   ? Collective::reduce
                                              : Collective::broadcast;
  }
  if (!exact || !log.collective) return;
  const double left = *log.collective == Collective::all_reduce ? 1 - ratio / 2 : 1 - ratio;
  const bool says =
      *log.collective != Collective::broadcast && *log.collective != Collective::reduce;
  if (!says || left <= 1e-4) return;
  // With many ranks, the printed digits may be a rank or more off: then another source of the
  // number counts, if it fits.
  log.guessed.ranks = false;
  const double said = log.ranks;
  if (said > 1 && std::abs(1 / said - left) < 0.004) return;
  log.ranks = static_cast<int>(std::lround(1 / left));
}

/// One run of one program.
struct Test {
  std::optional<Collective> collective;
  std::string unpredicted;
  std::set<std::string, std::less<>> hosts;
  int ranks = 0;
};

class Parser {
 public:
  explicit Parser(NcclLog& log) : log_(log), tests_(1) {}

  void line(std::string_view coloured, int number) {
    const std::string text = plain(coloured);
    Words words = words_of(text);
    if (words.empty()) return;
    const auto row = row_in(words);
    if (!row) {
      if (text.find("_perf") != text.npos) named(words);
      for (std::size_t at = 0; at < words.size() && at <= kMostPrefix; ++at) {
        const bool comment = words[at].starts_with('#') || (at == 0 && words[at] == "Rank");
        if (!comment) continue;
        const auto begin = static_cast<std::size_t>(words[at].data() - text.data());
        words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
        return this->comment(std::string_view(text).substr(begin), words);
      }
      return rest(words);
    }
    abandon();
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(*row));
    const auto bytes = size_in(words[0]);
    if (*bytes <= 0) return;
    LogRow r;
    r.bytes = *bytes;
    r.type = words[2];
    r.line = number;
    r.test = static_cast<int>(tests_.size()) - 1;
    r.adds = words.size() > 3 && (words[3] == "sum" || words[3] == "prod" || words[3] == "min" ||
                                  words[3] == "max" || words[3] == "avg");
    if (const auto times = times_of(words, *bytes)) return add(r, *times);
    waiting_ = r;
    prefix_ = *row;
  }

  void end(std::optional<Collective> wanted) {
    abandon();
    if (log_.rows.empty()) return;
    const auto test_of = [&](const LogRow& r) -> const Test& {
      return tests_[static_cast<std::size_t>(r.test)];
    };
    auto first = log_.rows.begin();
    if (wanted) {
      const auto is_wanted = [&](const LogRow& r) { return test_of(r).collective == wanted; };
      if (const auto found = std::ranges::find_if(log_.rows, is_wanted); found != log_.rows.end()) {
        first = found;
      }
    }
    const Test chosen = test_of(*first);
    std::vector<std::vector<LogRow>> by_test(tests_.size());
    for (LogRow& r : log_.rows) by_test[static_cast<std::size_t>(r.test)].push_back(r);
    const Ratio ratio = ratio_of(by_test[static_cast<std::size_t>(first->test)]);
    log_.rows.clear();
    for (std::size_t t = 0; t < by_test.size(); ++t) {
      const Ratio own = ratio_of(by_test[t]);
      const bool alike = tests_[t].collective == chosen.collective &&
                         tests_[t].unpredicted == chosen.unpredicted &&
                         (!own.exact || !ratio.exact || std::abs(own.value - ratio.value) < 0.03);
      if (!alike) log_.of_others += static_cast<int>(by_test[t].size());
      if (alike) log_.rows.insert(log_.rows.end(), by_test[t].begin(), by_test[t].end());
    }
    log_.collective = chosen.collective;
    log_.unpredicted = chosen.unpredicted;
    log_.hosts = static_cast<int>(chosen.hosts.size());
    log_.ranks = chosen.ranks;
  }

 private:
  /// The next test, if the last one has rows.
  Test& next_test() {
    const auto last = static_cast<int>(tests_.size()) - 1;
    const bool has_rows = !log_.rows.empty() && log_.rows.back().test == last;
    if (has_rows) tests_.emplace_back();
    return tests_.back();
  }

  /// "# Collective test starting: all_reduce_perf", "+ ./build/all_reduce_perf -b 8".
  void named(const Words& words) {
    for (std::string_view word : words) {
      if (word == "concluded:") return;
      const auto end = word.find("_perf");
      if (end == word.npos) continue;
      const auto slash = word.substr(0, end).rfind('/');
      word = word.substr(0, end).substr(slash == word.npos ? 0 : slash + 1);
      const auto collective = collective_in(word);
      const bool none = std::ranges::find(kNoCollectives, word) != kNoCollectives.end();
      if (!collective && !none) continue;
      Test& test = next_test();
      test.collective = collective;
      test.unpredicted = none ? word : "";
      return;
    }
  }

  void comment(std::string_view text, const Words& words) {
    const bool of_rank = words[0] == "Rank" || (words.size() > 1 && words[1] == "Rank");
    // "# nThread 1 nGpus 8", and rccl-tests' "nThread: 1"; "#  Rank  0 Group  0 Pid 12 on host
    // device  0 [0000:8f:00] NVIDIA B200"
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const auto value = parse_number<std::int64_t>(words[i + 1]);
      if (words[i] == "nThread" || words[i] == "nThread:") next_test();
      if ((words[i] == "nGpus" || words[i] == "nGpus:") && value && *value >= 1 && *value <= 1024) {
        log_.gpus_of_thread = static_cast<int>(*value);
      }
      Test& test = tests_.back();
      if (words[i] == "Rank" && i <= 1 && value && *value >= 0 && *value < 1'000'000) {
        test.ranks = std::max(test.ranks, static_cast<int>(*value) + 1);
        const auto bracket = text.find(']', text.find("device"));
        if (bracket != text.npos && log_.gpu.empty()) {
          log_.gpu = trimmed(text.substr(bracket + 1));
        }
      }
      if (of_rank && words[i] == "on" && test.hosts.size() < 1'000'000) {
        test.hosts.emplace(words[i + 1]);
      }
    }
  }

  /// The second half of a row that something was printed into: the first times that fit its size.
  void rest(const Words& words) {
    if (!waiting_) return;
    auto times = times_at(words, 0, waiting_->bytes);
    if (!times && prefix_ > 0) times = times_at(words, prefix_, waiting_->bytes);
    if (times) {
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
  std::size_t prefix_ = 0;  // words before the row that waits
  std::vector<Test> tests_;
};

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& name,
                       std::optional<Collective> wanted) {
  NcclLog log;
  log.source = name;
  Parser parser(log);
  int number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    parser.line(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  parser.end(wanted);
  read_name(name, log);
  read_ratio(log);
  if (log.hosts == 0 && log.ranks > 0) {
    log.hosts = (log.ranks + 7) / 8;
    log.guessed.eight_of_a_host = true;
  }
  return log;
}

}  // namespace tutti
