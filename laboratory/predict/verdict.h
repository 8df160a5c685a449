// Whether measured times are what a machine should reach. Each row has a band, within which 90 % of
// healthy machines' rows of its kind lie (evidence.h); neighbouring rows on the same side of their
// bands are a span, and spans make the verdict. No row decides alone, unless there are no others.
#pragma once

#include <string>
#include <vector>

#include "collectives/collective.h"
#include "laboratory/predict/evidence.h"

namespace tutti {

struct JudgedRow {
  double bytes = 0;
  double measured = 0, predicted = 0;  // us
  Band band;                           // as multiples of `predicted`
  bool known = true;                   // something was measured of its kind
  double ratio() const { return measured / predicted; }
};

enum class Outcome {
  fine,
  slow,
  fast,  // faster than machines of its kind are
  none,  // nothing can be said
};
std::string_view name(Outcome outcome);

/// Neighbouring sizes with one outcome.
struct Span {
  Outcome outcome = Outcome::fine;
  std::vector<JudgedRow> rows;      // by size
  bool decides = false;             // long enough, or far enough off, for the verdict
  const JudgedRow& middle() const;  // the row with the median ratio
  /// How many times slower than expected, if the expectation is as wrong as the band allows.
  double at_least() const;
};

struct SpeedVerdict {
  Outcome outcome = Outcome::none;
  std::vector<Span> spans;
  /// Sizes that take much longer than a larger one does: no rate or latency makes that.
  std::vector<JudgedRow> stalls;
  /// Why a log that is slow, or far too fast, has no verdict: what it assumes. Empty: nothing of
  /// weight.
  std::string depends_on;
  /// The one that the first line is about; null if there are no rows.
  const Span* worst() const;
};

/// Rows of one size are taken as their median. `assumed`: what nobody said and the expectation
/// depends on most ("the network"); then a slow log is no verdict.
SpeedVerdict judge(std::vector<JudgedRow> rows, const std::string& assumed);

}  // namespace tutti
