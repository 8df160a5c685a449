// Trace: a rank's actions over time, for a person to look at. Engines and axes write down spans of
// time; the file is the Trace Event Format that Perfetto (ui.perfetto.dev) and chrome://tracing
// show: a process for each rank, in it a track for each kind of thing.
//
// Times are of the steady clock, which the processes of a host share, so the traces of its ranks
// fit together in one file. Any thread may record.
#pragma once

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::parallel {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind : unsigned char {
    span,     // from, to: on one track they nest, or follow each other
    flight,   // from, to: flights of one track may overlap in any way
    instant,  // at from
  };
  struct Event {
    Kind kind;
    std::string track, name;
    Clock::time_point from, to;
  };

  explicit Trace(int rank) : rank_(rank) {}

  void span(std::string track, std::string name, Clock::time_point from, Clock::time_point to);
  void flight(std::string track, std::string name, Clock::time_point from, Clock::time_point to);
  void instant(std::string track, std::string name, Clock::time_point at = Clock::now());

  int rank() const { return rank_; }
  /// The events so far, in the order of recording, which is the order of their ends.
  std::vector<Event> events() const;
  void clear();

 private:
  void record(Event event);

  const int rank_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// One file of the traces of several ranks, as JSON. Throws Error(system) if the write fails (a
/// full disk). For traces of other processes: gather_trace.h.
void write_json(std::ostream& out, std::span<const std::shared_ptr<Trace>> traces);

/// One trace's part of such a file; and a file of several parts.
std::string events_json(const Trace& trace);
void write_json(std::ostream& out, std::span<const std::string> events);

}  // namespace tutti::parallel
