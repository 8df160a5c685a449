// The ranks of a job that run on this host: it starts them, tells what becomes of them, passes
// their output and input on, and sees to it that none of their processes is left. It decides
// nothing.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/agent_messages.h"
#include "tools/run/rank_input.h"
#include "tools/run/rank_output.h"
#include "tools/run/rank_talk.h"
#include "tools/spawn.h"
#include "transport/sockets/socket.h"

namespace tutti {

using HearMessage = std::function<void(Message&&)>;

/// What of the ranks comes and goes as messages. The rest they inherit.
struct PassedOn {
  bool input = false;
  bool output = false;
};

class HostRanks {
 public:
  /// `signal_mask`: of the ranks. `keeper`: kills them if this process is killed.
  /// `alone`: this process starts nothing but ranks, so whatever comes from it is a rank's.
  HostRanks(const JobDescription& job, PassedOn passed_on, const sigset_t& signal_mask,
            Keeper& keeper, bool alone, HearMessage hear);

  /// A port of this host at which rank 0 can serve PyTorch's store; nobody else gets it as long as
  /// this object lives. 0: rank 0 is not here, or the job is elastic, or the system has none.
  int reserve_port();
  /// Starts all, or none in an elastic job, where the launcher asks for each one (start_rank). Ends
  /// early, with the message not_started, where one cannot start. The ranks get the port and the
  /// address of PyTorch's store, if there is a port.
  void start(int store_port, const std::string& store_address);
  /// A process has ended. Whether `pid` was one of the ranks.
  bool note_end(pid_t pid, int status);
  /// The commands input, signal, taken, unread, start_rank, word and no_more.
  void obey(const Message& command);

  void add_polls(std::vector<pollfd>& polls) const;
  std::chrono::steady_clock::time_point next_wake() const;
  void serve();
  /// Nothing is left, and all has been told.
  bool gone() const { return gone_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Rank {
    pid_t pid = -1;  // of its newest process; -1: it has had none
    bool runs = false;
    bool has_group = false;  // processes of its group may be left
    Time began, ended;
    std::optional<Time> starts_at;
    RankTalk talk;
  };

  void tell(MessageKind kind, int number = 0, int value = 0, std::string text = "");
  void tell_output(int stream, std::string lines);
  std::string others_of(const std::string& name) const;
  std::vector<std::string> environment_of(int index, int talk_fd) const;
  std::vector<std::string> torchruns_variables(int index) const;
  /// False: it cannot be started, which has been told.
  bool start(int index);
  /// Null: it is another host's.
  Rank* own(int rank);
  void serve_talk(int index);
  void look_for_orphans(Rank& rank);
  /// No rank runs, and none will.
  bool all_ended() const;
  bool look_for_left(Time now);
  RankOutput& output(int stream) { return *(stream == 1 ? out_ : err_); }

  const JobDescription& job_;
  const HostShare& share_;
  const PassedOn passed_on_;
  const sigset_t signal_mask_;
  Keeper& keeper_;
  const bool alone_;
  const HearMessage hear_;
  FileDescriptor reserved_port_;
  int store_port_ = 0;
  std::string store_address_;
  std::vector<Rank> ranks_;
  std::vector<Rank> before_;  // processes of the same ranks, which have ended
  std::vector<cpu_set_t> cores_;
  std::filesystem::path windows_library_;  // to be preloaded; empty: none
  std::optional<RankOutput> out_, err_;
  InputPipe input_;
  Time look_at_ = Time::max();  // for what ranks have left behind outside of their groups
  bool started_ = false, gone_ = false;
  bool more_may_start_ = false;
};

}  // namespace tutti
