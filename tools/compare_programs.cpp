// Finding and running the programs; see compare_programs.h.
#include "tools/compare_programs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "core/error.h"

namespace tutti::compare {
namespace {

namespace fs = std::filesystem;

constexpr int kTimeoutSeconds = 600;  // of one run

struct Peer {
  const char* name;
  const char* launcher;  // null: `tutti run`
  const char* packages;  // of Debian
};
constexpr std::array kPeers{
    Peer{"openmpi", "mpirun.openmpi", "openmpi-bin libopenmpi-dev"},
    Peer{"mpich", "mpiexec.mpich", "mpich libmpich-dev"},
    Peer{"gloo", nullptr, "libgloo-dev"},
};

bool is_program(const fs::path& path) {
  return access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

std::string find_on_path(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / name;
    if (is_program(candidate)) return candidate;
  }
  return "";
}

Program find_peer(const Peer& peer, const fs::path& folder,
                  const std::vector<std::string>& tutti_run, int ranks) {
  Program program{peer.name, tutti_run, ""};
  const fs::path path = folder / (std::string(peer.name) + "_peer");
  if (!is_program(path)) {
    program.missing = fmt::format(
        "it was not there when Tutti was built: apt install {}, then configure and "
        "build again",
        peer.packages);
  }
  if (peer.launcher != nullptr) {
    const std::string launcher = find_on_path(peer.launcher);
    if (launcher.empty() && program.missing.empty()) {
      program.missing =
          fmt::format("{} is not on the PATH: apt install {}", peer.launcher, peer.packages);
    }
    program.command = {launcher, "-n", std::to_string(ranks)};
    if (peer.name == std::string_view("openmpi")) {
      program.command.push_back("--oversubscribe");
      if (geteuid() == 0) program.command.push_back("--allow-run-as-root");
    }
  }
  program.command.push_back(path);
  return program;
}

/// A folder for one run, in memory where possible: the ranks share a file in it.
class Folder {
 public:
  Folder() {
    std::string pattern = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    pattern += "/tutti-compare-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw_system_error("cannot make a folder " + pattern);
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  std::string path(const char* name) const { return path_ / name; }
  std::string read(const char* name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// While it lives, Ctrl-C ends the children (the terminal sees to that), but not this process,
/// which then tidies up. So it does after SIGTERM, when the child at hand has ended.
class Interrupt {
 public:
  Interrupt() {
    seen() = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { seen() = 1; };
    sigaction(SIGINT, &action, &before_);
    sigaction(SIGTERM, &action, &before_term_);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt() {
    sigaction(SIGINT, &before_, nullptr);
    sigaction(SIGTERM, &before_term_, nullptr);
  }

  static volatile std::sig_atomic_t& seen() {
    static volatile std::sig_atomic_t flag = 0;
    return flag;
  }

 private:
  struct sigaction before_ {};
  struct sigaction before_term_ {};
};

pid_t start(std::vector<std::string> command, const Folder& folder) {
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, folder.path("stdout").c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&files, 2, folder.path("stderr").c_str(), flags, 0600);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw_system_error("cannot start " + command.front(), error);
  return pid;
}

/// Waits without waking up in between, which would disturb what is being measured. Returns false if
/// the process had to be ended.
bool wait_for_end(pid_t pid, int& status) {
  // By number: the header of glibc 2.36 declares pidfd_open for C alone.
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0) throw_system_error("cannot watch a process");
  bool in_time = true;
  const auto ends_within = [&](int seconds) {
    pollfd entry{descriptor, POLLIN, 0};
    int ready;
    do {  // Ctrl-C reaches the process as well: it ends
      ready = poll(&entry, 1, seconds * 1000);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
  };
  if (!ends_within(kTimeoutSeconds)) {
    in_time = false;
    kill(pid, SIGTERM);
    if (!ends_within(10)) kill(pid, SIGKILL);
  }
  close(descriptor);
  waitpid(pid, &status, 0);
  return in_time;
}

std::string last_lines(std::string text) {
  constexpr std::size_t kMost = 1000;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() > kMost) text = "..." + text.substr(text.size() - kMost);
  return text.empty() ? "it wrote nothing to stderr" : text;
}

}  // namespace

std::vector<std::string> peer_names() {
  std::vector<std::string> names;
  for (const Peer& peer : kPeers) names.push_back(peer.name);
  return names;
}

std::vector<Program> find_programs(fs::path folder, const std::vector<std::string>& peers,
                                   int ranks) {
  const fs::path tutti = fs::read_symlink("/proc/self/exe");
  if (folder.empty()) folder = tutti.parent_path().parent_path() / "libexec" / "tutti";
  const std::vector<std::string> tutti_run{tutti, "run", "-n", std::to_string(ranks)};

  std::vector<Program> programs{{"tutti", tutti_run, ""}};
  programs[0].command.push_back(folder / "tutti_peer");
  if (!is_program(folder / "tutti_peer")) programs[0].missing = "it is not in " + folder.string();
  for (const Peer& peer : kPeers) {
    for (const std::string& wanted : peers) {
      if (wanted == peer.name) programs.push_back(find_peer(peer, folder, tutti_run, ranks));
    }
  }
  programs.push_back({"limit", {folder / "limits"}, ""});
  if (!is_program(folder / "limits")) programs.back().missing = "it is not in " + folder.string();
  return programs;
}

Output run(const Program& program, const std::vector<std::string>& arguments) {
  const Folder folder;
  const Interrupt interrupt;
  std::vector<std::string> command = program.command;
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), {"--folder", folder.path()});
  int status = 0;
  const bool in_time = wait_for_end(start(command, folder), status);
  if (Interrupt::seen() != 0) throw Error(ErrorCode::aborted, "interrupted");
  if (!in_time) {
    throw Error(ErrorCode::timed_out, fmt::format("{} was ended: a run took longer than {} s",
                                                  program.name, kTimeoutSeconds));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string how = WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                              : fmt::format("signal {}", WTERMSIG(status));
    throw Error(ErrorCode::system, fmt::format("{} failed ({}): {}", program.name, how,
                                               last_lines(folder.read("stderr"))));
  }
  return parse_output(folder.read("stdout"));
}

}  // namespace tutti::compare
