// The output of the ranks with `--tag`: it cuts the output from pipes into lines, and prints
// "[rank] line". It never mixes a line with another one. Nothing here waits: the launcher polls.
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <vector>

#include "transport/socket.h"

namespace tutti {

/// One of the two streams (standard output, standard error) of all ranks.
class TaggedStream {
 public:
  TaggedStream(int ranks, int target_fd);

  /// The end for rank `rank` to write to; the caller closes it once the rank has it.
  FileDescriptor open_pipe(int rank);

  /// Appends what it waits for; call serve() after poll().
  void add_polls(std::vector<pollfd>& polls) const;
  /// Reads and writes as much as is possible now.
  void serve();
  /// All relevant processes have ended: reads the rest of the pipes, and closes them.
  void finish();
  bool all_written() const { return pending_.empty(); }

 private:
  struct Source {
    FileDescriptor pipe;
    std::string line;  // what has come of a line
  };

  bool may_read() const;
  /// False once there is nothing to read now.
  bool read_some(int rank);
  void cut_lines(int rank);
  void write_some();

  const int target_fd_;
  std::vector<Source> sources_;
  std::string pending_;  // lines for the target
};

}  // namespace tutti
