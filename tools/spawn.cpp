// See spawn.h.
#include "tools/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <map>
#include <utility>

#include "core/error.h"

namespace tutti {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::optional<rlimit> descriptors_before;

/// In the child: gives `fd` the number `wanted`, in the program too.
bool place(int fd, int wanted) {
  if (fd == wanted) return true;
  return ::dup2(fd, wanted) == wanted;
}

/// The child's way from fork to exec. Only async-signal-safe calls: the launcher has threads.
[[noreturn]] void become_program(const SpawnOptions& options, char* const* arguments,
                                 char* const* environment, pid_t launcher, int report_fd) {
  if (options.own_session) {
    ::setsid();
  } else {
    ::setpgid(0, 0);
  }
  if (options.keeper != nullptr) options.keeper->keep_this_group();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);  // it died before that took effect
  if (options.cpus) ::sched_setaffinity(0, sizeof *options.cpus, &*options.cpus);
  int input = options.stdin_fd;
  if (input < 0) input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input >= 0 && place(input, 0) && place(options.stdout_fd, 1) && place(options.stderr_fd, 2)) {
    if (options.passed_fd >= 0) ::fcntl(options.passed_fd, F_SETFD, 0);
    ::signal(SIGPIPE, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &options.signal_mask, nullptr);
    if (descriptors_before) ::setrlimit(RLIMIT_NOFILE, &*descriptors_before);
    ::execvpe(arguments[0], arguments, environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(report_fd, &error, sizeof error);
  ::_exit(127);
}

/// They may start others while they die.
void kill_all(const RanksHere& ranks) {
  for (int pass = 0; pass < 100; ++pass) {
    const std::vector<RankProcess> left = processes_anywhere(ranks);
    if (left.empty()) return;
    for (const RankProcess& process : left) ::kill(process.pid, SIGKILL);
    ::usleep(10'000);
  }
}

int read_number(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int number = otherwise;
  file >> number;
  return file ? number : otherwise;
}

}  // namespace

/// What the keeper is told: written at once, so that words of several processes do not mix.
struct Keeper::Word {
  int group = 0;               // to be kept; negative: no longer
  int first = 0, count = 0;    // where there is no group: the ranks to be kept; 0: none
  std::array<char, 384> id{};  // theirs
};

/// The keeper's life. It holds nothing open but its end of the pipe, so nobody waits for it.
void Keeper::keep(int pipe_fd, int other_end) {
  ::setsid();
  ::prctl(PR_SET_NAME, "tutti-keeper");
  ::close(other_end);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3 && null >= 0; ++fd) ::dup2(null, fd);
  std::vector<pid_t> groups;
  RanksHere ranks;
  Word word;
  while (true) {
    const ssize_t got = ::read(pipe_fd, &word, sizeof word);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof word) break;
    if (word.group > 0) {
      groups.push_back(word.group);
    } else if (word.group < 0) {
      std::erase(groups, -word.group);
    } else {
      ranks = {word.id.data(), word.first, word.count};
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  if (ranks.count > 0) kill_all(ranks);
  ::_exit(0);
}

std::pair<FileDescriptor, FileDescriptor> close_on_exec_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("making a pipe");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void allow_many_descriptors() {
  rlimit limit{};
  if (descriptors_before || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  descriptors_before = limit;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Spawned spawn(const SpawnOptions& options) {
  const auto arguments = pointers_to(options.program);
  const auto environment = pointers_to(options.environment);
  auto [report, report_in] = close_on_exec_pipe();
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return {-1, errno};
  if (pid == 0) {
    become_program(options, arguments.data(), environment.data(), launcher, report_in.fd());
  }
  if (!options.own_session) ::setpgid(pid, pid);  // the parent or the child, whichever is first
  report_in.reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(report.fd(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof error) return {pid, 0};
  ::waitpid(pid, nullptr, 0);
  if (options.keeper != nullptr) options.keeper->remove(pid);
  return {-1, error};
}

Keeper::Keeper() {
  auto [end, other_end] = close_on_exec_pipe();
  pid_ = ::fork();
  if (pid_ < 0) throw_system_error("starting the process that cleans up");
  if (pid_ == 0) keep(end.fd(), other_end.fd());
  pipe_ = std::move(other_end);
}

Keeper::~Keeper() {
  pipe_.reset();
  ::waitpid(pid_, nullptr, 0);
}

void Keeper::keep_this_group() const { tell({.group = ::getpid()}); }
void Keeper::remove(pid_t group) const { tell({.group = -group}); }
void Keeper::remove_ranks() const { tell({}); }

void Keeper::keep_ranks(const RanksHere& ranks) const {
  Word word{.first = ranks.first, .count = ranks.count};
  if (ranks.id.size() >= word.id.size()) return;  // no id of ours
  std::ranges::copy(ranks.id, word.id.begin());
  tell(word);
}

void Keeper::tell(const Word& word) const {
  static_assert(sizeof word <= PIPE_BUF);
  // A keeper that was killed is no reason to end the job: the ranks' parent still is their keeper.
  [[maybe_unused]] const ssize_t written = ::write(pipe_.fd(), &word, sizeof word);
}

std::vector<cpu_set_t> choose_cores(int count) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::map<std::pair<int, int>, cpu_set_t> cores;  // by package and core
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const auto topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    const std::pair<int, int> where{read_number(topology + "physical_package_id", 0),
                                    read_number(topology + "core_id", cpu)};
    const auto [core, is_new] = cores.try_emplace(where);
    if (is_new) CPU_ZERO(&core->second);
    CPU_SET(cpu, &core->second);
  }
  std::vector<cpu_set_t> chosen;
  if (cores.size() < static_cast<std::size_t>(count)) return chosen;
  for (const auto& [where, cpus] : cores) {
    if (chosen.size() < static_cast<std::size_t>(count)) chosen.push_back(cpus);
  }
  return chosen;
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("/._-+=:,@%", c) != nullptr;
  });
  if (plain) return word;
  std::string result = "'";
  for (const char c : word) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

}  // namespace tutti
