// Starting, hearing and ending one program; see compare_session.h.
#include "laboratory/compare/compare_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace tutti::compare {
namespace {

namespace fs = std::filesystem;

constexpr auto kGrace = std::chrono::seconds(5);  // to end, when asked to

/// A folder for one program, in memory where possible: its ranks share a file in it.
class Folder {
 public:
  Folder() {
    path_ = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string();
    path_ += "/tutti-compare-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) throw_system_error("cannot make a folder " + path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  /// A new named pipe. It is open for both directions, so it has no end while this end is open.
  FileDescriptor make_pipe(const std::string& name) const {
    const std::string path = path_ + "/" + name;
    if (mkfifo(path.c_str(), 0600) != 0) throw_system_error("cannot make " + path);
    FileDescriptor pipe(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!pipe) throw_system_error("cannot open " + path);
    return pipe;
  }

 private:
  std::string path_;
};

/// A child. In the end it is asked to end, and made to, unless it does by itself.
class Process {
 public:
  Process(std::vector<std::string> command, int error_fd, const sigset_t& signal_mask) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, error_fd, 2);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &signal_mask);
    const int error = posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw_system_error("cannot start " + command.front(), error);
    // By number: the header of glibc 2.36 declares pidfd_open for C alone.
    fd_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (!asked_ && !ends_within(kGrace)) ask_to_end();
    if (!ends_within(kGrace)) kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  /// Readable when it has ended.
  int fd() const { return fd_.fd(); }
  void ask_to_end() {
    kill(pid_, SIGTERM);
    asked_ = true;
  }
  /// "exit status 3" or "signal 9"; to be called once it has ended.
  std::string how_it_ended() const {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    return fmt::format("{} {}", info.si_code == CLD_EXITED ? "exit status" : "signal",
                       info.si_status);
  }

 private:
  bool ends_within(std::chrono::nanoseconds time) const {
    const Deadline deadline = deadline_after(time);
    pollfd entry{fd(), POLLIN, 0};
    int ready;
    do {
      ready = poll(&entry, 1, milliseconds_until(deadline));
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
  }

  pid_t pid_ = -1;
  FileDescriptor fd_;
  bool asked_ = false;  // to end
};

/// The end of what was written to `fd`.
std::string last_lines(int fd) {
  constexpr std::size_t kMost = 1000;
  struct stat file {};
  fstat(fd, &file);
  const auto size = static_cast<std::size_t>(file.st_size);
  std::string text(std::min(size, kMost), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (size > kMost) text = "..." + text;
  return text.empty() ? "it wrote nothing to stderr" : text;
}

/// Empty unless all of it are times.
std::vector<double> parse_times(std::string_view text) {
  std::vector<double> times;
  std::istringstream words{std::string(text)};
  double us = 0;
  while (words >> us && us > 0) times.push_back(us);
  if (!words.eof()) times.clear();
  return times;
}

/// What follows `word` in `line`, if it starts with it.
std::optional<std::string> after(std::string_view word, std::string_view line) {
  if (line.substr(0, word.size()) != word) return std::nullopt;
  return std::string(line.substr(word.size()));
}

}  // namespace

Signals::Signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&wanted, number);
  if (sigprocmask(SIG_BLOCK, &wanted, &before_) != 0) throw_system_error("cannot block signals");
  fd_ = FileDescriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw_system_error("cannot wait for signals");
}

Signals::~Signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

class Session::Running {
 public:
  Running(const Program& program, const SessionOptions& options, const Signals& signals)
      : name_(program.name),
        ranks_(options.ranks),
        patience_(options.patience),
        signals_(signals),
        error_(memfd_create("stderr", MFD_CLOEXEC)) {
    if (!error_) throw_system_error("cannot make a file for errors");
    fcntl(error_.fd(), F_SETFL, O_APPEND);  // processes that write at once do not overwrite
    folder_.emplace();
    report_ = folder_->make_pipe("report");
    for (int rank = 0; rank < ranks_; ++rank) {
      turns_.push_back(folder_->make_pipe(fmt::format("turn.{}", rank)));
    }
    std::vector<std::string> command = program.command;
    command.insert(command.end(), options.arguments.begin(), options.arguments.end());
    command.insert(command.end(), {"--folder", folder_->path()});
    process_.emplace(std::move(command), error_.fd(), signals.before());
    wait_for_ranks("start");
    folder_.reset();  // everybody has opened what is in it
  }

  std::vector<double> take_turn(std::size_t bytes) {
    const std::string line = fmt::format("{}\n", bytes);
    for (const FileDescriptor& turn : turns_) {
      if (write(turn.fd(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        throw_system_error("cannot give a turn to " + name_);
      }
    }
    std::vector<double> times = wait_for_ranks(fmt::format("measure {} bytes", bytes));
    if (times.empty()) throw Error(ErrorCode::internal, name_ + " has reported no time");
    return times;
  }

  const std::string& carrier() const { return carrier_; }

 private:
  /// Until all ranks wait; what rank 0 has reported meanwhile.
  std::vector<double> wait_for_ranks(const std::string& doing) {
    const Deadline deadline = deadline_after(std::chrono::seconds(patience_));
    std::vector<double> times;
    std::set<std::string> missing;  // ranks
    for (int rank = 0; rank < ranks_; ++rank) missing.insert(std::to_string(rank));
    while (!missing.empty()) {
      const auto line = next_line(deadline);
      if (!line) {
        process_->ask_to_end();
        throw Error(ErrorCode::timed_out,
                    fmt::format("{} was ended: it took longer than {} s to {}; not ready: rank {}",
                                name_, patience_, doing, fmt::join(missing, ", ")));
      }
      if (const auto reason = after("unsupported ", *line)) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("not supported by this peer: {}", *reason));
      }
      if (auto carrier = after("over ", *line)) {
        carrier_ = std::move(*carrier);
        continue;
      }
      if (const auto numbers = after("times ", *line)) {
        times = parse_times(*numbers);
        if (!times.empty()) continue;
      } else if (const auto rank = after("waiting ", *line)) {
        if (missing.erase(*rank) == 1) continue;
      }
      throw Error(ErrorCode::internal,
                  fmt::format("{} has sent '{}', which makes no sense here", name_, *line));
    }
    return times;
  }

  /// Of any rank; nothing at the deadline.
  std::optional<std::string> next_line(Deadline deadline) {
    while (true) {
      if (const auto end = text_.find('\n'); end != std::string::npos) {
        std::string line = text_.substr(0, end);
        text_.erase(0, end + 1);
        return line;
      }
      std::array<pollfd, 3> entries{
          {{signals_.fd(), POLLIN, 0}, {report_.fd(), POLLIN, 0}, {process_->fd(), POLLIN, 0}}};
      const int ready = poll(entries.data(), entries.size(), milliseconds_until(deadline));
      if (ready < 0 && errno != EINTR) throw_system_error("cannot wait for " + name_);
      if (ready == 0) return std::nullopt;
      if (ready < 0) continue;
      signalfd_siginfo signal{};
      if (read(signals_.fd(), &signal, sizeof signal) > 0) {
        throw Error(ErrorCode::aborted, "interrupted");
      }
      std::array<char, 4096> bytes;
      const ssize_t got = read(report_.fd(), bytes.data(), bytes.size());
      if (got > 0) {
        text_.append(bytes.data(), static_cast<std::size_t>(got));
      } else if (entries[2].revents != 0) {
        throw Error(ErrorCode::system,
                    fmt::format("{} failed ({}): {}", name_, process_->how_it_ended(),
                                last_lines(error_.fd())));
      }
    }
  }

  const std::string name_;
  const int ranks_;
  const int patience_;
  const Signals& signals_;
  FileDescriptor error_;
  // In the end the pipes go first, which tells the ranks to end, and the folder last.
  std::optional<Folder> folder_;
  std::optional<Process> process_;
  FileDescriptor report_;
  std::vector<FileDescriptor> turns_;  // of each rank
  std::string text_;                   // from the ranks, and not yet looked at
  std::string carrier_;
};

Session::Session(const Program& program, const SessionOptions& options, const Signals& signals)
    : running_(std::make_unique<Running>(program, options, signals)) {}
Session::Session(Session&& other) noexcept = default;
Session& Session::operator=(Session&& other) noexcept = default;
Session::~Session() = default;

const std::string& Session::carrier() const { return running_->carrier(); }

std::vector<double> Session::take_turn(std::size_t bytes) { return running_->take_turn(bytes); }

}  // namespace tutti::compare
