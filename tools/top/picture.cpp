#include "tools/top/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

namespace tutti::top {
namespace {

std::string short_time(double seconds) {
  const auto whole = static_cast<long>(seconds);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string short_number(double value) {
  constexpr std::string_view kUnits = " kMGTP";
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int digits = unit > 0 && value < 9.95 ? 1 : 0;
  return unit == 0 ? fmt::format("{:.0f}", value)
                   : fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

/// `text` in lines of at most `columns`, broken at spaces; those after the first are indented.
std::string wrapped(std::string_view text, std::size_t columns, std::string_view indent) {
  std::string result;
  std::size_t room = columns;
  while (text.size() > room) {
    std::size_t end = text.rfind(' ', room);
    if (end == text.npos || end == 0) end = room;
    result.append(text.substr(0, end)).append("\n").append(indent);
    text.remove_prefix(std::min(text.size(), text[end] == ' ' ? end + 1 : end));
    room = columns - indent.size();
  }
  return result.append(text).append("\n");
}

std::string cut(std::string text, std::size_t most) {
  if (text.size() > most) text = most > 3 ? text.substr(0, most - 3) + "..." : text.substr(0, most);
  return text;
}

std::string state_text(const Rank& rank) {
  switch (rank.state) {
    case RankState::waiting:
      return rank.blocked ? "waits" : "started";
    case RankState::stopped:
      return "stopped";
    case RankState::failed:
      return "failed";
    case RankState::running:
      break;
  }
  return rank.calls_a_second > 0 ? "runs" : "not in a call";
}

/// Ranks that do the same.
struct Line {
  std::string state, call;
  std::vector<int> ranks{};
  double longest = -1;  // wait
  double calls = 0, bytes = 0, waiting = 0;
  std::set<int> peers{};
};

/// The call without its number, for ranks that run: that differs from look to look.
std::string call_of(const Rank& rank) {
  std::string text = rank.call;
  if (rank.state == RankState::waiting || rank.calls_a_second <= 0) return text;
  const std::size_t at = text.find(" #");
  if (at == text.npos) return text;
  const std::size_t end = text.find(' ', at + 1);
  return text.erase(at, std::min(end, text.size()) - at);
}

std::vector<Line> lines_of(const Job& job) {
  std::vector<Line> lines;
  for (const Rank& rank : job.ranks) {
    std::string state = state_text(rank);
    std::string call = call_of(rank);
    if (rank.state != RankState::waiting && !call.empty()) call = "last: " + call;
    if (rank.at->size != job.size && !call.empty()) {
      call += fmt::format(", group of {}", rank.at->size);
    }
    auto line = std::ranges::find_if(
        lines, [&](const Line& l) { return l.state == state && l.call == call; });
    if (line == lines.end()) line = lines.insert(lines.end(), {std::move(state), std::move(call)});
    line->ranks.push_back(rank.number);
    if (rank.wait != nullptr && rank.state == RankState::waiting) {
      line->longest = std::max(line->longest, rank.wait->seconds);
      const int peer = number_of(job, rank.at->communicator, rank.wait->peer);
      if (peer >= 0) line->peers.insert(peer);
    }
    line->calls += rank.calls_a_second;
    line->bytes += rank.bytes_a_second;
    line->waiting += rank.waiting_share;
  }
  return lines;
}

std::string job_text(const Job& job, std::size_t columns) {
  std::set<int> pids;
  for (const Rank& r : job.ranks) {
    if (r.process != nullptr) pids.insert(r.process->pid);
  }
  std::string where = pids.size() == 1 ? fmt::format("1 process, {}", *pids.begin())
                                       : fmt::format("{} processes", pids.size());
  if (job.hosts.size() > 1) where += fmt::format(" on {}", fmt::join(job.hosts, ", "));
  std::string text = cut(fmt::format("{} ranks{} in {}, up {}: {}", job.size,
                                     static_cast<int>(job.ranks.size()) < job.size
                                         ? fmt::format(", {} of them seen", job.ranks.size())
                                         : "",
                                     where, short_time(job.age), job.command),
                         columns);
  constexpr std::string_view kHead = "{:<12} {:<13} {:>7} {:>8} {:>8} {:>7}  {}";
  text += "\n  " +
          fmt::format(fmt::runtime(kHead), "rank", "state", "for", "calls/s", "bytes/s", "exposed",
                      "call") +
          "\n";
  const std::size_t used = 2 + 12 + 1 + 13 + 1 + 7 + 1 + 8 + 1 + 8 + 1 + 7 + 2;
  for (const Line& l : lines_of(job)) {
    const auto ranks = static_cast<double>(l.ranks.size());
    std::string call = l.call.empty() ? "none so far" : l.call;
    if (!l.peers.empty()) {
      // Before the details: there may be no room for all of them.
      call.insert(std::min(call.find(" ("), call.size()),
                  fmt::format(" for {}", ranges({l.peers.begin(), l.peers.end()})));
    }
    text += fmt::format(fmt::runtime("  " + std::string(kHead) + "\n"), cut(ranges(l.ranks), 12),
                        l.state, l.longest < 0 ? "" : short_time(l.longest),
                        short_number(l.calls / ranks), short_number(l.bytes / ranks),
                        fmt::format("{:.0f} %", 100 * l.waiting / ranks),
                        cut(call, columns > used + 10 ? columns - used : 10));
  }
  constexpr std::size_t kMostCulprits = 3;
  for (std::size_t i = 0; i < std::min(kMostCulprits, job.culprits.size()); ++i) {
    text += wrapped("=> " + job.culprits[i].sentence, columns, "   ");
  }
  if (job.culprits.size() > kMostCulprits) {
    text += fmt::format("   and {} more\n", job.culprits.size() - kMostCulprits);
  }
  return text;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string picture(const std::vector<View>& views, int columns) {
  const auto width = static_cast<std::size_t>(std::max(columns, 60));
  const std::vector<Job> jobs = jobs_in(views);
  std::string text;
  for (const Job& job : jobs) {
    if (!text.empty()) text += "\n";
    text += job_text(job, width);
  }
  for (const Culprit& late : late_starters(views)) {
    text += wrapped("=> " + late.sentence, width, "   ");
  }
  for (const View& view : views) {
    for (const std::string& note : view.notes) text += wrapped(note, width, "   ");
  }
  if (text.empty()) text = "No job of Tutti runs here that this user may look at.\n";
  return text;
}

std::string json_text(const std::vector<View>& views) {
  nlohmann::json hosts = nlohmann::json::array(), jobs = nlohmann::json::array();
  for (const View& view : views) hosts.push_back(to_json(view));
  const auto list = [](const std::vector<Culprit>& culprits) {
    nlohmann::json all = nlohmann::json::array();
    for (const Culprit& c : culprits) {
      all.push_back({{"ranks", c.ranks}, {"pids", c.pids}, {"sentence", c.sentence}});
    }
    return all;
  };
  for (const Job& job : jobs_in(views)) {
    nlohmann::json ranks = nlohmann::json::array();
    for (const Rank& r : job.ranks) {
      nlohmann::json rank{{"rank", r.number},
                          {"state", state_text(r)},
                          {"call", r.call},
                          {"calls_a_second", r.calls_a_second},
                          {"bytes_a_second", r.bytes_a_second},
                          {"exposed", r.waiting_share},
                          {"error", r.error}};
      if (r.process != nullptr) {
        rank["pid"] = r.process->pid;
        rank["host"] = r.process->host;
      }
      if (r.wait != nullptr && r.state == RankState::waiting) {
        rank["waits_for"] = number_of(job, r.at->communicator, r.wait->peer);  // -1: not seen
        rank["waits_seconds"] = r.wait->seconds;
        rank["group_size"] = r.at->size;
      }
      ranks.push_back(std::move(rank));
    }
    jobs.push_back({{"size", job.size},
                    {"age", job.age},
                    {"command", job.command},
                    {"hosts", job.hosts},
                    {"ranks", std::move(ranks)},
                    {"culprits", list(job.culprits)}});
  }
  const nlohmann::json all{{"version", 1},
                           {"jobs", std::move(jobs)},
                           {"starting", list(late_starters(views))},
                           {"hosts", std::move(hosts)}};
  // What a rank has left may be no UTF-8.
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string prometheus_text(const std::vector<View>& views) {
  struct Metric {
    const char *name, *kind, *help;
    double (*value)(const Rank&);
  };
  static constexpr Metric kMetrics[] = {
      {"tutti_calls_total", "counter", "Collectives that the rank has called.",
       [](const Rank& r) {
         double all = 0;
         for (const Member* m : r.members) all += static_cast<double>(m->calls);
         return all;
       }},
      {"tutti_wait_seconds_total", "counter", "Time that the rank's callers have waited.",
       [](const Rank& r) {
         double all = 0;
         for (const Member* m : r.members) all += m->waited;
         return all;
       }},
      {"tutti_bytes_per_second", "gauge", "Bytes of the collectives called lately.",
       [](const Rank& r) { return r.bytes_a_second; }},
      {"tutti_waiting_seconds", "gauge",
       "How long the rank has waited in its call; 0: it does not.",
       [](const Rank& r) {
         return r.wait != nullptr && r.state == RankState::waiting ? r.wait->seconds : 0.0;
       }},
      {"tutti_failed", "gauge", "1: all of the rank's communicators have failed.",
       [](const Rank& r) { return r.state == RankState::failed ? 1.0 : 0.0; }},
  };
  const std::vector<Job> jobs = jobs_in(views);
  std::string text;
  const auto labels = [](const Job& job, const Rank& r) {
    return fmt::format(R"(rank="{}",host="{}",pid="{}",job="{}")", r.number,
                       r.process == nullptr ? "" : escaped(r.process->host),
                       r.process == nullptr ? 0 : r.process->pid, escaped(job.command));
  };
  for (const Metric& m : kMetrics) {
    text += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", m.name, m.kind, m.help);
    for (const Job& job : jobs) {
      for (const Rank& r : job.ranks) {
        text += fmt::format("{}{{{}}} {:.9g}\n", m.name, labels(job, r), m.value(r));
      }
    }
  }
  text += "# HELP tutti_culprit 1: the rank holds others up.\n# TYPE tutti_culprit gauge\n";
  for (const Job& job : jobs) {
    for (const Rank& r : job.ranks) {
      const bool guilty = std::ranges::any_of(job.culprits, [&](const Culprit& c) {
        return std::ranges::find(c.ranks, r.number) != c.ranks.end();
      });
      text += fmt::format("tutti_culprit{{{}}} {}\n", labels(job, r), guilty ? 1 : 0);
    }
  }
  return text;
}

}  // namespace tutti::top
