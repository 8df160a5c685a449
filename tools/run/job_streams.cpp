// See job_streams.h.
#include "tools/run/job_streams.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "tools/run/job_report.h"

namespace tutti {
namespace {

constexpr int kTakenAtOnce = 64 << 10;  // bytes of output; agents are not told about fewer

}  // namespace

void JobStreams::print(int host, int stream, std::string_view lines) {
  const auto index = static_cast<std::size_t>(stream - 1);
  owed_[static_cast<std::size_t>(host)][index] += static_cast<int>(lines.size());
  writers_[index].add(lines);
}

void JobStreams::add_polls(std::vector<pollfd>& polls, bool input) const {
  for (const OutputWriter& writer : writers_) writer.add_polls(polls);
  if (input) reader_.add_polls(polls);
}

void JobStreams::serve(Agent& agent, bool input) {
  for (std::size_t index = 0; index < writers_.size(); ++index) {
    OutputWriter& writer = writers_[index];
    const int stream = static_cast<int>(index) + 1;
    const bool was_broken = writer.broken();
    writer.write();
    if (writer.broken() && !was_broken) {
      report(writer);
      agent.obey({MessageKind::unread, -1, stream, 0, ""});
    }
    if (writer.is_behind()) continue;
    for (std::size_t host = 0; host < owed_.size(); ++host) {
      int& owed = owed_[host][index];
      if (owed < kTakenAtOnce) continue;
      agent.obey({MessageKind::taken, static_cast<int>(host), stream, owed, ""});
      owed = 0;
    }
  }
  if (!input) return;
  std::string bytes;
  const bool ended = reader_.read(bytes);
  if (!bytes.empty()) agent.obey({MessageKind::input, -1, 0, 0, bytes});
  if (ended) agent.obey({MessageKind::input, -1, 0, 0, ""});
}

/// A job with output that nobody reads ends without a word, as every program of a pipeline does.
void JobStreams::report(const OutputWriter& broken) {
  if (broken.why_broken() == EPIPE) return;
  has_lost_output_ = true;
  report_on_job(
      "what the ranks write to standard {} cannot be written: {}; it is lost from here on",
      broken.target() == 1 ? "output" : "error",
      std::generic_category().message(broken.why_broken()));
}

}  // namespace tutti
