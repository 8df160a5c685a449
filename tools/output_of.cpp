#include "tools/output_of.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "core/error.h"
#include "tools/spawn.h"
#include "transport/sockets/socket.h"

extern char** environ;

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{64} << 20;

/// A program that runs, and the ends of its pipes.
struct Running {
  pid_t pid = -1;
  int error = 0;
  FileDescriptor out, err;
  std::string text, complaints;
};

Running begin(const std::vector<std::string>& program) {
  Running r;
  auto [out, to_out] = close_on_exec_pipe();
  auto [err, to_err] = close_on_exec_pipe();
  std::vector<char*> words;
  for (const std::string& word : program) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, to_out.fd(), 1);
  posix_spawn_file_actions_adddup2(&actions, to_err.fd(), 2);
  r.error = posix_spawnp(&r.pid, words.front(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  r.out = std::move(out);
  r.err = std::move(err);
  return r;
}

/// False: there is nothing more.
bool take(FileDescriptor& fd, std::string& text) {
  std::array<char, 16384> part;
  const ssize_t n = read(fd.fd(), part.data(), part.size());
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  text.append(part.data(), std::min(static_cast<std::size_t>(n), kMostOutput - text.size()));
  return true;
}

std::string last_of(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

std::vector<Output> outputs_of(const std::vector<std::vector<std::string>>& programs,
                               std::chrono::nanoseconds patience) {
  std::vector<Running> running;
  for (const auto& program : programs) running.push_back(begin(program));
  const auto end = Clock::now() + patience;
  for (;;) {
    std::vector<pollfd> waits;
    std::vector<std::pair<FileDescriptor*, std::string*>> to;
    for (Running& r : running) {
      if (r.error != 0) continue;
      if (r.out) waits.push_back({r.out.fd(), POLLIN, 0}), to.emplace_back(&r.out, &r.text);
      if (r.err) waits.push_back({r.err.fd(), POLLIN, 0}), to.emplace_back(&r.err, &r.complaints);
    }
    if (waits.empty()) break;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) break;
    if (poll(waits.data(), waits.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
      break;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0 && !take(*to[i].first, *to[i].second)) *to[i].first = {};
    }
  }
  std::vector<Output> outputs;
  for (Running& r : running) {
    Output& o = outputs.emplace_back();
    o.text = std::move(r.text);
    o.complaint = last_of(std::move(r.complaints));
    if (r.error != 0) {
      o.status = Output::kNotFound;
      continue;
    }
    int status = 0;
    bool killed = false;
    while (waitpid(r.pid, &status, killed ? 0 : WNOHANG) == 0) {
      killed = Clock::now() >= end;
      if (killed) kill(r.pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    o.status = killed              ? Output::kTooLong
               : WIFEXITED(status) ? WEXITSTATUS(status)
                                   : 128 + WTERMSIG(status);
  }
  return outputs;
}

Output output_of(const std::vector<std::string>& program, std::chrono::nanoseconds patience) {
  return std::move(outputs_of({program}, patience).front());
}

}  // namespace tutti
