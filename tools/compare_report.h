// What `tutti compare` reports: rows of measured times, and the table, JSON and chart made of them.
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

/// Microseconds of one size in one program: a median for every alternation.
using Times = std::vector<double>;

/// NaN of none.
double median(Times times);

/// What one run of a program printed (bench/peers/loop.h).
struct Output {
  std::map<std::size_t, double> times;  // by bytes
  std::string unsupported;              // why it measured nothing; empty: it did
};
/// Throws Error(internal) naming the line that is not part of a measurement.
Output parse_output(std::string_view text);

/// One collective on one size.
struct Row {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // of a rank's larger buffer
  DataType type = DataType::float32;
  int ranks = 0;
  std::string memory;                               // "window" or "malloc"; Tutti's
  Times tutti;                                      // never empty
  std::map<std::string, Times, std::less<>> peers;  // those that were measured
  Times limit;                                      // may be empty

  double tutti_us() const { return median(tutti); }
  double bus_gbps() const;  // of Tutti; 1e9 bytes per second
  /// The name and the time of the fastest peer.
  std::optional<std::pair<std::string, double>> best_peer() const;
  /// How many times as fast as the best peer Tutti is.
  std::optional<double> ratio() const;
  /// The limit's time / Tutti's time: 1 is as fast as the machine.
  std::optional<double> of_limit() const;
};

/// The table of one collective, whose rows these are. `verbose`: with each time's least and most.
std::string format_table(const std::vector<Row>& rows, const std::vector<std::string>& peers,
                         bool verbose);

/// How the rows came about.
struct Conditions {
  std::string cpu;  // its model
  int cores = 0;
  int alternations = 0;
  int iterations = 0;
  bool bound = false;
  std::vector<std::string> notes;  // what is missing
};
std::string format_json(const std::vector<Row>& rows, const Conditions& run);

/// Ratio over size, one line for each collective; above 1 Tutti is faster than the best peer.
std::string format_svg(const std::vector<Row>& rows, const Conditions& run);

}  // namespace tutti::compare
