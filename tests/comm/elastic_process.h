// A process of elastic_rank, which does what it is told by lines of text, and answers by lines.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/support/variable.h"

namespace tutti::test {

class RankProcess {
 public:
  RankProcess() {
    static int started = 0;
    const int number = started++;
    std::array<int, 2> in{}, out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      if (const int each = number_from("TUTTI_TEST_RANKS_PER_HOST", 0); each > 0) {
        setenv("TUTTI_HOST_ID", fmt::format("host{}", number / each).c_str(), 1);
      }
      dup2(in[0], 0);
      dup2(out[1], 1);
      execl(ELASTIC_RANK, ELASTIC_RANK, nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~RankProcess() {
    close(in_);
    close(out_);
    die();
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// It is gone on return; its death is seen by the others before that.
  void die() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void say(const std::string& line) const {
    const std::string whole = line + "\n";
    if (write(in_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) {
      ADD_FAILURE() << "rank process " << pid_ << " does not read";
    }
  }
  /// Its next line; nothing if none comes.
  std::string hear(std::chrono::milliseconds limit = std::chrono::seconds(15)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (text_.find('\n') == std::string::npos) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      pollfd p{out_, POLLIN, 0};
      if (left <= std::chrono::milliseconds::zero() ||
          poll(&p, 1, static_cast<int>(left.count())) <= 0)
        return "";
      std::array<char, 4096> buffer{};
      const ssize_t n = read(out_, buffer.data(), buffer.size());
      if (n <= 0) return "";
      text_.append(buffer.data(), static_cast<std::size_t>(n));
    }
    const std::size_t end = text_.find('\n');
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }
  std::string ask(const std::string& line) {
    say(line);
    return hear();
  }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string text_;
};

}  // namespace tutti::test
