// See host_ranks.h.
#include "tools/run/host_ranks.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/elastic_message.h"
#include "core/proc.h"
#include "tools/rank_processes.h"
#include "tools/run/job_signals.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kForOrphans = 1s;  // what a rank leaves behind may go on
constexpr auto kForKilled = 1s;   // to be gone, once they have been killed
constexpr auto kOrphanCheck = 20ms;

/// Where the build, an installation or a Python package has the library; empty: none of them.
std::filesystem::path find_library(const char* name) {
  const std::filesystem::path bin = own_program().parent_path();
  for (const char* const folder : {"../lib", TUTTI_LIB_FROM_BIN}) {
    const std::filesystem::path path = bin / folder / name;
    std::error_code unreadable;
    if (std::filesystem::exists(path, unreadable)) return path.lexically_normal();
  }
  return {};
}

/// "NAME=", of "NAME=value".
std::string_view name_in(std::string_view variable) {
  return variable.substr(0, variable.find('=') + 1);
}

}  // namespace

HostRanks::HostRanks(const JobDescription& job, PassedOn passed_on, const sigset_t& signal_mask,
                     Keeper& keeper, bool alone, HearMessage hear)
    : job_(job),
      share_(job.hosts.front()),
      passed_on_(passed_on),
      signal_mask_(signal_mask),
      keeper_(keeper),
      alone_(alone),
      hear_(std::move(hear)) {
  allow_many_descriptors();
  if (!passed_on_.output) return;
  out_.emplace(share_.first_rank, share_.ranks, job.tag);
  err_.emplace(share_.first_rank, share_.ranks, job.tag);
}

void HostRanks::tell(MessageKind kind, int number, int value, std::string text) {
  hear_({kind, share_.number, number, value, std::move(text)});
}

int HostRanks::reserve_port() {
  if (share_.first_rank != 0 || job_.elastic) return 0;
  // Linux lets a listener have the port of a socket that does not listen, where both say that they
  // use addresses again (servers do, PyTorch's too), and gives the port to nobody who asks for any.
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t length = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  const int yes = 1;
  reserved_port_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int fd = reserved_port_.fd();
  const bool reserved = ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                        ::bind(fd, address, length) == 0 &&
                        ::getsockname(fd, address, &length) == 0;
  return reserved ? ntohs(any.sin_port) : 0;
}

void HostRanks::start(int store_port, const std::string& store_address) {
  started_ = true;
  store_port_ = store_port;
  store_address_ = store_address;
  if (job_.bind_cores) {
    cores_ = choose_cores(share_.ranks);
    if (cores_.empty()) {
      tell(MessageKind::note, 0, 0, "fewer cores than ranks: --bind core has no effect");
    }
  }
  if (job_.windows) {
    windows_library_ = find_library("libtutti_windows.so");
    if (windows_library_.empty()) {
      tell(MessageKind::note, 0, 0,
           "libtutti_windows.so is not where tutti is installed: --windows has no effect");
    }
  }
  keeper_.keep_ranks({job_.id, share_.first_rank, share_.ranks});
  ranks_.resize(static_cast<std::size_t>(share_.ranks));
  more_may_start_ = job_.elastic;
  for (int index = 0; index < share_.ranks && !job_.elastic; ++index) {
    if (!start(index)) return;
  }
}

bool HostRanks::start(int index) {
  const int rank = share_.first_rank + index;
  Rank& its = ranks_[static_cast<std::size_t>(index)];
  Rank started;
  const FileDescriptor talk = job_.elastic ? started.talk.open() : FileDescriptor();
  SpawnOptions spawning;
  spawning.program = job_.program;
  spawning.environment = environment_of(index, talk.fd());
  spawning.signal_mask = signal_mask_;
  spawning.keeper = &keeper_;
  spawning.passed_fd = talk.fd();
  if (!cores_.empty()) spawning.cpus = cores_[static_cast<std::size_t>(index)];
  FileDescriptor input, out, err;
  if (rank == 0 && its.pid < 0) {
    if (passed_on_.input) input = input_.open();
    spawning.stdin_fd = input ? input.fd() : 0;
  }
  if (out_) {
    out = out_->open_pipe(index);
    err = err_->open_pipe(index);
    spawning.stdout_fd = out.fd();
    spawning.stderr_fd = err.fd();
  }
  const Spawned spawned = spawn(spawning);
  if (spawned.pid < 0) {
    tell(MessageKind::not_started, rank, spawned.error);
    return false;
  }
  started.pid = spawned.pid;
  started.runs = started.has_group = true;
  started.began = std::chrono::steady_clock::now();
  // What the process before has left behind.
  if (its.pid >= 0) look_at_ = std::min(look_at_, started.began + kForOrphans);
  if (its.has_group) before_.push_back(std::move(its));
  its = std::move(started);
  tell(MessageKind::started, rank, spawned.pid);
  return true;
}

/// What torchrun sets, for programs that were made for it.
std::vector<std::string> HostRanks::torchruns_variables(int index) const {
  if (store_port_ == 0) return {};
  return {fmt::format("RANK={}", share_.first_rank + index),
          fmt::format("WORLD_SIZE={}", job_.size),
          fmt::format("LOCAL_RANK={}", index),
          fmt::format("LOCAL_WORLD_SIZE={}", share_.ranks),
          "MASTER_ADDR=" + store_address_,
          fmt::format("MASTER_PORT={}", store_port_)};
}

/// What a list of paths, "NAME=", has otherwise, behind a colon.
std::string HostRanks::others_of(const std::string& name) const {
  const char* const here = std::getenv(name.substr(0, name.size() - 1).c_str());
  std::string others = here != nullptr ? here : "";
  for (const std::string& variable : job_.variables) {
    if (variable.starts_with(name)) others = variable.substr(name.size());
  }
  return others.empty() ? others : ":" + others;
}

std::vector<std::string> HostRanks::environment_of(int index, int talk_fd) const {
  // The first of one name counts.
  std::vector<std::string> ours{
      fmt::format("TUTTI_RANK={}", share_.first_rank + index),
      fmt::format("TUTTI_SIZE={}", job_.size), fmt::format("TUTTI_LOCAL_RANK={}", index),
      fmt::format("TUTTI_LOCAL_SIZE={}", share_.ranks), "TUTTI_UNIQUE_ID=" + job_.id};
  ours.push_back(fmt::format("{}={}", kElasticVariable, talk_fd));
  const std::vector<std::pair<std::string, std::string>> in_front{
      {"LD_PRELOAD=", windows_library_.string()},
      // Programs are linked with MPI, or open it (Python): nothing of the program says so, and
      // nothing but MPI is there.
      {"LD_LIBRARY_PATH=", find_library("tutti/mpi/libmpi_abi.so.1").parent_path().string()}};
  for (const auto& [name, first] : in_front) {
    if (!first.empty()) ours.push_back(name + first + others_of(name));
  }
  for (const std::string& variable : job_.variables) {
    const bool merged = std::ranges::any_of(in_front, [&](const auto& list) {
      return !list.second.empty() && variable.starts_with(list.first);
    });
    if (!merged) ours.push_back(variable);
  }
  for (std::string& variable : torchruns_variables(index)) {
    const bool chosen = std::ranges::any_of(job_.variables, [&](const std::string& other) {
      return other.starts_with(name_in(variable));
    });
    if (!chosen) ours.push_back(std::move(variable));
  }
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool is_ours = std::any_of(ours.begin(), ours.end(), [&](const std::string& variable) {
      return text.starts_with(name_in(variable));
    });
    // A torchrun around this job is not that of its ranks.
    const bool is_outer = store_port_ != 0 && text.starts_with("TORCHELASTIC_");
    if (!is_ours && !is_outer) result.emplace_back(text);
  }
  for (std::string& variable : ours) {
    if (talk_fd >= 0 || name_in(variable) != fmt::format("{}=", kElasticVariable)) {
      result.push_back(std::move(variable));
    }
  }
  return result;
}

bool HostRanks::note_end(pid_t pid, int status) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&](const Rank& rank) { return rank.runs && rank.pid == pid; });
  if (found == ranks_.end()) return false;
  found->runs = false;
  found->ended = std::chrono::steady_clock::now();
  look_at_ = all_ended() ? found->ended : std::min(look_at_, found->ended + kForOrphans);
  found->talk.close();
  tell(MessageKind::ended, share_.first_rank + static_cast<int>(found - ranks_.begin()), status);
  return true;
}

HostRanks::Rank* HostRanks::own(int rank) {
  const int index = rank - share_.first_rank;
  const bool is_own = index >= 0 && static_cast<std::size_t>(index) < ranks_.size();
  return is_own ? &ranks_[static_cast<std::size_t>(index)] : nullptr;
}

void HostRanks::obey(const Message& command) {
  switch (command.kind) {
    case MessageKind::signal:
      for (std::vector<Rank>* const some : {&ranks_, &before_}) {
        for (Rank& rank : *some) {
          if (rank.has_group) ::kill(-rank.pid, command.number);
          if (command.number == SIGKILL || JobSignals::ends(command.number)) {
            rank.starts_at.reset();
          }
        }
      }
      break;
    case MessageKind::start_rank:
      if (Rank* const rank = own(command.number)) {
        rank->starts_at =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(command.value);
      }
      break;
    case MessageKind::no_more:
      more_may_start_ = false;
      for (Rank& rank : ranks_) rank.starts_at.reset();
      look_at_ = std::chrono::steady_clock::now();
      serve();  // that may have been all
      break;
    case MessageKind::word:
      if (Rank* const rank = own(command.number)) rank->talk.say(command.text);
      break;
    case MessageKind::input:
      input_.add(command.text);
      break;
    case MessageKind::taken:
      if (out_ && command.value > 0) {
        output(command.number).taken(static_cast<std::size_t>(command.value));
      }
      break;
    case MessageKind::unread:
      if (out_) output(command.number).close();
      break;
    default:
      break;
  }
}

void HostRanks::add_polls(std::vector<pollfd>& polls) const {
  if (out_) out_->add_polls(polls);
  if (err_) err_->add_polls(polls);
  input_.add_polls(polls);
  for (const Rank& rank : ranks_) rank.talk.add_polls(polls);
}

std::chrono::steady_clock::time_point HostRanks::next_wake() const {
  Time wake = gone_ ? Time::max() : look_at_;
  const auto is_orphaned = [](const Rank& rank) { return !rank.runs && rank.has_group; };
  if (!before_.empty() || std::ranges::any_of(ranks_, is_orphaned)) {
    wake = std::chrono::steady_clock::now() + kOrphanCheck;
  }
  for (const Rank& rank : ranks_) wake = std::min(wake, rank.starts_at.value_or(Time::max()));
  return wake;
}

void HostRanks::serve() {
  if (!started_ || gone_) return;
  for (std::size_t index = 0; index < ranks_.size(); ++index) serve_talk(static_cast<int>(index));
  for (Rank& rank : ranks_) look_for_orphans(rank);
  for (Rank& rank : before_) look_for_orphans(rank);
  std::erase_if(before_, [](const Rank& rank) { return !rank.has_group; });
  if (const int fed = input_.write(); fed != 0) tell(MessageKind::fed, 0, fed);
  const bool is_left = look_for_left(std::chrono::steady_clock::now());
  const bool all_gone =
      all_ended() && before_.empty() && !is_left &&
      std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.has_group; });
  for (const int stream : {1, 2}) {
    if (!out_) break;
    tell_output(stream, all_gone ? output(stream).finish() : output(stream).read());
    if (const auto rank = output(stream).cut_rank()) {
      tell(MessageKind::note, 0, 0,
           fmt::format("rank {} writes lines of more than 32 MiB: they are cut", *rank));
    }
  }
  if (!all_gone) return;
  gone_ = true;
  keeper_.remove_ranks();
  tell(MessageKind::gone);
}

/// A rank of an elastic job is started, when the time has come; and what it says is passed on.
void HostRanks::serve_talk(int index) {
  const auto at = [&]() -> Rank& { return ranks_[static_cast<std::size_t>(index)]; };
  const auto when = at().starts_at;
  if (when && std::chrono::steady_clock::now() >= *when) {
    at().starts_at.reset();
    start(index);
  }
  at().talk.write();
  while (auto text = at().talk.read()) {
    tell(MessageKind::said, share_.first_rank + index, 0, std::move(*text));
  }
}

void HostRanks::tell_output(int stream, std::string lines) {
  if (!lines.empty()) tell(MessageKind::output, stream, 0, std::move(lines));
}

/// A rank's process has ended; ends what it left behind. An empty group's number may be used again,
/// so it is not signalled any more.
void HostRanks::look_for_orphans(Rank& rank) {
  if (rank.runs || !rank.has_group) return;
  const bool empty = ::kill(-rank.pid, 0) != 0 && errno == ESRCH;
  const auto age = std::chrono::steady_clock::now() - rank.ended;
  if (!empty && age >= kForOrphans) ::kill(-rank.pid, SIGKILL);
  if (!empty && age < kForOrphans + kForKilled) return;
  rank.has_group = false;
  keeper_.remove(rank.pid);
}

bool HostRanks::all_ended() const {
  return !more_may_start_ && std::ranges::none_of(ranks_, &Rank::runs);
}

/// Ends the processes that ranks have left behind in groups and sessions of their own. Looks for
/// them once their time is over, after their rank's end or its next start, and when all ranks have
/// ended. Returns whether there may be any.
bool HostRanks::look_for_left(Time now) {
  if (now < look_at_) return look_at_ != Time::max();
  look_at_ = Time::max();
  const bool at_end = all_ended();
  Time last;
  for (const Rank& rank : ranks_) last = std::max(last, rank.ended);
  const std::vector<RankProcess> from_here =
      processes_from_here({job_.id, share_.first_rank, share_.ranks});
  for (const RankProcess& process : from_here) {
    const Rank* const its = process.rank >= 0 ? own(process.rank) : nullptr;
    bool is_left = at_end && alone_ && process.pid != keeper_.pid();  // whose does not matter
    Time since = last;
    if (its != nullptr) {
      const auto rank = std::ranges::find(from_here, its->pid, &RankProcess::pid);
      is_left = !its->runs || (rank != from_here.end() && process.started < rank->started);
      since = its->runs ? its->began : its->ended;
    }
    const auto age = now - since;
    if (!is_left || age >= kForOrphans + kForKilled) continue;
    if (age >= kForOrphans) ::kill(process.pid, SIGKILL);
    look_at_ = now + kOrphanCheck;
  }
  return look_at_ != Time::max();
}

}  // namespace tutti
