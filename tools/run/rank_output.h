// The output of ranks, where it does not go straight to the launcher's own: it comes through pipes,
// is cut into lines, and is printed line by line, with "[rank] " in front if the user wants that. A
// line is never mixed with another one. Nothing here waits: the owner polls.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

constexpr std::size_t kMostOutput = 1 << 20;  // bytes under way; then the ranks wait

/// One of the two streams (standard output, standard error) of all ranks of a host.
class RankOutput {
 public:
  RankOutput(int first_rank, int ranks, bool tag);

  /// The end for the host's rank `index` to write to; the caller closes it once the rank has it.
  /// Takes in what is left in the one before.
  FileDescriptor open_pipe(int index);

  /// Appends what it waits for; call read() after poll().
  void add_polls(std::vector<pollfd>& polls) const;
  /// The lines that have come; the reader is ready for them.
  std::string read();
  /// All relevant processes have ended: the rest of the pipes, which are closed.
  std::string finish();
  /// The reader has taken so many bytes, and is ready for as many more.
  void taken(std::size_t bytes) { under_way_ -= std::min(under_way_, bytes); }
  /// The rank of which a line was too long, and has been cut; told once.
  std::optional<int> cut_rank();
  /// Nobody reads any more. The ranks shall see it as they would without us: SIGPIPE.
  void close();

 private:
  struct Source {
    FileDescriptor pipe;
    std::string line;          // what has come of a line
    std::size_t searched = 0;  // of it, for its end
  };

  bool may_read() const { return under_way_ + lines_.size() < kMostOutput; }
  /// False once there is nothing to read now.
  bool read_some(std::size_t index);
  void drain(std::size_t index);
  void cut_lines(std::size_t index);
  std::string take_lines();

  const int first_rank_;
  const bool tag_;
  std::vector<Source> sources_;
  std::string lines_;          // whole ones, for the reader
  std::size_t under_way_ = 0;  // bytes that the reader has, and has not taken
  std::optional<int> cut_rank_;
  bool cut_told_ = false;
};

/// Writes lines to a descriptor as fast as its reader takes them.
class OutputWriter {
 public:
  explicit OutputWriter(int target_fd) : target_fd_(target_fd) {}

  void add(std::string_view lines) {
    if (!broken()) pending_ += lines;
  }
  void add_polls(std::vector<pollfd>& polls) const;
  void write();
  bool is_behind() const { return pending_.size() - written_ >= kMostOutput; }
  bool all_written() const { return pending_.empty(); }
  /// Nobody reads any more, or the system takes no more.
  bool broken() const { return broken_ != 0; }
  /// Why, by errno; EPIPE: nobody reads.
  int why_broken() const { return broken_; }
  int target() const { return target_fd_; }

 private:
  const int target_fd_;
  int broken_ = 0;
  std::string pending_;
  std::size_t written_ = 0;  // of it
};

}  // namespace tutti
