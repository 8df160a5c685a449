// Where a launch starts several programs at once, the first that asks for the launcher's words has
// the seat, and the others are told so: their words would get mixed up. The seat is an abstract
// unix socket, which is gone with its process.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bootstrap/id_handover.h"
#include "bootstrap/launcher.h"
#include "bootstrap/process.h"
#include "core/background.h"
#include "core/error.h"
#include "core/fork.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kForOneThatEnds = 1s;

/// A name for the rank that this process is to its launcher; "": it has no seat.
std::string seat_name(const Launcher& launcher) {
  switch (launcher.store) {
    case Store::none:
    case Store::torch:  // serves any number
      return "";
    case Store::pmix:
      return fmt::format("{}/{}", variable("PMIX_NAMESPACE").value_or(""),
                         variable("PMIX_RANK").value_or(""));
    case Store::pmi: {
      struct stat socket {};
      const auto fd = integer_variable("PMI_FD");
      if (fd && ::fstat(*fd, &socket) == 0) return fmt::format("pmi/{}", socket.st_ino);
      return fmt::format("{}/{}", variable("PMI_PORT").value_or(""),
                         variable("PMI_ID").value_or(""));
    }
  }
  return "";
}

/// The process that sits there; 0: it has ended, and something that it has left keeps the socket.
pid_t sitting_at(const SocketAddress& address) {
  const FileDescriptor socket = connect_to(address, Clock::now() + 100ms);
  const pid_t pid = socket ? peer_process(socket.fd()) : 0;
  return pid > 0 && pid != ::getpid() && ::kill(pid, 0) == 0 ? pid : 0;
}

}  // namespace

void take_seat(const Launcher& launcher) {
  static std::mutex mutex;
  static std::map<std::string, std::pair<std::uint32_t, FileDescriptor>> taken;
  const std::lock_guard lock(mutex);
  const std::string name = seat_name(launcher);
  const auto found = taken.find(name);
  if (name.empty() || (found != taken.end() && found->second.first == process_generation())) return;
  const SocketAddress address = handover_address("seat of " + name);
  const auto begun = Clock::now();
  for (;;) {
    FileDescriptor seat = listen_at(address);
    const pid_t other = seat ? 0 : sitting_at(address);
    if (other == 0) {
      taken[name] = {process_generation(), std::move(seat)};
      return;
    }
    if (Clock::now() - begun > kForOneThatEnds) {
      auto words = command_of(other);
      if (!words.empty()) words.erase(words.begin());
      throw Error(
          ErrorCode::invalid_usage,
          fmt::format("two processes are this rank for {}'s launcher at once: this one, and "
                      "pid {} ({}). Between hosts, ranks find each other by the launcher, "
                      "which speaks with one process of a rank: start each program by a "
                      "launch of its own, or give each a TUTTI_ID_FILE",
                      launcher.name, other, fmt::join(words, " ")));
    }
    pause_for(10ms);
  }
}

}  // namespace tutti
