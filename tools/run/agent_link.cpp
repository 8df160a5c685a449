// See agent_link.h.
#include "tools/run/agent_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/settings.h"
#include "tools/spawn.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostChatter = 64 << 10;    // that a shell's start-up files may print
constexpr std::size_t kMostComplaints = 4 << 10;  // the last line of these is shown
constexpr auto kForLastWords = 1s;  // between the end of the output and that of the command
constexpr int kNoSuchProgram = 127;

/// Commands that hand their words to a shell of the other host.
bool wants_quotes(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  return name == "ssh" || name == "rsh";
}

/// A pipe: the end for the other process, and ours, which does not block.
std::pair<FileDescriptor, FileDescriptor> agent_pipe(bool to_the_other) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("making a pipe to an agent");
  FileDescriptor reads(ends[0]), writes(ends[1]);
  ::fcntl(to_the_other ? ends[1] : ends[0], F_SETFL, O_NONBLOCK);
  if (to_the_other) return {std::move(reads), std::move(writes)};
  return {std::move(writes), std::move(reads)};
}

std::string last_line(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.pop_back();
  }
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

AgentLink::AgentLink(JobDescription job, const sigset_t& signal_mask)
    : job_(std::move(job)), patience_(setting_seconds("TUTTI_RENDEZVOUS_TIMEOUT")) {
  SpawnOptions spawning;
  spawning.program = job_.connect;
  const bool quotes = wants_quotes(job_.connect.front());
  spawning.program.push_back(job_.hosts.front().name);
  spawning.program.push_back(quotes ? shell_word(job_.tutti) : job_.tutti);
  spawning.program.emplace_back("run-agent");
  for (char** entry = environ; *entry != nullptr; ++entry) {
    spawning.environment.emplace_back(*entry);
  }
  spawning.signal_mask = signal_mask;
  spawning.own_session = true;
  auto [input, to_agent] = agent_pipe(true);
  auto [output, from_agent] = agent_pipe(false);
  auto [errors, complaints] = agent_pipe(false);
  spawning.stdin_fd = input.fd();
  spawning.stdout_fd = output.fd();
  spawning.stderr_fd = errors.fd();
  const Spawned spawned = spawn(spawning);
  pid_ = spawned.pid;
  start_error_ = spawned.error;
  if (pid_ < 0) status_ = 0;
  to_agent_ = std::move(to_agent);
  from_agent_ = std::move(from_agent);
  complaints_ = std::move(complaints);
}

void AgentLink::send(const Message& message) {
  if (to_agent_) (greeted_ ? pending_ : stashed_) += encode(message);
  sent_ = Clock::now();
}

void AgentLink::add_polls(std::vector<pollfd>& polls) const {
  if (from_agent_) polls.push_back({from_agent_.fd(), POLLIN, 0});
  if (complaints_) polls.push_back({complaints_.fd(), POLLIN, 0});
  if (to_agent_ && !pending_.empty()) polls.push_back({to_agent_.fd(), POLLOUT, 0});
}

AgentLink::Clock::time_point AgentLink::next_wake() const {
  if (ended_) return Clock::time_point::max();
  if (closed_ != Clock::time_point::max()) return closed_ + kForLastWords;
  return greeted_ ? std::min(sent_ + kAliveEvery, heard_ + patience_) : heard_ + patience_;
}

void AgentLink::serve(const std::function<void(Message&&)>& hear) {
  if (ended_) return;
  read_complaints();
  try {
    read_events(hear);
  } catch (const Error& error) {
    trouble_ = error.what();
  }
  const auto now = Clock::now();
  if (trouble_.empty() && closed_ == Clock::time_point::max() && now - heard_ > patience_) {
    trouble_ = fmt::format("nothing has come from it for {} s",
                           std::chrono::duration<double>(patience_).count());
  }
  if (greeted_ && now - sent_ >= kAliveEvery) send({.kind = MessageKind::alive, .text = ""});
  write_commands();
  look_for_end(hear);
}

void AgentLink::read_events(const std::function<void(Message&&)>& hear) {
  std::array<char, 64 << 10> buffer;
  for (int i = 0; from_agent_ && i < 16; ++i) {
    const ssize_t got = ::read(from_agent_.fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      from_agent_.reset();
      closed_ = Clock::now();
      break;
    }
    heard_ = Clock::now();
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    if (greeted_) {
      reader_.add(bytes);
    } else {
      before_ += bytes;
      if (!find_greeting()) continue;
    }
    while (auto message = reader_.next()) {
      if (message->kind == MessageKind::gone) ++gone_;
      if (message->kind == MessageKind::lost && message->host < 0) {  // the agent itself says why
        throw Error(ErrorCode::system, message->text);
      }
      if (message->kind != MessageKind::alive) hear(std::move(*message));
    }
  }
}

/// The agent's first line, after what the start-up files of a shell may have printed.
bool AgentLink::find_greeting() {
  const std::size_t at = before_.find(kAgentGreeting);
  const std::size_t end = at == std::string::npos ? at : before_.find('\n', at);
  if (end == std::string::npos) {
    if (before_.size() > kMostChatter) throw Error(ErrorCode::mismatch, "it is no agent of Tutti");
    return false;
  }
  std::string version =
      before_.substr(at + kAgentGreeting.size(), end - at - kAgentGreeting.size());
  if (version.ends_with('\r')) {
    throw Error(ErrorCode::mismatch,
                fmt::format("a terminal stands between it and this host, and changes what it says: "
                            "have '{}' use none (-T of ssh, no -t of docker exec)",
                            job_.connect.front()));
  }
  if (version != TUTTI_VERSION) {
    if (version.size() > 40) version.resize(40);
    throw Error(ErrorCode::mismatch,
                fmt::format("{} there is of version {}, and this host's of version {}; have the "
                            "same version on all hosts, or say where it is with --tutti",
                            job_.tutti, version, TUTTI_VERSION));
  }
  greeted_ = true;
  patience_ = kSilence;
  reader_.add(std::string_view(before_).substr(end + 1));
  before_.clear();
  pending_ = encode(Message{.kind = MessageKind::job, .text = encode(job_)}) + stashed_;
  stashed_.clear();
  return true;
}

void AgentLink::read_complaints() {
  std::array<char, 4096> buffer;
  while (complaints_) {
    const ssize_t got = ::read(complaints_.fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return complaints_.reset();
    said_.append(buffer.data(), static_cast<std::size_t>(got));
    if (said_.size() > 2 * kMostComplaints) said_.erase(0, said_.size() - kMostComplaints);
  }
}

void AgentLink::write_commands() {
  while (to_agent_ && !pending_.empty()) {
    const ssize_t count = ::write(to_agent_.fd(), pending_.data(), pending_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) return to_agent_.reset();  // its output says why
    pending_.erase(0, static_cast<std::size_t>(count));
  }
}

void AgentLink::look_for_end(const std::function<void(Message&&)>& hear) {
  if (status_ && closed_ == Clock::time_point::max()) closed_ = Clock::now();
  const bool over = closed_ != Clock::time_point::max() &&
                    ((status_ && !from_agent_) || Clock::now() - closed_ >= kForLastWords);
  if (!over && trouble_.empty()) return;
  read_complaints();
  close();
  ended_ = true;
  if (gone_ == job_.hosts.size()) return;
  const auto behind = static_cast<int>(job_.hosts.size()) - 1;
  hear({MessageKind::lost, job_.hosts.front().number, behind, 0, why_it_ended()});
  for (std::size_t h = 1; h < job_.hosts.size(); ++h) {
    hear({MessageKind::lost, job_.hosts[h].number, 0, 0, ""});
  }
}

std::string AgentLink::why_it_ended() const {
  if (!trouble_.empty()) return trouble_;
  const std::string& program = job_.connect.front();
  if (start_error_ != 0) {
    return fmt::format("cannot run '{}': {}", program, std::strerror(start_error_));
  }
  std::string said = last_line(said_);
  if (!greeted_ && status_ && WIFEXITED(*status_) && WEXITSTATUS(*status_) == kNoSuchProgram) {
    return fmt::format(
        "there is no {} there{}; install Tutti at the same place on all hosts, or say "
        "where it is with --tutti",
        job_.tutti, said.empty() ? "" : " (" + said + ")");
  }
  if (said.empty()) {
    if (!status_) {
      said = "its output ended";
    } else if (WIFSIGNALED(*status_)) {
      said = fmt::format("'{}' was killed by signal {}", program, WTERMSIG(*status_));
    } else {
      said = fmt::format("'{}' exited with status {}", program, WEXITSTATUS(*status_));
    }
  }
  return greeted_ ? fmt::format("its agent, or the connection to it, ended ({})", said)
                  : fmt::format("it cannot be reached: {}", said);
}

bool AgentLink::note_end(pid_t pid, int status) {
  if (pid_ < 0 || pid != pid_) return false;
  pid_ = -1;
  status_ = status;
  return true;
}

void AgentLink::close() {
  to_agent_.reset();
  from_agent_.reset();
  complaints_.reset();
  pending_.clear();
}

}  // namespace tutti
