// What a job prints and reads: the output of all of its ranks, and the input of rank 0, between the
// launcher's own descriptors and the agents.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tools/run/agent.h"
#include "tools/run/rank_input.h"
#include "tools/run/rank_output.h"

namespace tutti {

class JobStreams {
 public:
  explicit JobStreams(std::size_t hosts) : owed_(hosts) {}

  /// Lines for stream 1 or 2, from ranks of a host.
  void print(int host, int stream, std::string_view lines);
  /// What an agent has passed on (MessageKind::fed).
  void fed(int bytes) { reader_.fed(bytes); }

  void add_polls(std::vector<pollfd>& polls, bool input) const;
  /// Writes as much as is possible now, and reads if `input`. Agents hear what became of it.
  void serve(Agent& agent, bool input);
  bool all_written() const { return writers_[0].all_written() && writers_[1].all_written(); }
  /// Some output could not be written, though somebody may read it (the disk is full, say); the
  /// user has heard it.
  bool has_lost_output() const { return has_lost_output_; }

 private:
  void report(const OutputWriter& broken);

  std::array<OutputWriter, 2> writers_{OutputWriter(1), OutputWriter(2)};
  bool has_lost_output_ = false;
  InputReader reader_;
  std::vector<std::array<int, 2>> owed_;  // bytes that a host has not been told about, by stream
};

}  // namespace tutti
