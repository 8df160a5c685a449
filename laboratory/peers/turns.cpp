// See turns.h.
#include "laboratory/peers/turns.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>

#include "core/error.h"

namespace tutti::peers {
namespace {

/// Not to wait for the other end: if that is gone, the comparison is over.
FileDescriptor open_pipe(const std::string& path, int flags) {
  FileDescriptor pipe(::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC));
  if (!pipe) throw_system_error("cannot open " + path);
  return pipe;
}

FileDescriptor open_report(const std::string& folder) {
  return open_pipe(folder + "/report", O_WRONLY);
}

/// At once: lines of several ranks do not mix.
void write_line(const FileDescriptor& pipe, const std::string& line) {
  if (::write(pipe.fd(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    throw_system_error("cannot report to `tutti compare`");
  }
}

}  // namespace

Turns::Turns(const std::string& folder, int rank)
    : rank_(rank),
      turn_(open_pipe(fmt::format("{}/turn.{}", folder, rank), O_RDONLY)),
      report_(open_report(folder)) {
  if (::fcntl(turn_.fd(), F_SETFL, 0) != 0) throw_system_error("cannot wait for a turn");
}

std::optional<std::size_t> Turns::next() {
  write_line(report_, fmt::format("waiting {}\n", rank_));
  char line[32];  // there is one at most: the next one comes when this rank waits again
  ssize_t got;
  do {
    got = ::read(turn_.fd(), line, sizeof line);
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw_system_error("cannot wait for a turn");
  if (got == 0) return std::nullopt;
  std::size_t bytes = 0;
  const char* const end = line + got;
  const auto parsed = std::from_chars(line, end, bytes);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr, end) != "\n") {
    throw Error(ErrorCode::internal,
                fmt::format("expected a size, got '{}'", std::string_view(line, end)));
  }
  return bytes;
}

void Turns::report(const std::vector<double>& microseconds) {
  write_line(report_, fmt::format("times {:.4f}\n", fmt::join(microseconds, " ")));
}

void report_carrier(const std::string& folder, const std::string& carrier) {
  write_line(open_report(folder), fmt::format("over {}\n", carrier));
}

void report_unsupported(const std::string& folder, const std::string& reason) {
  write_line(open_report(folder), fmt::format("unsupported {}\n", reason));
}

}  // namespace tutti::peers
