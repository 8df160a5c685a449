// The ranks of one job under test, which run on several hosts (namespaces.h), and what they say.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/processes.h"
#include "tests/support/temporary_folder.h"
#include "tools/namespaces.h"

namespace tutti::test {

/// The ranks of one job, so many on each host.
class NetworkJob {
  using Clock = std::chrono::steady_clock;

 public:
  NetworkJob(const Namespaces& hosts, const std::vector<int>& host_of,
             const std::vector<std::string>& command,
             const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    const std::string id = folder_.path("id");
    mark_ = fmt::format("network-{}-{}-", getpid(), ++jobs_);
    for (std::size_t r = 0; r < host_of.size(); ++r) {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
      std::vector<std::string> words = hosts.prefix(host_of[r]);
      words.insert(words.end(), command.begin(), command.end());
      std::vector<char*> argv;
      for (auto& w : words) argv.push_back(w.data());
      argv.push_back(nullptr);
      const pid_t pid = fork();
      if (pid == 0) {
        setenv("TUTTI_RANK", std::to_string(r).c_str(), 1);
        setenv("TUTTI_SIZE", std::to_string(host_of.size()).c_str(), 1);
        setenv("TUTTI_ID_FILE", id.c_str(), 1);
        setenv("TUTTI_TEST_MARK", mark_.c_str(), 1);
        for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execvp(argv[0], argv.data());
        _exit(127);
      }
      close(ends[1]);
      ranks_.push_back({pid, ends[0], {}, -1});
    }
  }
  ~NetworkJob() {
    for (Rank& r : ranks_) {
      if (r.pid > 0) {
        kill(r.pid, SIGKILL);
        waitpid(r.pid, nullptr, 0);
      }
      close(r.output);
    }
    EXPECT_TRUE(eventually([&] { return marked_processes(mark_).empty(); }));
  }

  std::size_t size() const { return ranks_.size(); }
  const std::string& text(std::size_t rank) const { return ranks_[rank].text; }
  pid_t pid(std::size_t rank) const { return ranks_[rank].pid; }
  /// Its exit status, and then text() is all that it has said; -1: it has not ended by then.
  int wait(std::size_t rank, Clock::duration limit) {
    Rank& r = ranks_[rank];
    const auto end = Clock::now() + limit;
    while (r.pid > 0) {
      read(r);
      int status = 0;
      if (waitpid(r.pid, &status, WNOHANG) == r.pid) {
        r.pid = -1;
        read(r);
        r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else if (Clock::now() > end) {
        return -1;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return r.status;
  }
  bool all_say(const std::string& what, Clock::duration limit = std::chrono::seconds(20)) {
    return eventually(
        [&] {
          bool all = true;
          for (Rank& r : ranks_) {
            read(r);
            all = all && r.text.find(what) != std::string::npos;
          }
          return all;
        },
        std::chrono::duration_cast<std::chrono::milliseconds>(limit));
  }
  std::string texts() const {
    std::string all;
    for (const Rank& r : ranks_) all += "-- " + r.text;
    return all;
  }

 private:
  struct Rank {
    pid_t pid;
    int output;
    std::string text;
    int status;
  };
  static void read(Rank& r) {
    fcntl(r.output, F_SETFL, O_NONBLOCK);
    std::array<char, 4096> piece;
    ssize_t got = 0;
    while ((got = ::read(r.output, piece.data(), piece.size())) > 0) {
      r.text.append(piece.data(), static_cast<std::size_t>(got));
    }
  }
  static inline int jobs_ = 0;
  TemporaryFolder folder_;
  std::string mark_;
  std::vector<Rank> ranks_;
};

#define NEED_HOSTS(hosts) \
  if (!(hosts).missing().empty()) GTEST_SKIP() << (hosts).missing()

inline void expect_right(NetworkJob& job, std::chrono::steady_clock::duration limit) {
  for (std::size_t r = 0; r < job.size(); ++r) {
    EXPECT_EQ(job.wait(r, limit), 0) << "rank " << r << ": " << job.text(r);
  }
}

/// What a rank has thrown ("ERROR code rank when text").
struct PrintedError {
  std::string code;
  int rank = -2;
  double when = 0;
  std::string text;
};
inline PrintedError error_in(const std::string& text) {
  PrintedError e;
  const auto at = text.find("ERROR ");
  if (at == std::string::npos) return e;
  std::istringstream line(text.substr(at + 6));
  line >> e.code >> e.rank >> e.when;
  std::getline(line, e.text);
  return e;
}

}  // namespace tutti::test
