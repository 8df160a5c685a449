// See rank_output.h.
#include "tools/run/rank_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/error.h"

namespace tutti {
namespace {

constexpr std::size_t kLongestLine = 32 << 20;  // a longer one is cut; a message takes it
constexpr std::size_t kNoWait = 4096;           // poll() promises a pipe so much room (PIPE_BUF)

}  // namespace

RankOutput::RankOutput(int first_rank, int ranks, bool tag)
    : first_rank_(first_rank), tag_(tag), sources_(static_cast<std::size_t>(ranks)) {}

FileDescriptor RankOutput::open_pipe(int index) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("making a pipe for a rank's output");
  // Only our end: a program does not expect that its writes fail with EAGAIN.
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  drain(static_cast<std::size_t>(index));
  sources_[static_cast<std::size_t>(index)].pipe = FileDescriptor(ends[0]);
  return FileDescriptor(ends[1]);
}

void RankOutput::add_polls(std::vector<pollfd>& polls) const {
  if (!may_read()) return;
  for (const Source& source : sources_) {
    if (source.pipe) polls.push_back({source.pipe.fd(), POLLIN, 0});
  }
}

std::string RankOutput::read() {
  for (std::size_t index = 0; index < sources_.size(); ++index) {
    if (may_read()) read_some(index);
  }
  return take_lines();
}

std::string RankOutput::finish() {
  for (std::size_t index = 0; index < sources_.size(); ++index) drain(index);
  close();  // some process that left the job may still have the other ends
  return take_lines();
}

void RankOutput::drain(std::size_t index) {
  // A pipe holds a megabyte at most; a process that left the job may go on for ever.
  for (int i = 0; i < 128 && read_some(index); ++i) {
  }
  Source& source = sources_[index];
  if (!source.line.empty()) {
    source.line += '\n';
    cut_lines(index);
  }
}

void RankOutput::close() {
  for (Source& source : sources_) source.pipe.reset();
}

std::string RankOutput::take_lines() {
  under_way_ += lines_.size();
  return std::exchange(lines_, {});
}

bool RankOutput::read_some(std::size_t index) {
  Source& source = sources_[index];
  if (!source.pipe) return false;
  std::array<char, 16 << 10> buffer;
  const ssize_t got = ::read(source.pipe.fd(), buffer.data(), buffer.size());
  if (got < 0 && errno == EINTR) return true;
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {
    if (!source.line.empty()) source.line += '\n';
    cut_lines(index);
    source.pipe.reset();
    return false;
  }
  source.line.append(buffer.data(), static_cast<std::size_t>(got));
  cut_lines(index);
  return true;
}

void RankOutput::cut_lines(std::size_t index) {
  std::string& line = sources_[index].line;
  std::size_t& searched = sources_[index].searched;
  const int rank = first_rank_ + static_cast<int>(index);
  std::size_t start = 0;
  while (start < line.size()) {
    std::size_t end = line.find('\n', searched);
    const bool too_long = end == std::string::npos && line.size() - start >= kLongestLine;
    if (end == std::string::npos && !too_long) break;
    if (too_long) {
      end = line.size();
      cut_rank_ = rank;
    }
    if (tag_) lines_ += fmt::format("[{}] ", rank);
    lines_.append(line, start, end - start);
    lines_ += '\n';
    searched = start = too_long ? end : end + 1;
  }
  line.erase(0, start);
  searched = line.size();
}

std::optional<int> RankOutput::cut_rank() {
  if (!cut_rank_ || cut_told_) return std::nullopt;
  cut_told_ = true;
  return cut_rank_;
}

void OutputWriter::add_polls(std::vector<pollfd>& polls) const {
  if (!pending_.empty()) polls.push_back({target_fd_, POLLOUT, 0});
}

void OutputWriter::write() {
  while (written_ < pending_.size()) {
    pollfd target{target_fd_, POLLOUT, 0};
    if (::poll(&target, 1, 0) <= 0 || (target.revents & (POLLOUT | POLLERR | POLLHUP)) == 0) break;
    const ssize_t count = ::write(target_fd_, pending_.data() + written_,
                                  std::min(kNoWait, pending_.size() - written_));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) break;
    if (count < 0) {
      broken_ = errno;
      written_ = pending_.size();
      break;
    }
    written_ += static_cast<std::size_t>(count);
  }
  if (written_ < pending_.size() / 2) return;  // seldom, as it moves what is left
  pending_.erase(0, written_);
  written_ = 0;
}

}  // namespace tutti
