// See tagged_output.h.
#include "tools/tagged_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kLongestLine = 64 << 10;  // a longer one is cut
constexpr std::size_t kMostPending = 1 << 20;   // then the ranks wait for the reader
constexpr std::size_t kNoWait = 4096;           // poll() promises a pipe so much room (PIPE_BUF)

}  // namespace

TaggedStream::TaggedStream(int ranks, int target_fd)
    : target_fd_(target_fd), sources_(static_cast<std::size_t>(ranks)) {}

FileDescriptor TaggedStream::open_pipe(int rank) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("making a pipe for a rank's output");
  // Only our end: a program does not expect that its writes fail with EAGAIN.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_[static_cast<std::size_t>(rank)].pipe = FileDescriptor(ends[0]);
  return FileDescriptor(ends[1]);
}

bool TaggedStream::may_read() const { return pending_.size() < kMostPending; }

void TaggedStream::add_polls(std::vector<pollfd>& polls) const {
  if (!pending_.empty()) polls.push_back({target_fd_, POLLOUT, 0});
  if (!may_read()) return;
  for (const Source& source : sources_) {
    if (source.pipe) polls.push_back({source.pipe.fd(), POLLIN, 0});
  }
}

void TaggedStream::serve() {
  for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
    if (may_read()) read_some(static_cast<int>(rank));
  }
  write_some();
}

void TaggedStream::finish() {
  for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
    // A pipe holds a megabyte at most; a process that left the job may go on for ever.
    for (int i = 0; i < 128 && read_some(static_cast<int>(rank)); ++i) {
    }
    Source& source = sources_[rank];
    if (!source.line.empty()) {
      source.line += '\n';
      cut_lines(static_cast<int>(rank));
    }
    source.pipe.reset();  // some process that left the job may still have the other end
  }
}

bool TaggedStream::read_some(int rank) {
  Source& source = sources_[static_cast<std::size_t>(rank)];
  if (!source.pipe) return false;
  std::array<char, 16 << 10> buffer;
  const ssize_t got = ::read(source.pipe.fd(), buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {
    if (!source.line.empty()) source.line += '\n';
    cut_lines(rank);
    source.pipe.reset();
    return false;
  }
  source.line.append(buffer.data(), static_cast<std::size_t>(got));
  cut_lines(rank);
  return true;
}

void TaggedStream::cut_lines(int rank) {
  std::string& line = sources_[static_cast<std::size_t>(rank)].line;
  std::size_t start = 0;
  while (start < line.size()) {
    std::size_t end = line.find('\n', start);
    const bool too_long = end == std::string::npos && line.size() - start >= kLongestLine;
    if (end == std::string::npos && !too_long) break;
    if (too_long) end = line.size();
    pending_ += fmt::format("[{}] ", rank);
    pending_.append(line, start, end - start);
    pending_ += '\n';
    start = too_long ? end : end + 1;
  }
  line.erase(0, start);
}

void TaggedStream::write_some() {
  std::size_t written = 0;
  while (written < pending_.size()) {
    pollfd target{target_fd_, POLLOUT, 0};
    if (::poll(&target, 1, 0) <= 0 || (target.revents & (POLLOUT | POLLERR | POLLHUP)) == 0) break;
    const ssize_t count = ::write(target_fd_, pending_.data() + written,
                                  std::min(kNoWait, pending_.size() - written));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (count < 0) {
      // Nobody reads any more. The ranks shall see it as they would without us: SIGPIPE.
      for (Source& source : sources_) source.pipe.reset();
      pending_.clear();
      return;
    }
    written += static_cast<std::size_t>(count);
  }
  pending_.erase(0, written);
}

}  // namespace tutti
