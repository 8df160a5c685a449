// A `tutti run` under test: its output, its status, and all its processes, which carry a mark in
// their environment, so that a test sees whether any of them is left.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace tutti {

inline std::string contents(int fd) {
  std::string text;
  char buffer[4096];
  off_t offset = 0;
  ssize_t got = 0;
  while ((got = pread(fd, buffer, sizeof buffer, offset)) > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
    offset += got;
  }
  return text;
}

inline std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

inline std::vector<std::string> sorted_lines(const std::string& text) {
  auto result = lines(text);
  std::sort(result.begin(), result.end());
  return result;
}

/// A running `tutti run`.
class Job {
  using Clock = std::chrono::steady_clock;

 public:
  explicit Job(
      const std::vector<std::string>& arguments, const std::string& input = "",
      const std::function<void()>& in_child = [] {})
      : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
    static int jobs = 0;
    mark_ = fmt::format("TUTTI_TEST_MARK={}-{}-", getpid(), ++jobs);
    // Processes that write at once shall not overwrite each other.
    fcntl(out_, F_SETFL, O_APPEND);
    fcntl(err_, F_SETFL, O_APPEND);
    const int in = memfd_create("in", MFD_CLOEXEC);
    EXPECT_EQ(write(in, input.data(), input.size()), static_cast<ssize_t>(input.size()));
    lseek(in, 0, SEEK_SET);
    start_ = Clock::now();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in, 0);
      dup2(out_, 1);
      dup2(err_, 2);
      in_child();
      become(arguments);
    }
    close(in);
  }
  ~Job() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    EXPECT_TRUE(eventually([&] { return marked_processes(mark_).empty(); })) << "left over";
    close(out_);
    close(err_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// For `in_child`, where Ctrl-Z is to stop the launcher: the kernel ignores that of a group
  /// whose parents all are of another session.
  static void have_own_group() { setpgid(0, 0); }

  pid_t pid() const { return pid_; }
  std::string out() const { return contents(out_); }
  std::string err() const { return contents(err_); }
  bool out_has(const std::string& text) const {
    return eventually([&] { return out().find(text) != std::string::npos; });
  }
  std::vector<pid_t> processes() const { return marked_processes(mark_); }
  /// How many of its processes are stopped.
  long stopped() const {
    const std::vector<pid_t> all = processes();
    return std::count_if(all.begin(), all.end(), [](pid_t pid) {
      return contents_of(fmt::format("/proc/{}/stat", pid)).find(") T ") != std::string::npos;
    });
  }
  /// Nothing once wait() has returned: -1 would be all processes of the machine.
  void signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  /// The exit status, or 1000 + the signal that killed it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  double seconds() const { return seconds_; }

  [[noreturn]] void become(const std::vector<std::string>& arguments) const {
    const std::size_t equals = mark_.find('=');
    setenv(mark_.substr(0, equals).c_str(), mark_.substr(equals + 1).c_str(), 1);
    std::vector<char*> argv{const_cast<char*>("tutti"), const_cast<char*>("run")};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(TUTTI_COMMAND, argv.data());
    _exit(99);
  }

 private:
  int out_, err_;
  std::string mark_;
  pid_t pid_ = -1;
  Clock::time_point start_;
  double seconds_ = 0;
};

inline std::vector<std::string> shell(int ranks, const std::string& script,
                                      std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks)});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

/// The exit status of a job whose output has a reader that goes away after the first byte.
inline int status_without_reader(const std::vector<std::string>& arguments) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Job job(arguments, "", [&] { dup2(ends[1], 1); });
  close(ends[1]);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  return job.wait();
}

}  // namespace tutti
