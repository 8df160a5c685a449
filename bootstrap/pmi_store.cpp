// See pmi_store.h.
#include "bootstrap/pmi_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/launcher.h"
#include "core/error.h"
#include "core/number.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestLine = 8192;
constexpr auto kToConnect = 10s;
constexpr int kGoodByeMilliseconds = 1000;

/// "" where it is not set.
std::string pmi_variable(const char* name) { return variable(name).value_or(""); }

int pmi_number(const std::string& text, const std::string& what) {
  if (const auto number = parse_number<int>(text)) return *number;
  throw Error(ErrorCode::system, fmt::format("{} is '{}', not a whole number", what, text));
}

/// With -disable-auto-cleanup, hydra of MPICH sends SIGUSR1 to the ranks that it knows where one
/// has died. The signal would end them, unless the program has its own use for it.
void outlive_notices() {
  struct sigaction now {};
  if (::sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  now.sa_handler = [](int) {};
  now.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &now, nullptr);
}

/// Lines to the launcher and back. The socket is shared with an MPI library that this process may
/// have: it stays as it is (blocking), and no answer is left unread.
class PmiLines {
 public:
  using Answer = std::map<std::string, std::string, std::less<>>;

  bool begun() const { return static_cast<bool>(socket_); }

  /// The launcher fails where nobody takes its last answer. Its answer to what a rank has given up
  /// may come first.
  void say_good_bye() {
    constexpr std::string_view kGoodBye = "cmd=finalize\n";
    if (!socket_ || ::getpid() != process_) return;
    // An MPI library may have said so before: then this fails.
    if (::send(socket_.fd(), kGoodBye.data(), kGoodBye.size(), MSG_NOSIGNAL) < 0) return;
    pollfd entry{socket_.fd(), POLLIN, 0};
    while (received_.find("cmd=finalize_ack") == std::string::npos &&
           ::poll(&entry, 1, kGoodByeMilliseconds) > 0) {
      std::array<char, 2048> piece;
      const ssize_t got = ::recv(socket_.fd(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (got <= 0) return;
      received_.append(piece.data(), static_cast<std::size_t>(got));
    }
  }
  void begin(FileDescriptor socket) { socket_ = std::move(socket); }

  /// The answer to `request`; its command has to be `command`.
  Answer ask(const std::string& request, std::string_view command, Deadline deadline) {
    send(request);
    return answer(command, deadline);
  }

  void send(const std::string& request) {
    const std::string line = request + '\n';
    const ssize_t sent = ::send(socket_.fd(), line.data(), line.size(), MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(line.size())) return;
    const int error = errno;
    broken_ = true;
    throw_system_error("the launcher does not take '" + first_word(request) + "'", error);
  }

  Answer answer(std::string_view command, Deadline deadline) {
    if (broken_) throw Error(ErrorCode::system, "the connection to the launcher has ended");
    const std::string line = next_line(command, deadline);
    Answer words;
    for (std::string_view rest = line; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      const std::size_t equals = word.find('=');
      if (equals != std::string_view::npos)
        words.emplace(word.substr(0, equals), word.substr(equals + 1));
    }
    if (words["cmd"] != command) {
      broken_ = true;
      throw Error(ErrorCode::system,
                  fmt::format("the launcher answers '{}' instead of '{}'", words["cmd"], command));
    }
    if (const auto rc = words.find("rc"); rc != words.end() && rc->second != "0") {
      throw Error(ErrorCode::system,
                  fmt::format("the launcher answers {} rc={} {}", command, rc->second,
                              words.contains("msg") ? words["msg"] : ""));
    }
    return words;
  }

 private:
  static std::string first_word(const std::string& request) {
    return request.substr(0, request.find(' '));
  }

  std::string next_line(std::string_view command, Deadline deadline) {
    for (;;) {
      if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      if (received_.size() > kLongestLine) {
        broken_ = true;
        throw Error(ErrorCode::system, "the launcher sends a line without an end");
      }
      std::array<char, 2048> piece;
      const ssize_t got = ::recv(socket_.fd(), piece.data(), piece.size(), MSG_DONTWAIT);
      if (got > 0) {
        received_.append(piece.data(), static_cast<std::size_t>(got));
      } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (wait_for(socket_.fd(), POLLIN, deadline)) continue;
        broken_ = true;  // the answer may still come
        throw Error(ErrorCode::timed_out,
                    fmt::format("the launcher has not sent '{}' in time", command));
      } else {
        broken_ = true;
        throw Error(ErrorCode::system, "the launcher has closed the connection");
      }
    }
  }

  const pid_t process_ = ::getpid();
  FileDescriptor socket_;
  std::string received_;
  bool broken_ = false;
};

class PmiStore final : public LauncherStore {
 public:
  std::string name() const override {
    const std::string port = pmi_variable("PMI_PORT");
    return pmi_variable("PMI_FD").empty() ? fmt::format("PMI (PMI_PORT={})", port)
                                          : fmt::format("PMI (PMI_FD={})", pmi_variable("PMI_FD"));
  }

  void put(const std::string& key, const std::string& value, Deadline deadline) override {
    const std::lock_guard lock(mutex_);
    begin(deadline);
    lines_.ask(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result",
               deadline);
    barrier(deadline);
  }

  std::string get(const std::string& key, Deadline deadline) override {
    const std::lock_guard lock(mutex_);
    begin(deadline);
    barrier(deadline);
    auto answer =
        lines_.ask(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", deadline);
    return answer["value"];
  }

  void say_good_bye() { lines_.say_good_bye(); }

  PmiPlace place() {
    const std::lock_guard lock(mutex_);
    begin(deadline_after(kToConnect));
    return place_;
  }

  std::string space() {
    const std::lock_guard lock(mutex_);
    begin(deadline_after(kToConnect));
    return space_;
  }

 private:
  void barrier(Deadline deadline) {
    try {
      lines_.ask("cmd=barrier_in", "barrier_out", deadline);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::timed_out) throw;
      throw Error(ErrorCode::timed_out, "not all ranks have come to the barrier in time");
    }
  }

  void begin(Deadline deadline) {
    if (!space_.empty()) return;
    if (lines_.begun()) throw Error(ErrorCode::system, "the launcher has not let this rank in");
    const std::string fd = pmi_variable("PMI_FD");
    if (!fd.empty()) {
      // A descriptor of its own: an MPI library may close the launcher's.
      const int number = pmi_number(fd, "PMI_FD");
      FileDescriptor own(::fcntl(number, F_DUPFD_CLOEXEC, 0));
      if (!own) throw_system_error(fmt::format("PMI_FD is {}, which is not open", number));
      lines_.begin(std::move(own));
    } else {
      connect(deadline);
    }
    outlive_notices();
    lines_.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline);
    auto answer = lines_.ask("cmd=get_my_kvsname", "my_kvsname", deadline);
    space_ = answer["kvsname"];
    if (space_.empty()) throw Error(ErrorCode::system, "the launcher names no space for keys");
  }

  /// To PMI_PORT=HOST:PORT, where the launcher says the rank's place first.
  void connect(Deadline deadline) {
    const std::string text = pmi_variable("PMI_PORT");
    const std::size_t colon = text.rfind(':');
    const auto port = port_from(colon == std::string::npos ? "" : text.substr(colon + 1));
    if (!port) throw Error(ErrorCode::system, fmt::format("PMI_PORT is '{}', not HOST:PORT", text));
    lines_.begin(connect_to_host(text.substr(0, colon), *port, deadline));
    lines_.send("cmd=initack pmiid=" + pmi_variable("PMI_ID"));
    lines_.answer("initack", deadline);
    const auto size = lines_.answer("set", deadline), rank = lines_.answer("set", deadline);
    lines_.answer("set", deadline);  // debug
    const auto value = [](const PmiLines::Answer& words, const char* word) {
      const auto found = words.find(word);
      return pmi_number(found == words.end() ? "" : found->second, fmt::format("PMI's {}", word));
    };
    place_ = {value(rank, "rank"), value(size, "size")};
  }

  std::mutex mutex_;
  PmiLines lines_;
  std::string space_;  // for the keys of this job
  PmiPlace place_;     // with PMI_PORT alone
};

PmiStore* the_pmi_store = nullptr;  // never destroyed
std::once_flag pmi_store_made;

PmiStore& get_pmi_store() {
  std::call_once(pmi_store_made, [] { the_pmi_store = new PmiStore; });
  return *the_pmi_store;
}

/// After all that programs and libraries do at exit: an MPI library in the same process may say its
/// own good-bye there, after which the launcher takes nothing more.
[[gnu::destructor]] void end_pmi() {
  if (the_pmi_store != nullptr) the_pmi_store->say_good_bye();
}

}  // namespace

bool has_pmi() { return !pmi_variable("PMI_FD").empty() || has_pmi_port(); }

bool has_pmi_port() {
  return pmi_variable("PMI_FD").empty() && !pmi_variable("PMI_PORT").empty() &&
         !pmi_variable("PMI_ID").empty();
}

std::shared_ptr<LauncherStore> pmi_store() {
  return {&get_pmi_store(), [](LauncherStore*) {}};
}

std::string pmi_space() {
  try {
    return get_pmi_store().space();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("this rank does not hear its world's name by {}: {}",
                                          get_pmi_store().name(), error.what()));
  }
}

PmiPlace pmi_place() {
  try {
    return get_pmi_store().place();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("this rank has no place by {}: {}",
                                          get_pmi_store().name(), error.what()));
  }
}

}  // namespace tutti
