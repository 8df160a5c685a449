// See verdict.h.
#include "laboratory/predict/verdict.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

namespace tutti {
namespace {

/// So many neighbours decide. Fewer do where there are few rows, or where they are slower than
/// the doubt by so much.
constexpr std::size_t kEnough = 3;
constexpr double kFar = 2;
/// A stall takes so many times longer than a call that moves more.
constexpr double kStall = 1.5;
/// So many stalls are a verdict: the first row is often a warm-up, and one more may be other work.
constexpr std::size_t kManyStalls = 3;
/// So many times faster than the fastest ones of its kind no machine is: it is another machine.
constexpr double kAnotherMachine = 2;

Outcome outcome_of(const JudgedRow& row) {
  return row.ratio() > row.band.high  ? Outcome::slow
         : row.ratio() < row.band.low ? Outcome::fast
                                      : Outcome::fine;
}

double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

/// Each size once.
std::vector<JudgedRow> by_size(const std::vector<JudgedRow>& rows) {
  std::map<double, std::vector<JudgedRow>> sizes;
  for (const JudgedRow& row : rows) sizes[row.bytes].push_back(row);
  std::vector<JudgedRow> all;
  for (const auto& [bytes, same] : sizes) {
    std::vector<double> times;
    for (const JudgedRow& row : same) times.push_back(row.measured);
    all.push_back(same.front());
    all.back().measured = middle_of(times);
  }
  return all;
}

/// Of rows by size.
bool is_stall(const std::vector<JudgedRow>& rows, std::size_t i) {
  const auto faster = [&](const JudgedRow& later) {
    return later.bytes > rows[i].bytes && later.measured * kStall < rows[i].measured;
  };
  return rows[i].ratio() > rows[i].band.high && std::ranges::any_of(rows, faster);
}

}  // namespace

std::string_view name(Outcome outcome) {
  constexpr std::array<std::string_view, 4> kNames{"fine", "slow", "fast", "none"};
  return kNames[static_cast<std::size_t>(outcome)];
}

const JudgedRow& Span::middle() const {
  std::vector<double> ratios;
  for (const JudgedRow& row : rows) ratios.push_back(row.ratio());
  return *std::ranges::find(rows, middle_of(ratios), &JudgedRow::ratio);
}

double Span::at_least() const {
  std::vector<double> beyond;
  for (const JudgedRow& row : rows) beyond.push_back(row.ratio() / row.band.high);
  return middle_of(beyond);
}

const Span* SpeedVerdict::worst() const {
  const Span* found = nullptr;
  const auto rank = [](const Span& s) {
    return s.outcome == Outcome::slow && s.decides ? 3 : s.outcome == Outcome::fine ? 1 : 2;
  };
  for (const Span& s : spans) {
    if (found == nullptr || rank(s) > rank(*found) ||
        (rank(s) == rank(*found) && s.at_least() > found->at_least())) {
      found = &s;
    }
  }
  return found;
}

SpeedVerdict judge(std::vector<JudgedRow> rows, const std::string& assumed) {
  SpeedVerdict v;
  rows = by_size(rows);
  if (rows.empty()) return v;
  std::vector<JudgedRow> steady;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (is_stall(rows, i) ? v.stalls : steady).push_back(rows[i]);
  }
  for (const JudgedRow& row : steady) {
    const Outcome outcome = outcome_of(row);
    if (v.spans.empty() || v.spans.back().outcome != outcome)
      v.spans.emplace_back().outcome = outcome;
    v.spans.back().rows.push_back(row);
  }
  bool slow = v.stalls.size() >= kManyStalls, fast = true, known = false;
  for (Span& s : v.spans) {
    const bool most = 2 * s.rows.size() > steady.size();
    s.decides = s.rows.size() >= kEnough || most ||
                (s.rows.size() >= 2 && s.outcome == Outcome::slow && s.at_least() > kFar);
    slow = slow || (s.outcome == Outcome::slow && s.decides);
    fast = fast && s.outcome == Outcome::fast;
  }
  for (const JudgedRow& row : rows) known = known || row.known;
  v.outcome = slow ? Outcome::slow : fast ? Outcome::fast : Outcome::fine;
  // Of what nothing was measured of, only what no doubt explains is said.
  if (!known && v.outcome != Outcome::slow) v.outcome = Outcome::none;
  const Span* worst = v.worst();
  const JudgedRow* row = v.outcome == Outcome::fast ? &worst->middle() : nullptr;
  if (row != nullptr && row->ratio() * kAnotherMachine < row->band.low) {
    v.outcome = Outcome::none;
    v.depends_on =
        "no such machine is so fast: say what it is like (--machine, --topology, --network)";
  }
  if (!assumed.empty() && v.outcome == Outcome::slow) {
    v.outcome = Outcome::none;
    v.depends_on = assumed;
  }
  return v;
}

}  // namespace tutti
