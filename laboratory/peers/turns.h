// A rank's side of the turns that `tutti compare` gives. All programs start and stay. One at a time
// measures, while the ranks of all others are blocked in read(), so they use no core. The conductor
// writes to every rank through a named pipe of its own in the comparison's folder; all ranks write
// back to one pipe. Lines of text:
//
//     to `turn.RANK`, for each turn:   BYTES
//     from rank 0, if it knows:        over WHAT CARRIES THE BYTES
//     from rank 0:                     times MICROSECONDS...   or   unsupported REASON
//     from every rank that waits:      waiting RANK
//
// When the pipe ends the comparison is over, even if `tutti compare` was killed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti::peers {

class Turns {
 public:
  Turns(const std::string& folder, int rank);

  /// Says that this rank waits, and returns the size to measure now; nothing at the end.
  std::optional<std::size_t> next();
  /// Rank 0 alone: the times of the turn, for each way to do the job.
  void report(const std::vector<double>& microseconds);

 private:
  int rank_;
  FileDescriptor turn_, report_;
};

/// Before the turns, and by rank 0 alone: the transport between the ranks.
void report_carrier(const std::string& folder, const std::string& carrier);

/// Instead of turns, and by one rank alone: this library has no such collective or type.
void report_unsupported(const std::string& folder, const std::string& reason);

}  // namespace tutti::peers
