// See history.h.
#include "tests/simulator/history.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

namespace tutti::simulator {
namespace {

constexpr Time kLimit = 400 * kSecond;
constexpr Time kEntry = 30 * kMillisecond;  // for which ranks may enter a meeting
constexpr std::uint64_t kMostSteps = 3'000'000;

/// A history under way.
struct Run : Services {
  Plan plan;
  std::vector<std::unique_ptr<Task>> tasks;
  std::vector<Module> modules;
  std::vector<Outcome> outcomes;
  std::map<std::string, std::string> published;
  int mains = 0;                  // that run
  std::vector<Meeting> meetings;  // by their numbers, from 1 on
  bool is_closed = false;         // the last one: nobody comes in any more
  std::vector<std::string> broken;
  std::set<int> killed, suspected;  // suspected: whoever a fault may make others lose

  void publish(const std::string& key, const std::string& text) override {
    published[key] = text;
    world().wake(&published, 1000);
  }
  std::string await(const std::string& key) override {
    while (!published.contains(key)) {
      if (!world().wait_at(&published, world().now() + 70 * kSecond)) return "";
    }
    return published[key];
  }
  int enter(const std::string& handle) override {
    if (meetings.empty() || is_closed) {
      meetings.emplace_back();
      is_closed = false;
      world().plan(
          world().now() + kEntry,
          [](void* its, std::uint64_t) {
            static_cast<Run*>(its)->is_closed = true;
            world().wake(&static_cast<Run*>(its)->meetings, 1000);
          },
          this);
    }
    meetings.back().handles.push_back(handle);
    meetings.back().ranks.push_back(world().current()->process->number);
    return static_cast<int>(meetings.size());
  }
  Meeting wait_for_meeting(int number) override {
    while (!is_closed && static_cast<std::size_t>(number) == meetings.size()) {
      world().wait_at(&meetings, kNever);
    }
    return meetings[static_cast<std::size_t>(number - 1)];
  }
  void say(const Outcome& outcome) override {
    constexpr const char* kNames[] = {"has met", "error",        "has shrunk to",
                                      "WRONG",   "has finished", "has left"};
    std::string ranks;
    for (const int r : outcome.ranks) ranks += " " + std::to_string(r);
    world().tell("%s%s%s%s", kNames[static_cast<int>(outcome.kind)], ranks.c_str(),
                 outcome.text.empty() ? "" : ": ", outcome.text.c_str());
    world().trace(30, static_cast<std::uint64_t>(outcome.kind),
                  static_cast<std::uint64_t>(outcome.rank));
    outcomes.push_back(outcome);
    if (outcome.kind == Outcome::Kind::wrong) {
      broken.push_back("rank " + std::to_string(outcome.rank) +
                       " has a wrong result: " + outcome.text);
    }
  }
  void tell(const std::string& text) override { world().tell("%s", text.c_str()); }
  std::vector<std::string> memory_files() override {
    const Process& process = *world().current()->process;
    std::vector<std::string> names;
    for (const int fd : process.real_files) names.push_back(name_of_real_file(fd));
    for (const Object* const object : process.files) {
      if (object == nullptr || object->kind != Object::Kind::local) continue;
      for (const Local::Packet& packet : static_cast<const Local*>(object)->packets) {
        for (const int fd : packet.real_files) names.push_back("sent " + name_of_real_file(fd));
      }
    }
    return names;
  }
};

Run* run = nullptr;

bool is_over() { return run->mains == 0; }

/// What a process may keep to its end: the counter that stops its threads, and the reactor's two.
void check_files(Process& process) {
  int counters = 0, sets = 0;
  bool others = false;
  for (const Object* const object : process.files) {
    if (object == nullptr) continue;
    if (object->kind == Object::Kind::counter) {
      ++counters;
    } else if (object->kind == Object::Kind::epoll) {
      ++sets;
    } else {
      others = true;
    }
  }
  if (counters <= 2 && sets <= 1 && !others && process.real_files.empty()) return;
  std::string text = open_files(process);
  for (const int fd : process.real_files) text += ", " + name_of_real_file(fd);
  run->broken.push_back("rank " + std::to_string(process.number) + " has left and keeps " + text);
}

void* main_of(void* task) {
  const Task& its = *static_cast<const Task*>(task);
  Process& process = *world().current()->process;
  const Module& module = run->modules[static_cast<std::size_t>(its.rank)];
  module.rank(its);
  // What is on its way to the others may take a moment.
  world().sleep_until(world().now() + 20 * kSecond);
  // Where a meeting has failed, its server stays for those who come late.
  const bool has_met = std::ranges::any_of(run->outcomes, [&](const Outcome& o) {
    return o.rank == its.rank && o.kind == Outcome::Kind::met;
  });
  if (has_met) check_files(process);
  module.exit();
  if (process.fibers.size() > 2) {  // this thread, and the one that holds the life words
    run->broken.push_back("rank " + std::to_string(process.number) + " ends with " +
                          std::to_string(process.fibers.size() - 1) + " threads left");
  }
  world().trace(31, static_cast<std::uint64_t>(its.rank));
  process.has_returned = true;
  --run->mains;
  // It ends as a process does: not this thread alone.
  Fiber& self = *world().current();
  world().plan(
      world().now(),
      [](void* whose, std::uint64_t) { world().kill(*static_cast<Process*>(whose), false); },
      self.process);
  return nullptr;
}

/// A rank of this number and host, from now on.
void start_rank(int number, int host) {
  World& w = world();
  const Plan& plan = run->plan;
  const auto there =
      std::ranges::find_if(w.processes, [&](const auto& p) { return p->host == host; });
  // The processes of a host have one clock.
  const std::int64_t offset = there != w.processes.end()
                                  ? (*there)->clock_offset
                                  : static_cast<std::int64_t>(w.random.below(1000 * kSecond));
  Process& process = w.add_process(number, host);
  process.clock_offset = offset;
  process.environment = {{"TUTTI_HOST_ID", "host" + std::to_string(host)},
                         {"TUTTI_LOG", "off"},
                         {"TUTTI_SPIN", "1"},
                         {"TUTTI_TRANSPORT", "tcp"}};
  if (!plan.algorithm.empty()) process.environment["TUTTI_ALGORITHM"] = plan.algorithm;
  if (plan.encrypted) process.environment["TUTTI_ENCRYPT"] = "1";
  run->tasks.push_back(std::make_unique<Task>(
      Task{number, plan.ranks, plan.ranks_of_a_host, plan.by_handles, plan.steps, run}));
  ++run->mains;
  w.start_fiber(process, main_of, run->tasks.back().get());
}

void happen(void* fault, std::uint64_t) {
  const Fault& f = *static_cast<const Fault*>(fault);
  World& w = world();
  Process& process = *w.processes[static_cast<std::size_t>(f.rank)];
  if (!process.alive || process.has_returned) return;
  const int host = process.host, other_host = w.processes[static_cast<std::size_t>(f.other)]->host;
  const auto suspect_hosts = [&] {
    for (const auto& p : w.processes) {
      if (p->host == host || p->host == other_host) run->suspected.insert(p->number);
    }
  };
  w.trace(40, static_cast<std::uint64_t>(f.kind), static_cast<std::uint64_t>(f.rank));
  const double lasts = static_cast<double>(f.lasts) * 1e-9;
  switch (f.kind) {
    case Fault::Kind::restart:
      // Where it had no part in what the others do, nobody waits for the new one.
      if (run->plan.by_handles) {
        w.plan(
            w.now() + f.lasts,
            [](void*, std::uint64_t where) {
              const bool is_off = std::ranges::any_of(world().processes, [&](const auto& p) {
                return p->host == static_cast<int>(where) && p->silent;
              });
              if (run->mains > 0 && !is_off && world().processes.size() < kMostRanks) {
                start_rank(static_cast<int>(world().processes.size()), static_cast<int>(where));
              }
            },
            nullptr, static_cast<std::uint64_t>(host));
      }
      [[fallthrough]];
    case Fault::Kind::kill:
      w.tell("rank %d is killed", f.rank);
      run->killed.insert(f.rank);
      run->suspected.insert(f.rank);
      w.kill(process, false);
      --run->mains;
      return;
    case Fault::Kind::power_off:
      w.tell("the host of rank %d loses power", f.rank);
      for (const auto& p : w.processes) {
        if (p->host != host) {
          cut(p->host, host, kNever, true);
          continue;
        }
        if (!p->alive) continue;
        run->killed.insert(p->number);
        run->suspected.insert(p->number);
        if (!p->has_returned) --run->mains;
        w.kill(*p, true);
      }
      return;
    case Fault::Kind::stop:
      w.tell("rank %d is stopped for %.3f s", f.rank, lasts);
      w.stop(process, w.now() + f.lasts);
      return;
    case Fault::Kind::reset:
      if (host == other_host || !reset_connection(host, other_host)) return;
      return suspect_hosts();
    case Fault::Kind::cut:
    case Fault::Kind::half_cut:
      if (host == other_host) return;
      w.tell("nothing goes from host %d to host %d%s for %.3f s", host, other_host,
             f.kind == Fault::Kind::cut ? ", nor back," : "", lasts);
      if (f.lasts > 3 * kSecond) suspect_hosts();
      cut(host, other_host, w.now() + f.lasts, f.kind == Fault::Kind::cut);
      return;
    case Fault::Kind::wall_clock:
      w.tell("the clock of rank %d jumps by %.3f s", f.rank, lasts);
      process.wall_offset += static_cast<std::int64_t>(f.lasts) * (f.other % 2 == 0 ? 1 : -1);
      return;
  }
}

/// Kills and stops leave the network as it is: then survivors have no reason to lose each other.
bool is_network_whole() {
  return std::ranges::none_of(run->plan.faults, [](const Fault& f) {
    return f.kind == Fault::Kind::reset || f.kind == Fault::Kind::cut ||
           f.kind == Fault::Kind::half_cut;
  });
}

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

/// Each error has a cause, and names a rank that has to do with it.
void check_error(const Outcome& o, const std::set<int>& met, const std::set<int>& left) {
  constexpr int kMismatch = 3, kTimedOut = 5, kInternal = 9;  // core/error.h
  const std::string says = rank_text(o.rank) + " gets an error";
  const auto breaks = [&](const std::string& why) {
    run->broken.push_back(says + why + ": " + o.text);
  };
  if (run->suspected.empty()) return breaks(", and nothing was wrong");
  if (o.code == kInternal) return breaks(" of the library");
  // To a rank behind a way that is cut, all others may be lost.
  if (run->suspected.contains(o.rank) && !is_network_whole()) return;
  if (o.blamed >= 0 && !run->suspected.contains(o.blamed) && !left.contains(o.blamed)) {
    return breaks(" that blames rank " + std::to_string(o.blamed) + ", which has no fault");
  }
  // A rank that dies before it comes is missed by the time-out of the meeting; so is one whose host
  // is off.
  const bool may_be_late = !met.contains(o.rank) || run->plan.by_handles ||
                           std::ranges::any_of(run->plan.faults, [](const Fault& f) {
                             return f.kind == Fault::Kind::power_off;
                           });
  if (is_network_whole() && (o.code == kMismatch || (o.code == kTimedOut && !may_be_late))) {
    breaks(" that no death explains");
  }
}

void check_outcomes() {
  std::set<int> met, left;
  std::map<int, std::string> errors;
  std::map<int, std::vector<int>> shrunk, finished;
  for (const Outcome& o : run->outcomes) {
    if (o.kind == Outcome::Kind::met) met.insert(o.rank);
    if (o.kind == Outcome::Kind::finished) {
      finished[o.rank] = o.ranks;
      left.insert(o.rank);
    }
    if (o.kind == Outcome::Kind::shrunk) shrunk[o.rank] = o.ranks;
    if (o.kind != Outcome::Kind::error) continue;
    check_error(o, met, left);
    errors[o.rank] = o.text;
  }
  // The meeting succeeds on all or on none; where the process dies that says so, nobody can promise
  // it.
  const bool goes_on =
      run->suspected.empty() || (is_network_whole() && !met.empty() && !run->killed.contains(0));
  for (const auto& process : world().processes) {
    const int r = process->number;
    if (!goes_on && !(run->plan.by_handles && is_network_whole())) break;
    if (run->killed.contains(r) || finished.contains(r)) continue;
    run->broken.push_back(rank_text(r) + " has not finished: " + errors[r]);
  }
  for (const auto& [rank, its] : shrunk) {
    if (!finished.contains(rank)) continue;
    for (const auto& [other, others] : shrunk) {
      const bool of_both =
          std::ranges::count(its, other) > 0 && std::ranges::count(others, rank) > 0;
      if (!finished.contains(other) || its == others || !(of_both || is_network_whole())) continue;
      run->broken.push_back(rank_text(rank) + " and " + rank_text(other) +
                            " go on with different ranks");
    }
  }
}

}  // namespace

Result run_history(const Plan& plan, const std::vector<Module>& modules, bool tells) {
  begin_world(plan.seed);
  World& w = world();
  w.tells = tells;
  weather() = plan.weather;
  run = new Run;
  run->plan = plan;
  run->modules = modules;
  for (int r = 0; r < plan.ranks; ++r) start_rank(r, r / plan.ranks_of_a_host);
  for (const Fault& fault : run->plan.faults) {
    w.plan(w.now() + fault.at, happen, const_cast<Fault*>(&fault));
  }
  const Time begun = w.now();
  const World::End end = w.run(is_over, begun + kLimit, kMostSteps);
  if (end != World::End::over) {
    run->broken.push_back(end == World::End::hang ? "all wait for ever"
                                                  : "it does not come to an end");
    w.tell_threads();
  }
  check_outcomes();
  Result result{w.hash(), w.steps(), w.now() - begun, {}};
  if (!run->broken.empty()) result.broken = run->broken.front();
  for (const std::string& b : run->broken) w.tell("BROKEN: %s", b.c_str());
  return result;
}

}  // namespace tutti::simulator
