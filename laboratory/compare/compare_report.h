// The report of `tutti compare`: rows of measured times, and the table, JSON and chart of them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"
#include "core/types.h"

namespace tutti::compare {

/// Microseconds of one size in one program, one of each round.
using Times = std::vector<double>;

/// The figures of several rounds; half of the rounds lie between the quartiles.
struct Figure {
  double median = 0;
  double low = 0, high = 0;  // quartiles

  /// Whether the figure is good enough to report: the quartiles are no further apart than the
  /// median is large.
  bool steady() const { return high - low <= median; }
};
/// NaNs if there are no rounds.
Figure figure_of(Times times);

/// One collective on one size.
struct Row {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // of a rank's larger buffer
  DataType type = DataType::float32;
  int ranks = 0;
  std::string memory;                               // Tutti's: "window", "malloc" or "heap"
  Times tutti;                                      // never empty
  std::map<std::string, Times, std::less<>> peers;  // those that were measured
  std::vector<Times> limit;                         // of each way that it has; may be empty

  double bus_gbps() const;  // of Tutti; 1e9 bytes per second
  /// The fastest peer; empty if there is none.
  std::string best_peer() const;
  /// The times of the limit's fastest way. It is the same one in all rounds: the fastest of each
  /// round would be the luckiest.
  Times best_limit() const;
  /// How many times as fast as the best peer Tutti is, by round: the two times of a round were
  /// measured next to each other, so the same state of the machine is in both.
  std::optional<Figure> ratio() const;
  /// The limit's time / Tutti's time, likewise: 1 is as fast as the machine.
  std::optional<Figure> of_limit() const;
};

/// The table of one collective, from its rows. `verbose`: with each time's quartiles.
std::string format_table(const std::vector<Row>& rows, const std::vector<std::string>& peers,
                         bool verbose);

/// The conditions of the measurement.
struct Conditions {
  std::string cpu;  // its model
  int cores = 0;
  int rounds = 0;
  int slice = 0;  // milliseconds
  bool bound = false;
  std::vector<std::string> notes;  // what is missing
  std::string carrier = {};        // of Tutti's bytes; "": not known
};
std::string format_json(const std::vector<Row>& rows, const Conditions& run);

/// Ratio over size, one line for each collective; above 1 Tutti is faster than the best peer.
/// Unsteady ratios have no dot, only the line between their quartiles.
std::string format_svg(const std::vector<Row>& rows, const Conditions& run);

}  // namespace tutti::compare
