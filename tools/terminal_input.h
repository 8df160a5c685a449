// Standard input for rank 0 when it is a terminal. A rank is not in the terminal's foreground
// process group, so reading there would stop it; the launcher reads and passes on. (A file or a
// pipe is simply inherited.)
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "transport/socket.h"

namespace tutti {

class TerminalInput {
 public:
  /// Whether standard input is a terminal.
  static bool needed();

  /// The end for rank 0 to read from; the caller closes it once the rank has it.
  FileDescriptor open_pipe();
  void add_polls(std::vector<pollfd>& polls) const;
  void serve();

 private:
  bool may_read() const;

  FileDescriptor pipe_;
  std::string pending_;
  bool ended_ = false;
};

}  // namespace tutti
