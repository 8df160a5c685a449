#include "bootstrap/id_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string_view>

#include "bootstrap/id_check.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/error.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using WallTime = std::chrono::system_clock::time_point;

// Launchers start the ranks of a job within such a time, with clocks that differ as hosts' do.
constexpr auto kOneLaunch = 5s;
// So long a rank waits for its own launch's rank 0 where there is only the file of another start.
// That is no proof: ranks may also be started by hand, one after the other.
constexpr auto kForOwnRankZero = 5s;
constexpr auto kForProof = 1s;
constexpr auto kLookAgain = 20ms;

/// What a file says.
struct Note {
  UniqueId id;
  WallTime started;    // the process that wrote it
  std::string writer;  // "pid 4711 on node1"
};

/// The text of a file; none where it cannot be read now. Throws for one that others may write.
std::optional<std::string> text_of(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!file || ::fstat(file.fd(), &status) != 0) return std::nullopt;
  if (status.st_uid != ::getuid() || (status.st_mode & 077) != 0) {
    throw Error(ErrorCode::system,
                fmt::format("{} (TUTTI_ID_FILE) belongs to somebody else, or others may read or "
                            "write it, so whoever is in it cannot be trusted; remove it",
                            path));
  }
  std::array<char, 4096> text;
  const ssize_t got = ::read(file.fd(), text.data(), text.size());
  if (got <= 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(got));
}

std::int64_t epoch_ms(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

/// Two lines: the id; when its writer started, in milliseconds, and which process on which host
/// that is.
std::string text_from(const UniqueId& id, const Launch& launch) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}\n{} pid {} on {}\n", to_string(id), epoch_ms(launch.started), ::getpid(),
                     host.data());
}

/// Throws Error(invalid_argument) for what text_from() did not write.
Note note_from(std::string_view text) {
  const std::size_t end = text.find('\n');
  Note note{unique_id_from_string(text.substr(0, end)), {}, ""};
  std::string_view rest = text.substr(std::min(end, text.size() - 1) + 1);
  std::int64_t started = 0;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), started);
  const auto used = static_cast<std::size_t>(stop - rest.data());
  if (error != std::errc{} || !rest.substr(used).starts_with(" pid ") || !rest.ends_with('\n')) {
    throw Error(ErrorCode::invalid_argument, "it does not say who has written it");
  }
  note.started = WallTime(std::chrono::milliseconds(started));
  note.writer = rest.substr(used + 1, rest.size() - used - 2);
  return note;
}

}  // namespace

std::string id_file_of(const std::string& path, const Launch& launch, unsigned world) {
  std::string file = path;
  if (!launch.job.empty()) {
    const auto digest = protocol::hash({}, "id file", {std::as_bytes(std::span(launch.job))});
    file += '.';
    for (std::size_t i = 0; i < 8; ++i)
      file += fmt::format("{:02x}", std::to_integer<unsigned>(digest[i]));
  }
  if (world > 0) file += fmt::format(".{}", world);
  return file;
}

void write_id_file(const std::string& path, const UniqueId& id, const Launch& launch) {
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  ::unlink(fresh.c_str());
  const FileDescriptor file(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text = text_from(id, launch);
  if (!file || ::write(file.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(fresh.c_str());
    throw_system_error(fmt::format("cannot write {} (TUTTI_ID_FILE)", path), error);
  }
}

UniqueId read_id_file(const std::string& path, int rank, const Launch& launch,
                      std::chrono::nanoseconds timeout) {
  const Deadline deadline = deadline_after(timeout);
  const Deadline for_own =
      Clock::now() + std::min<std::chrono::nanoseconds>(kForOwnRankZero, timeout / 2);
  std::string why = "it is not there";
  for (;;) {
    if (const auto text = text_of(path)) {
      try {
        const Note note = note_from(*text);
        const bool own =
            launch.unique || std::chrono::abs(note.started - launch.started) <= kOneLaunch;
        if (!own && Clock::now() < for_own) {
          why = "another launch has left it";
        } else {
          why = why_not_there(note.id, std::min(deadline, Clock::now() + kForProof));
          if (why.empty()) return note.id;
        }
        why += fmt::format(" ({} has written it)", note.writer);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        why = error.what();
      }
    } else if (errno == EACCES) {
      why = "this process may not read it";
    }
    if (Clock::now() + 5 * kLookAgain >= deadline) {  // no time is left to ask for a reason
      throw Error(ErrorCode::timed_out,
                  fmt::format("rank {} waited in vain for rank 0's id in {} (TUTTI_ID_FILE, which "
                              "all hosts must see): {}",
                              rank, path, why),
                  0);
    }
    pause_for(kLookAgain);
  }
}

void remove_id_file(const std::string& path, const UniqueId& id) {
  try {
    const auto text = text_of(path);
    if (text && text->starts_with(to_string(id))) ::unlink(path.c_str());
  } catch (const Error&) {  // it is not ours
  }
}

}  // namespace tutti
