// See measure.h.
#include "tools/check/measure.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "tools/command_line/programs.h"
#include "tools/spawn.h"

extern char** environ;

namespace tutti::check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kGrace = std::chrono::seconds(5);  // for `tutti run` to end the ranks
constexpr std::size_t kMostOutput = 64 << 20;     // bytes

/// In seconds since the system's start, of all processors together.
struct Usage {
  double busy = 0, stolen = 0, throttled = 0, ours = 0;
};

double throttled_seconds() {
  std::ifstream file("/sys/fs/cgroup/cpu.stat");
  std::string name;
  double value = 0;
  while (file >> name >> value) {
    if (name == "throttled_usec") return value / 1e6;
  }
  return 0;
}

Usage usage() {
  Usage u;
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0;
  file >> cpu >> user >> nice >> system >> idle >> wait >> irq >> soft >> u.stolen;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  u.busy = (user + nice + system + irq + soft) / ticks;
  u.stolen /= ticks;
  u.throttled = throttled_seconds();
  rusage children{};
  ::getrusage(RUSAGE_CHILDREN, &children);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  u.ours = seconds(children.ru_utime) + seconds(children.ru_stime);
  return u;
}

HostLoad load_of(const Usage& before, const Usage& after, double seconds) {
  const double all = std::max(seconds, 0.01) * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  HostLoad load;
  load.others = std::max(0.0, (after.busy - before.busy) - (after.ours - before.ours)) / all;
  load.stolen = std::max(0.0, after.stolen - before.stolen) / all;
  load.throttled = std::max(0.0, after.throttled - before.throttled);
  return load;
}

std::string text_of(int fd) {
  std::string text(kMostOutput, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

/// The exit status, once it has one; the processes are ended when their time is up.
int wait_for(pid_t pid, int seconds, bool& late) {
  const auto deadline = Clock::now() + std::chrono::seconds(seconds);
  int status = 0;
  bool killed = false;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    const auto now = Clock::now();
    if (now > deadline && !late) {
      late = true;
      ::kill(-pid, SIGTERM);
    }
    if (now > deadline + kGrace && !killed) {
      killed = true;
      ::kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(kLook);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Measurement measure(const MeasureOptions& o) {
  SpawnOptions s;
  if (!o.launch.empty()) {
    s.program = {tutti_program().string(), "run"};
    s.program.insert(s.program.end(), o.launch.begin(), o.launch.end());
  }
  s.program.push_back(o.program);
  s.program.insert(s.program.end(), o.words.begin(), o.words.end());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    s.environment.emplace_back(*variable);
  }
  const FileDescriptor output(::memfd_create("tutti-check", MFD_CLOEXEC));
  if (output.fd() < 0) throw_system_error("memfd_create");
  s.stdout_fd = output.fd();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &s.signal_mask);
  const Keeper keeper;
  s.keeper = &keeper;
  const Usage before = usage();
  const auto begin = Clock::now();
  const Spawned spawned = spawn(s);
  if (spawned.error != 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} cannot be started: {}", s.program[0],
                                                         std::strerror(spawned.error)));
  }
  Measurement m;
  m.status = wait_for(spawned.pid, o.seconds, m.late);
  keeper.remove(spawned.pid);
  const std::chrono::duration<double> took = Clock::now() - begin;
  m.load = load_of(before, usage(), took.count());
  m.output = text_of(output.fd());
  return m;
}

}  // namespace tutti::check
