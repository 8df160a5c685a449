#include "bootstrap/id_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/error.h"
#include "transport/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// The text of a file; none where it cannot be read now. Throws for one that others may write.
std::optional<std::string> text_of(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return std::nullopt;
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return std::nullopt;
  if (status.st_uid != ::getuid() || (status.st_mode & 077) != 0) {
    throw Error(ErrorCode::system,
                fmt::format("{} (TUTTI_ID_FILE) belongs to somebody else, or others may read or "
                            "write it, so whoever is in it cannot be trusted; remove it",
                            path));
  }
  std::array<char, 4096> text;
  const ssize_t got = ::read(file.fd(), text.data(), text.size());
  if (got <= 0) return std::nullopt;
  std::string result(text.data(), static_cast<std::size_t>(got));
  while (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

}  // namespace

void write_id_file(const std::string& path, const UniqueId& id) {
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  ::unlink(fresh.c_str());
  const FileDescriptor file(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text = to_string(id) + "\n";
  if (!file || ::write(file.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(fresh.c_str());
    throw_system_error(fmt::format("cannot write {} (TUTTI_ID_FILE)", path), error);
  }
}

UniqueId read_id_file(const std::string& path, int rank, std::chrono::nanoseconds timeout) {
  const Deadline deadline = deadline_after(timeout);
  std::string why = "it is not there";
  for (;;) {
    if (const auto text = text_of(path)) {
      try {
        const UniqueId id = unique_id_from_string(*text);
        const SocketAddress address = wire::decode(id).address;
        if (connect_to(address, std::min(deadline, Clock::now() + 1s))) return id;
        why =
            fmt::format("the rendezvous that it names, at {}, is not reached", to_string(address));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        why = error.what();
      }
    }
    if (Clock::now() >= deadline) {
      throw Error(ErrorCode::timed_out,
                  fmt::format("rank {} waited in vain for rank 0's id in {} (TUTTI_ID_FILE, which "
                              "all hosts must see): {}",
                              rank, path, why),
                  0);
    }
    pause_for(20ms);
  }
}

void remove_id_file(const std::string& path, const UniqueId& id) {
  try {
    const auto text = text_of(path);
    if (text && *text == to_string(id)) ::unlink(path.c_str());
  } catch (const Error&) {  // it is not ours
  }
}

}  // namespace tutti
