// Other programs beside a comparison: loops that keep a core busy, as a compiler or another user's
// job does. Each is a session of its own, so that the kernel's scheduler counts it as somebody else
// (autogroup), and not as a part of the job.
#pragma once

#include <sys/types.h>

#include <vector>

namespace tutti::compare {

class Neighbours {
 public:
  /// Starts `count` of them. Throws Error(system).
  explicit Neighbours(int count);
  /// Ends them. They end, too, when the thread that started them does.
  ~Neighbours();
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

 private:
  std::vector<pid_t> pids_;
};

}  // namespace tutti::compare
