// Standard input for rank 0, where it does not simply inherit the launcher's: because rank 0 is on
// another host, or because standard input is a terminal (a rank is not in the terminal's foreground
// process group, so reading there would stop it). The launcher reads, and the agent of rank 0's
// host passes on.
#pragma once

#include <poll.h>

#include <string>
#include <string_view>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

/// The launcher's end: it reads standard input, and never more than the agent is ready for.
class InputReader {
 public:
  static bool is_terminal();

  void add_polls(std::vector<pollfd>& polls) const;
  /// Appends what there is to read now to `bytes`. True once the input has ended.
  bool read(std::string& bytes);
  /// The agent has passed on so many bytes; -1: rank 0 reads no more.
  void fed(int bytes);

 private:
  bool may_read() const;

  std::size_t under_way_ = 0;
  bool ended_ = false;
};

/// The agent's end, with a pipe to rank 0.
class InputPipe {
 public:
  /// The end for rank 0 to read from; the caller closes it once the rank has it.
  FileDescriptor open();
  /// "": the end of the input.
  void add(std::string_view bytes);
  void add_polls(std::vector<pollfd>& polls) const;
  /// Writes as much as is possible now. Returns how many bytes that were; -1: rank 0 reads no more.
  int write();

 private:
  FileDescriptor pipe_;
  std::string pending_;
  bool ended_ = false;
};

}  // namespace tutti
