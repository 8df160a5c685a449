#include "parallel/trace.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <ostream>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "parallel/json_text.h"

namespace tutti::parallel {
namespace {

/// As the format counts: microseconds.
double microseconds(Trace::Clock::time_point at) {
  return std::chrono::duration<double, std::micro>(at.time_since_epoch()).count();
}

void write_events(std::ostream& out, const Trace& trace) {
  const int pid = trace.rank();
  out << fmt::format(
      "{{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": {0}, \"args\": {{\"name\": \"rank "
      "{0}\"}}}},\n",
      pid);
  std::map<std::string, std::size_t> tracks;
  std::size_t flights = 0;
  for (const Trace::Event& event : trace.events()) {
    const auto [track, is_new] = tracks.emplace(event.track, tracks.size() + 1);
    if (is_new) {
      out << fmt::format(
          "{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": {}, \"tid\": {}, \"args\": "
          "{{\"name\": {}}}}},\n",
          pid, track->second, json_text(event.track));
    }
    const auto line = [&](char phase, Trace::Clock::time_point at, const std::string& more) {
      out << fmt::format(
          "{{\"ph\": \"{}\", \"name\": {}, \"cat\": {}, \"pid\": {}, \"tid\": {}, \"ts\": "
          "{:.3f}{}}},\n",
          phase, json_text(event.name), json_text(event.track), pid, track->second,
          microseconds(at), more);
    };
    switch (event.kind) {
      case Trace::Kind::span:
        line('X', event.from,
             fmt::format(", \"dur\": {:.3f}", microseconds(event.to) - microseconds(event.from)));
        break;
      case Trace::Kind::flight: {  // a pair of events with an id of their own
        const std::string id = fmt::format(", \"id\": \"{}.{}\"", pid, ++flights);
        line('b', event.from, id);
        line('e', event.to, id);
        break;
      }
      case Trace::Kind::instant:
        line('i', event.from, ", \"s\": \"t\"");
        break;
    }
  }
}

}  // namespace

void Trace::span(std::string track, std::string name, Clock::time_point from,
                 Clock::time_point to) {
  record({Kind::span, std::move(track), std::move(name), from, to});
}

void Trace::flight(std::string track, std::string name, Clock::time_point from,
                   Clock::time_point to) {
  record({Kind::flight, std::move(track), std::move(name), from, to});
}

void Trace::instant(std::string track, std::string name, Clock::time_point at) {
  record({Kind::instant, std::move(track), std::move(name), at, at});
}

void Trace::record(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

std::vector<Trace::Event> Trace::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Trace::clear() {
  const std::lock_guard lock(mutex_);
  events_.clear();
}

std::string events_json(const Trace& trace) {
  std::ostringstream out;
  write_events(out, trace);
  return out.str();
}

void write_json(std::ostream& out, std::span<const std::string> events) {
  errno = 0;
  out << "[\n";
  for (const std::string& lines : events) out << lines;
  // An event that says nothing takes the place of the last comma.
  out << "{\"ph\": \"M\", \"name\": \"end\", \"pid\": 0}\n]\n" << std::flush;
  if (out) return;
  // A file's error is the last one of the system's.
  const std::string why = "the trace could not be written, and what there is of it is no trace";
  if (errno != 0) throw_system_error(why);
  throw Error(ErrorCode::system, why);
}

void write_json(std::ostream& out, std::span<const std::shared_ptr<Trace>> traces) {
  std::vector<std::string> events;
  for (const auto& trace : traces) {
    if (trace) events.push_back(events_json(*trace));
  }
  write_json(out, events);
}

}  // namespace tutti::parallel
