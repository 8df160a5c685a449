// The ranks of a process in a campaign: campaign.py starts them, and does something to them.
//
//     campaign_workload KIND [--memory M] [--threads K] [--seed S] [--deaths D] [--exclude-late]
//
// KIND and M: workload.h. With --threads, the process has K ranks, each a thread. It prints a line
// of JSON for everything that happens to a rank, with the steady clock's time in seconds:
//
//     {"rank": 0, "at": 12.3, "event": "met"}           then "ready" after some steps
//     "error", with "which": first (what a call has thrown), again (what the communicator says),
//         also (what shrink() has thrown), last (the rank gives up), and "code", "of" (a rank, by
//         its number at the start; -1: none), "text"
//     "survived", "leaving", "done"; "wrong" with "text"; of the process: "kept", with what
//     is still open or mapped when all its ranks have left
//
// and it does what standard input says: stop (end well), exit, _exit (with status 0), segv, throw,
// abort (Communicator::abort), eat (2 GB of memory), address N and descriptors N (leaves the
// process so many bytes of address space or descriptors).
//
// Status: 0 all is well, or it has survived D deaths; 3 it has given up; 4 a result was wrong; 6
// the others go on without it; 9 another exception.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/environment.h"
#include "bootstrap/unique_id.h"
#include "tests/campaign/workload.h"

namespace {

using namespace tutti;
using namespace std::chrono_literals;

struct Settings {
  std::string kind, memory = "any";
  unsigned threads = 1, seed = 1, deaths = 0;
  bool exclude_late = false;
};

// --- What it says ----------------------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string q = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') q += '\\';
    q += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return q + '"';
}

void say(int rank, const char* event, const std::string& more = "") {
  const double now =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const std::string line = fmt::format("{{\"rank\": {}, \"at\": {:.6f}, \"event\": \"{}\"{}}}\n",
                                       rank, now, event, more);
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t n = write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

/// `names`: the numbers that the ranks of the communicator had at the start.
int say_error(int rank, const char* which, const Error& e, const std::vector<int>& names) {
  const bool known = e.rank() >= 0 && static_cast<std::size_t>(e.rank()) < names.size();
  const int of = known ? names[static_cast<std::size_t>(e.rank())] : -1;
  say(rank, "error",
      fmt::format(", \"which\": \"{}\", \"code\": \"{}\", \"of\": {}, \"text\": {}", which,
                  name(e.code()), of, quoted(e.what())));
  return of;
}

// --- What it is told -------------------------------------------------------------------------

std::atomic<bool> must_stop{false}, must_throw{false};
std::mutex current_lock;
Communicator* current = nullptr;  // of rank 0 of this process, while it makes calls

std::vector<int> taken;  // descriptors

void eat() {
  for (int k = 0; k < 512; ++k) {
    constexpr std::size_t kPiece = 4 << 20;
    auto* piece = static_cast<volatile char*>(std::malloc(kPiece));
    for (std::size_t i = 0; piece != nullptr && i < kPiece; i += 4096) piece[i] = 1;
  }
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void obey(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::size_t number = 0;
  words >> what >> number;
  if (what == "stop") must_stop = true;
  if (what == "exit") std::exit(0);
  if (what == "_exit") _exit(0);
  if (what == "segv") *reinterpret_cast<volatile int*>(8) = 1;
  if (what == "throw") must_throw = true;
  if (what == "eat") eat();
  if (what == "abort") {
    const std::lock_guard lock(current_lock);
    if (current != nullptr) current->abort("the campaign says so");
  }
  if (what == "address") {
    const rlim_t limit = address_space() + number;
    const rlimit l{limit, limit};
    setrlimit(RLIMIT_AS, &l);
  }
  if (what == "descriptors") {
    const std::lock_guard lock(current_lock);
    for (int fd = 0; (fd = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0;) taken.push_back(fd);
    for (; number > 0 && !taken.empty(); --number) {
      close(taken.back());
      taken.pop_back();
    }
  }
}

void listen() {
  std::thread([] {
    for (std::string line; std::getline(std::cin, line);) obey(line);
  }).detach();
}

// --- What it does ----------------------------------------------------------------------------

class Rank {
 public:
  Rank(Settings settings, int rank, Communicator comm)
      : settings_(std::move(settings)), rank_(rank), comm_(std::move(comm)) {
    for (int r = 0; r < comm_.size(); ++r) names_.push_back(r);
    last_ = names_.size() - std::min<std::size_t>(settings_.deaths, names_.size() - 1);
  }

  int live() {
    bool survived = false;
    while (!work(survived)) {
      if (gives_up_) return 3;
      const Error error = failure();
      const int of = say_error(rank_, "again", error, names_);
      const bool late = error.code() == ErrorCode::timed_out && settings_.exclude_late;
      if (of == rank_) return 6;
      if (of < 0 || (error.code() != ErrorCode::peer_lost && !late)) return 3;
      try {
        go_on_without(error.rank());
      } catch (const Error& last) {
        say_error(rank_, "last", last, names_);
        return 3;
      }
      survived = names_.size() <= last_;
      ++settings_.seed;
    }
    if (survived) say(rank_, "survived", fmt::format(", \"ranks\": {}", comm_.size()));
    say(rank_, "leaving");
    comm_.destroy();
    say(rank_, "done");
    return 0;
  }

 private:
  /// Whether it has come to an end: all its steps, or the word to stop. False: a call has failed.
  bool work(bool few) {
    std::unique_ptr<campaign::Work> work;
    const auto set_current = [&](Communicator* comm) {
      const std::lock_guard lock(current_lock);
      if (rank_ % static_cast<int>(settings_.threads) == 0) current = comm;
    };
    // The others may move it while they reconfigure.
    if (settings_.kind != "reconfigure") set_current(&comm_);
    try {
      work = campaign::make_work(settings_.kind, settings_.memory, settings_.seed, comm_);
      for (int step = 0;; ++step) {
        if (must_throw) throw std::logic_error("the campaign says so");
        if (step == 4 && !few) say(rank_, "ready");
        if (step == 24 && few) break;
        work->step();
        std::uint32_t stop = must_stop ? 1 : 0;
        if (step % 8 == 7) comm_.broadcast(&stop, &stop, 1, DataType::uint32, 0);
        if (step % 8 == 7 && stop != 0 && !few) break;
      }
      set_current(nullptr);
      return true;
    } catch (const Error& error) {
      set_current(nullptr);
      // A rank that has no memory or descriptors does not know whether the others have failed, too.
      const bool own = error.code() == ErrorCode::system || error.code() == ErrorCode::internal;
      say_error(rank_, own ? "last" : "first", error, names_);
      if (work) work->stop();
      gives_up_ = own;
      late_ = error.code() == ErrorCode::timed_out;
      return false;
    } catch (...) {
      set_current(nullptr);
      throw;
    }
  }

  /// What the communicator says. If it says nothing, one that was made from it has failed alone,
  /// and the others may be in other calls, except where all wait for a rank that is late.
  Error failure() {
    for (int tries = 0; tries < 1000; ++tries) {
      try {
        if (const auto error = comm_.error()) return *error;
        if (late_) comm_.barrier();
      } catch (const Error& error) {
        return error;
      }
      std::this_thread::sleep_for(1ms);
    }
    return {ErrorCode::aborted, "the communicator goes on, and this rank gives up"};
  }

  void go_on_without(int lost_rank) {
    std::vector<int> lost{lost_rank};
    for (;;) {
      try {
        comm_ = comm_.shrink(lost);
        break;
      } catch (const Error& another) {
        const bool known = std::find(lost.begin(), lost.end(), another.rank()) != lost.end();
        if (another.code() != ErrorCode::peer_lost || another.rank() < 0 || known) throw;
        say_error(rank_, "also", another, names_);
        lost.push_back(another.rank());
      }
    }
    for (const int r : lost) names_[static_cast<std::size_t>(r)] = -1;
    std::erase(names_, -1);
  }

  Settings settings_;
  int rank_;
  Communicator comm_;
  std::vector<int> names_;
  std::size_t last_ = 0;
  bool gives_up_ = false, late_ = false;
};

int run(const Settings& settings, int rank, const std::function<Communicator()>& meet) {
  std::vector<int> names(4096);
  for (std::size_t r = 0; r < names.size(); ++r) names[r] = static_cast<int>(r);
  try {
    Communicator comm = meet();
    say(rank, "met");
    return Rank(settings, rank, std::move(comm)).live();
  } catch (const Error& error) {
    say_error(rank, "last", error, names);
    return 3;
  } catch (const std::runtime_error& error) {
    say(rank, "wrong", fmt::format(", \"text\": {}", quoted(error.what())));
    return 4;
  } catch (const std::exception& error) {
    say(rank, "exception", fmt::format(", \"text\": {}", quoted(error.what())));
    return 9;
  }
}

/// What this process has open, and its segments of shared memory.
std::vector<std::string> held() {
  std::vector<std::string> all;
  std::error_code gone;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    all.push_back(std::filesystem::read_symlink(file, gone).string());
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.find("/memfd:tutti");
    if (name != std::string::npos) all.push_back(line.substr(name));
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// What is held now and was not before, by its kind.
std::vector<std::string> more_than(const std::vector<std::string>& before) {
  // Numbers of sockets and pipes differ each time: how many there are counts.
  std::map<std::string, int> count;
  count["anon_inode"] = -3;  // the reactor and what runs in the background, once in a process
  const auto kind = [](const std::string& name) { return name.substr(0, name.find(":[")); };
  for (const auto& name : before) --count[kind(name)];
  std::vector<std::string> more;
  for (const auto& name : held()) {
    if (++count[kind(name)] > 0) more.push_back(kind(name));
  }
  return more;
}

int run_all(const Settings& settings) {
  if (settings.threads == 1) {
    return run(settings, std::atoi(std::getenv("TUTTI_RANK")),
               [] { return Communicator::from_environment(); });
  }
  const Placement place = placement_from_environment();
  const int each = static_cast<int>(settings.threads);
  SharedId id;
  try {
    id = place.size == 1 ? SharedId{make_unique_id()}
                         : unique_id_from_environment(place, Options().rendezvous_timeout);
  } catch (const Error& error) {
    say_error(place.rank * each, "last", error, {});
    return 3;
  }
  std::vector<int> statuses(settings.threads);
  std::vector<std::thread> threads;
  for (int k = 0; k < each; ++k) {
    threads.emplace_back([&, k] {
      const int rank = place.rank * each + k;
      statuses[static_cast<std::size_t>(k)] = run(settings, rank, [&] {
        Communicator comm = Communicator::create(id.id, rank, place.size * each);
        if (k == 0) forget(id);
        return comm;
      });
    });
  }
  for (auto& thread : threads) thread.join();
  return *std::max_element(statuses.begin(), statuses.end());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || std::getenv("TUTTI_RANK") == nullptr) return 2;
  Settings settings;
  settings.kind = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--exclude-late") {
      settings.exclude_late = true;
      continue;
    }
    if (++i == argc) return 2;
    if (option == "--memory") settings.memory = argv[i];
    const auto number = static_cast<unsigned>(std::strtoul(argv[i], nullptr, 10));
    if (option == "--threads") settings.threads = number;
    if (option == "--seed") settings.seed = number;
    if (option == "--deaths") settings.deaths = number;
  }
  listen();
  const auto before = held();
  const int status = run_all(settings);
  {
    const std::lock_guard lock(current_lock);
    for (const int fd : taken) close(fd);
  }
  // A moment for threads and sockets that go after their owners; rank 0 serves those that come
  // late.
  auto kept = more_than(before);
  for (int k = 0; k < 600 && !kept.empty(); ++k) {
    std::this_thread::sleep_for(10ms);
    kept = more_than(before);
  }
  std::string list;
  for (const auto& name : kept) list += (list.empty() ? "" : ", ") + quoted(name);
  say(std::atoi(std::getenv("TUTTI_RANK")), "kept", fmt::format(", \"what\": [{}]", list));
  std::fflush(stdout);
  _exit(status);  // standard input's thread waits for a line
}
