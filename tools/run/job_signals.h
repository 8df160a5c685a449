// The signals of a launcher: they arrive as data, and are passed on to the ranks.
#pragma once

#include <poll.h>
#include <signal.h>

#include <functional>
#include <optional>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

class JobSignals {
 public:
  /// Blocks them, in this thread and those that it makes.
  JobSignals();

  /// The mask before: of the ranks.
  const sigset_t& mask_before() const { return mask_before_; }
  void add_polls(std::vector<pollfd>& polls) const;
  /// The next one that has come; SIGCHLD too.
  std::optional<int> next();
  /// Whether the user asks this process to stop (Ctrl-Z).
  bool stop_wanted() const;
  /// Stops. The signal stayed pending until now, so that a SIGCONT that came in between has taken
  /// it away.
  void stop() const;

  /// Whether the signal asks the job to end.
  static bool ends(int number);

 private:
  FileDescriptor signals_;
  FileDescriptor stop_;  // tells of a pending SIGTSTP; never read
  sigset_t mask_before_{}, stop_set_{};
};

}  // namespace tutti
