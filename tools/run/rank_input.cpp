// See rank_input.h.
#include "tools/run/rank_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kMostInput = 64 << 10;  // bytes under way

}  // namespace

bool InputReader::is_terminal() { return ::isatty(0) == 1; }

// In the background, reading from a terminal would stop the launcher.
bool InputReader::may_read() const {
  return !ended_ && under_way_ < kMostInput && (!is_terminal() || ::tcgetpgrp(0) == ::getpgrp());
}

void InputReader::add_polls(std::vector<pollfd>& polls) const {
  if (may_read()) polls.push_back({0, POLLIN, 0});
}

bool InputReader::read(std::string& bytes) {
  pollfd input{0, POLLIN, 0};
  if (!may_read() || ::poll(&input, 1, 0) <= 0) return false;
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(0, buffer.data(), buffer.size());
  if (got > 0) {
    bytes.append(buffer.data(), static_cast<std::size_t>(got));
    under_way_ += static_cast<std::size_t>(got);
  }
  ended_ = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
  return ended_;
}

void InputReader::fed(int bytes) {
  if (bytes < 0) {
    ended_ = true;
  } else {
    under_way_ -= std::min(under_way_, static_cast<std::size_t>(bytes));
  }
}

FileDescriptor InputPipe::open() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("making a pipe for rank 0's input");
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  pipe_ = FileDescriptor(ends[1]);
  return FileDescriptor(ends[0]);
}

void InputPipe::add(std::string_view bytes) {
  if (bytes.empty()) ended_ = true;
  if (pipe_) pending_ += bytes;
  if (ended_ && pending_.empty()) pipe_.reset();
}

void InputPipe::add_polls(std::vector<pollfd>& polls) const {
  if (pipe_ && !pending_.empty()) polls.push_back({pipe_.fd(), POLLOUT, 0});
}

int InputPipe::write() {
  int written = 0;
  if (pipe_ && !pending_.empty()) {
    const ssize_t count = ::write(pipe_.fd(), pending_.data(), pending_.size());
    if (count > 0) {
      pending_.erase(0, static_cast<std::size_t>(count));
      written = static_cast<int>(count);
    } else if (count < 0 && errno != EINTR && errno != EAGAIN) {
      pending_.clear();
      ended_ = true;
      written = -1;
    }
  }
  if (ended_ && pending_.empty()) pipe_.reset();
  return written;
}

}  // namespace tutti
