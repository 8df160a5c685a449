// See kinship.h.
#include "bootstrap/kinship.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "bootstrap/process.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/error.h"
#include "core/number.h"
#include "core/proc.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kToAppear = 100ms;
constexpr int kMostCrowd = 10;
// Of a program that travels.
constexpr std::size_t kMostWords = 32, kMostVariables = 256;

std::uint32_t short_hash(std::string_view text) {
  const auto digest = protocol::hash({}, "program", {std::as_bytes(std::span(text))});
  std::uint32_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

bool contains(const std::vector<pid_t>& pids, pid_t pid) {
  return std::ranges::find(pids, pid) != pids.end();
}

using Processes = std::vector<std::pair<pid_t, Entries>>;

/// A process of this host that is a rank.
struct Candidate {
  pid_t pid = 0;
  Program program;
};

/// Those below `starter` that have the variables `marks`, as `rank` has, and are neither above nor
/// below it: what wraps a rank, and what a rank starts, has its variables, too.
std::vector<Candidate> namesakes(const Candidate& rank, const Entries& marks, pid_t starter,
                                 const Processes& processes) {
  std::vector<Candidate> found;
  for (const auto& [pid, environment] : processes) {
    if (pid == rank.pid || contains(rank.program.above, pid)) continue;
    if (!std::ranges::includes(environment, marks)) continue;
    Candidate other{pid, program_of(pid)};
    if (other.program.words.empty() || contains(other.program.above, rank.pid)) continue;
    if (starter != 0 && !contains(other.program.above, starter)) continue;
    found.push_back(std::move(other));
  }
  return found;
}

Likeness operator+(Likeness a, const Likeness& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

Processes processes_and_environments() {
  Processes processes;
  for (const pid_t pid : process_ids()) {
    Entries environment = environment_of(pid);
    if (!environment.empty()) processes.emplace_back(pid, std::move(environment));
  }
  return processes;
}

/// This process. Another launch may give its ranks the same numbers, so only what is below the
/// launcher's own process counts; plain variables are set by anybody.
struct Own {
  explicit Own(const Launcher& launcher)
      : marks(told_by(launcher)),
        starter(&launcher == &kPlainTorchrun ? 0 : process_of(launcher)) {}

  const Candidate self{own_proc_id(), program_of(own_proc_id())};
  const Entries marks;
  const pid_t starter;
};

/// And not by something in between. A process that cannot be read is another user's: a daemon.
bool started_by_launcher(const Candidate& rank, const Entries& marks) {
  return !rank.program.above.empty() &&
         !std::ranges::includes(environment_of(rank.program.above.front()), marks);
}

/// How many want each core of this host now, at least 1.
int crowd_of_a_core() {
  std::ifstream file("/proc/loadavg");  // "0.20 0.18 0.12 3/80 11206": three run, of 80 threads
  std::string word;
  for (int i = 0; i < 4; ++i) file >> word;
  const auto running = parse_number<unsigned>(word.substr(0, word.find('/')));
  return static_cast<int>(running.value_or(1) / std::max(std::thread::hardware_concurrency(), 1U)) +
         1;
}

/// Programs that are started together need not be there together: on a busy host it takes longer.
void wait_until_old(std::initializer_list<pid_t> pids) {
  const auto old = kToAppear * std::min(crowd_of_a_core(), kMostCrowd);
  for (const pid_t pid : pids) {
    const auto age = age_of(pid);
    if (age < old) pause_for(old - age);
  }
}

/// "pid 4711 (./a 1)"
std::string described(pid_t pid) {
  auto words = command_of(pid);
  if (!words.empty()) words.erase(words.begin());
  constexpr std::size_t kLongest = 60;
  std::string command = fmt::format("{}", fmt::join(words, " "));
  if (command.size() > kLongest) command.replace(kLongest - 3, std::string::npos, "...");
  return fmt::format("pid {} ({})", pid, command);
}

}  // namespace

Program program_of(pid_t pid) {
  Program program;
  const auto command = command_of(pid);
  if (command.empty()) return program;
  program.file = short_hash(command.front());
  for (std::size_t i = 1; i < command.size(); ++i) program.words.push_back(short_hash(command[i]));
  for (const std::string& variable : environment_of(pid))
    program.variables.insert(short_hash(variable));
  program.above = ancestors_of(pid);
  return program;
}

Likeness likeness(const Program& a, const Program& b) {
  // The nearest common ancestor: the more there are above it, the nearer it is.
  long common = 0;
  for (auto x = a.above.rbegin(), y = b.above.rbegin();
       x != a.above.rend() && y != b.above.rend() && *x == *y; ++x, ++y) {
    ++common;
  }
  long words_apart = static_cast<long>(std::max(a.words.size(), b.words.size()));
  for (std::size_t i = 0; i < std::min(a.words.size(), b.words.size()); ++i)
    words_apart -= a.words[i] == b.words[i] ? 1 : 0;
  std::vector<std::uint32_t> apart;
  std::ranges::set_symmetric_difference(a.variables, b.variables, std::back_inserter(apart));
  return {common, a.file == b.file ? 1 : 0, -words_apart, -static_cast<long>(apart.size())};
}

std::string to_text(const Program& program, Detail detail) {
  const std::size_t most = detail == Detail::all ? kMostVariables : 0;
  const std::size_t words = std::min(program.words.size(), kMostWords);
  std::vector<std::uint32_t> numbers{program.file, static_cast<std::uint32_t>(words)};
  numbers.insert(numbers.end(), program.words.begin(),
                 program.words.begin() + static_cast<std::ptrdiff_t>(words));
  for (const std::uint32_t variable : program.variables) {
    if (numbers.size() < 2 + words + most) numbers.push_back(variable);
  }
  return fmt::format("{:08x}", fmt::join(numbers, ""));
}

Program program_from_text(std::string_view text) {
  constexpr std::size_t kDigits = 8;
  std::vector<std::uint32_t> numbers;
  for (; text.size() >= kDigits; text.remove_prefix(kDigits)) {
    const auto number = parse_number<std::uint32_t>(text.substr(0, kDigits), 16);
    if (!number) break;
    numbers.push_back(*number);
  }
  if (!text.empty() || numbers.size() < 2 || numbers[1] > numbers.size() - 2)
    throw Error(ErrorCode::invalid_argument, "it does not say what rank 0's program is");
  const auto words = numbers.begin() + 2, variables = words + numbers[1];
  return {numbers[0], {words, variables}, {variables, numbers.end()}, {}};
}

std::string why_another_program(const Launcher& launcher, pid_t zero) {
  if (!proc_is_ours()) return "";  // the number of `zero` is not /proc's
  const Candidate its{zero, program_of(zero)};
  const Entries its_marks = told_by(launcher, environment_of(zero));
  if (its.program.words.empty() || its_marks.empty()) return "";
  const Own own(launcher);
  // Where the launcher itself has started both, each is the one process of its rank, but for what
  // these two have started.
  if (&launcher != &kPlainTorchrun && started_by_launcher(own.self, own.marks) &&
      started_by_launcher(its, its_marks)) {
    return "";
  }
  wait_until_old({own.self.pid, zero});
  const auto processes = processes_and_environments();
  const auto its_namesakes = namesakes(its, its_marks, own.starter, processes);
  for (const Candidate& one : namesakes(own.self, own.marks, own.starter, processes)) {
    for (const Candidate& zero_too : its_namesakes) {
      if (likeness(one.program, its.program) + likeness(own.self.program, zero_too.program) <=
          likeness(own.self.program, its.program) + likeness(one.program, zero_too.program)) {
        continue;
      }
      return fmt::format(
          "two programs have this rank at once, and {}, which is rank 0 now, fits {} better than "
          "this one, which fits {}",
          described(its.pid), described(one.pid), described(zero_too.pid));
    }
  }
  return "";
}

std::string why_another_program(const Launcher& launcher, const Program& zero) {
  const Own own(launcher);
  if (&launcher != &kPlainTorchrun && started_by_launcher(own.self, own.marks)) return "";
  wait_until_old({own.self.pid});
  const Detail detail = zero.variables.empty() ? Detail::without_variables : Detail::all;
  // As it would travel: the lists may be cut.
  const auto like_zero = [&](const Program& program) {
    return likeness(program_from_text(to_text(program, detail)), zero);
  };
  for (const Candidate& one :
       namesakes(own.self, own.marks, own.starter, processes_and_environments())) {
    if (like_zero(one.program) <= like_zero(own.self.program)) continue;
    return fmt::format(
        "two programs have this rank at once, and rank 0 is like {} rather than like this one",
        described(one.pid));
  }
  return "";
}

}  // namespace tutti
