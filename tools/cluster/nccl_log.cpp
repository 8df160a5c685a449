// See nccl_log.h. Here lines become rows of runs; log_tables.cpp says what runs they were.
#include "tools/cluster/nccl_log.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/number.h"
#include "tools/cluster/log_tables.h"
#include "tools/cluster/log_words.h"
#include "tools/cluster/nccl_settings.h"
#include "topology/source.h"

namespace tutti {
namespace {

constexpr std::size_t kMostRows = 1'000'000;

class Parser {
 public:
  Parser() : runs_(1) {}

  void line(std::string_view coloured, int number) {
    const std::string text = plain(coloured);
    Words words = words_of(text);
    if (words.empty()) return;
    const bool debug = read_nccl_debug(text, runs_.back().debug);
    const auto row = row_in(words);
    if (!row) {
      if (!debug && text.find("_perf") != text.npos) named(words);
      if (NcclDebug said; !debug && read_command(text, said)) {
        read_command(text, next_run().debug);
      }
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
    r.adds = words.size() > 3 && (words[3] == "sum" || words[3] == "prod" || words[3] == "min" ||
                                  words[3] == "max" || words[3] == "avg");
    if (const auto times = times_of(words, *bytes)) {
      const auto root = times->at > 3 ? parse_number<std::int64_t>(words[times->at - 1])
                                      : std::optional<std::int64_t>();
      if (root && *root >= -1 && *root < 1'000'000) r.root = static_cast<int>(*root);
      // Behind time, algbw, busbw and what was wrong.
      r.in_place = words.size() <= times->at + 4 || words[times->at + 4] != "N/A";
      return add(r, *times);
    }
    waiting_ = r;
    prefix_ = *row;
  }

  std::vector<LogRun> runs() {
    abandon();
    return std::move(runs_);
  }
  int left_out() const { return left_out_; }

 private:
  /// The next run, if the last one has rows.
  LogRun& next_run() {
    if (!runs_.back().rows.empty()) runs_.emplace_back();
    return runs_.back();
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
      const std::string none = no_collective_in(word);
      if (!collective && none.empty()) continue;
      LogRun& run = next_run();
      run.collective = collective;
      run.unpredicted = none;
      return;
    }
  }

  void comment(std::string_view text, const Words& words) {
    const bool of_rank = words[0] == "Rank" || (words.size() > 1 && words[1] == "Rank");
    // "# nThread 1 nGpus 8", and rccl-tests' "nThread: 1"; "#  Rank  0 Group  0 Pid 12 on host
    // device  0 [0000:8f:00] NVIDIA B200"
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const auto value = parse_number<std::int64_t>(words[i + 1]);
      if (words[i] == "nThread" || words[i] == "nThread:") next_run();
      LogRun& run = runs_.back();
      if ((words[i] == "nGpus" || words[i] == "nGpus:") && value && *value >= 1 && *value <= 1024) {
        run.gpus_of_thread = static_cast<int>(*value);
      }
      // "warmup iters: 5 iters: 20".
      const bool warms = i > 0 && words[i - 1] == "warmup" && words[i] == "iters:";
      if (warms && value && *value >= 0 && *value <= kMostWarmups) {
        run.warmups = static_cast<int>(*value);
      }
      if (words[i] == "Rank" && i <= 1 && value && *value >= 0 && *value < 1'000'000) {
        run.ranks.insert(static_cast<int>(*value));
        const auto bracket = text.find(']', text.find("device"));
        if (bracket != text.npos && run.gpu.empty()) run.gpu = trimmed(text.substr(bracket + 1));
      }
      if (of_rank && words[i] == "on" && run.hosts.size() < 1'000'000) {
        run.hosts.emplace(words[i + 1]);
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
    if (rows_ < kMostRows) {
      ++rows_;
      runs_.back().rows.push_back(row);
    } else {
      ++left_out_;
    }
  }

  void abandon() {
    if (waiting_) ++left_out_;
    waiting_.reset();
  }

  static constexpr int kMostWarmups = 1'000'000;

  std::optional<LogRow> waiting_;
  std::size_t prefix_ = 0;  // words before the row that waits
  std::vector<LogRun> runs_;
  std::size_t rows_ = 0;
  int left_out_ = 0;
};

}  // namespace

std::vector<NcclLog> parse_nccl_logs(std::string_view text, const std::string& name) {
  Parser parser;
  int number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    parser.line(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::vector<NcclLog> tables = tables_of(parser.runs(), name);
  if (tables.empty()) tables.emplace_back().source = name;
  std::size_t rows = 0;
  for (const NcclLog& t : tables) rows += t.rows.size();
  for (NcclLog& t : tables) {
    t.of_others = static_cast<int>(rows - t.rows.size());
    t.left_out = parser.left_out();
  }
  return tables;
}

NcclLog parse_nccl_log(std::string_view text, const std::string& name,
                       std::optional<Collective> wanted) {
  const std::vector<NcclLog> tables = parse_nccl_logs(text, name);
  const auto found = std::ranges::find_if(
      tables, [&](const NcclLog& t) { return wanted && t.collective == wanted; });
  return found == tables.end() ? tables.front() : *found;
}

}  // namespace tutti
