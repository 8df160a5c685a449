// The connection to an agent on another host: the command that runs it there (ssh), and the
// messages through that command's standard input and output. Nothing here waits: the owner polls.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/agent_messages.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// A neighbour sends something at least this often, and is lost when nothing comes for so long.
constexpr auto kAliveEvery = std::chrono::seconds(5);
constexpr auto kSilence = std::chrono::seconds(30);

class AgentLink {
  using Clock = std::chrono::steady_clock;

 public:
  /// Starts the agent of `job.hosts.front()`, which gets `job`. `signal_mask`: of the command.
  AgentLink(JobDescription job, const sigset_t& signal_mask);

  const std::vector<HostShare>& hosts() const { return job_.hosts; }

  void send(const Message& message);
  void add_polls(std::vector<pollfd>& polls) const;
  Clock::time_point next_wake() const;
  /// Reads and writes as much as is possible now. When the link ends before all of its hosts are
  /// gone, `lost` comes for each.
  void serve(const std::function<void(Message&&)>& hear);
  /// Whether the command's process was this one.
  bool note_end(pid_t pid, int status);
  bool ended() const { return ended_; }
  /// The command has ended (or never ran).
  bool exited() const { return status_.has_value(); }
  /// The agent ends its ranks, and itself.
  void close();

 private:
  void read_events(const std::function<void(Message&&)>& hear);
  void read_complaints();
  bool find_greeting();
  void write_commands();
  void look_for_end(const std::function<void(Message&&)>& hear);
  std::string why_it_ended() const;

  const JobDescription job_;
  std::vector<std::string> command_;
  FileDescriptor to_agent_, from_agent_, complaints_;
  pid_t pid_ = -1;
  int start_error_ = 0;
  std::optional<int> status_;  // of the command, as waitpid() has it
  bool greeted_ = false, ended_ = false;
  std::size_t gone_ = 0;  // hosts with nothing left
  std::string trouble_;   // why it is given up, where we know
  std::string said_;      // on the command's standard error, the end of it
  std::string before_;    // what came before the greeting
  std::string pending_;   // for the agent
  std::string stashed_;   // for the agent, once it has greeted
  MessageReader reader_;
  std::chrono::nanoseconds patience_;  // with a silent agent
  Clock::time_point heard_ = Clock::now(), sent_ = heard_;
  Clock::time_point closed_ = Clock::time_point::max();  // its output
};

}  // namespace tutti
