// See terminal_input.h.
#include "tools/terminal_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "core/error.h"

namespace tutti {

bool TerminalInput::needed() { return ::isatty(0) == 1; }

FileDescriptor TerminalInput::open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("making a pipe for rank 0's input");
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  pipe_ = FileDescriptor(ends[1]);
  return FileDescriptor(ends[0]);
}

// In the background, reading would stop the launcher.
bool TerminalInput::may_read() const {
  return pipe_ && !ended_ && pending_.empty() && ::tcgetpgrp(0) == ::getpgrp();
}

void TerminalInput::add_polls(std::vector<pollfd>& polls) const {
  if (may_read()) polls.push_back({0, POLLIN, 0});
  if (pipe_ && !pending_.empty()) polls.push_back({pipe_.fd(), POLLOUT, 0});
}

void TerminalInput::serve() {
  pollfd input{0, POLLIN, 0};
  if (may_read() && ::poll(&input, 1, 0) > 0) {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(0, buffer.data(), buffer.size());
    if (got > 0) pending_.assign(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) ended_ = true;
  }
  if (pipe_ && !pending_.empty()) {
    const ssize_t count = ::write(pipe_.fd(), pending_.data(), pending_.size());
    if (count > 0) pending_.erase(0, static_cast<std::size_t>(count));
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      pending_.clear();
      ended_ = true;  // rank 0 does not read any more
    }
  }
  if (ended_ && pending_.empty()) pipe_.reset();
}

}  // namespace tutti
