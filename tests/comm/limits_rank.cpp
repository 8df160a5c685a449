// Ranks that run out of memory, or of file descriptors, in each call of the API, at each of many
// limits. The rank that lacks them throws Error(system), which says so; the others hear of it at
// once; nobody crashes or waits in vain; and when all is destroyed, nothing is left of it.
//
//     limits_rank memory|descriptors [EVERY]     EVERY: only so many of the limits are tried
//
// Each trial has a communicator of its own. Another one, which nothing happens to, keeps the ranks
// in step. Exits with 1 when something is not right.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/address_space.h"
#include "tutti.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 20s;   // of the library's waits
constexpr auto kToMeet = 2s;      // of meetings by an id: a rank may lack the socket for a word
constexpr auto kAtOnce = 12s;     // a rank that fails, or hears of it, has taken less
constexpr unsigned kStuck = 100;  // seconds; then a trial ends by SIGALRM
constexpr std::size_t kCount = 200'000;
constexpr rlim_t kDescriptors = 256;

int wrong = 0;

// --- What is scarce ------------------------------------------------------------------------------

/// Leaves this process so many descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t left) {
    for (int fd = 0; (fd = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0;) taken_.push_back(fd);
    for (; left > 0 && !taken_.empty(); --left) {
      close(taken_.back());
      taken_.pop_back();
    }
  }
  ~FewDescriptors() {
    for (const int fd : taken_) close(fd);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  std::vector<int> taken_;
};

struct Scarcity {
  std::optional<tutti::test::AddressSpace> memory;
  std::optional<FewDescriptors> descriptors;
};

std::vector<std::size_t> limits(bool memory) {
  if (!memory) return {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24};
  std::vector<std::size_t> all{0};
  for (std::size_t more = 16 << 10; more <= std::size_t{320} << 20; more += more / 2) {
    all.push_back(more);
  }
  return all;
}

// --- What is tried -------------------------------------------------------------------------------

struct Trial {
  tutti::Communicator& steady;
  tutti::Options options;
  int rank = 0, size = 0;
  tutti::UniqueId id;        // for another communicator
  tutti::Communicator comm;  // of this trial; empty for create()
};
/// What to do before the limit holds, and what while it does.
using Act = std::function<void()>;
struct Call {
  const char* name;
  bool has_comm, meets;  // before; by an id or a handle
  std::function<Act(Trial&)> prepare;
};

void expect_sums(const std::uint32_t* x, int size) {
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto n = static_cast<std::uint32_t>(size);
    const auto k = static_cast<std::uint32_t>(i);
    if (x[i] != 1000 * (n * (n - 1) / 2) + n * k) throw std::runtime_error("a sum is wrong");
  }
}

template <class Vector>
void add_up(tutti::Communicator& comm, Vector& x) {
  for (std::size_t i = 0; i < kCount; ++i) {
    x[i] = static_cast<std::uint32_t>(1000 * comm.rank() + static_cast<int>(i));
  }
  comm.all_reduce(x.data(), x.data(), kCount, tutti::DataType::uint32);
  expect_sums(x.data(), comm.size());
}

/// A collective by `run`, on memory that is there before.
template <class Vector = std::vector<std::uint32_t>>
std::function<Act(Trial&)> collective(
    std::function<void(tutti::Communicator&, std::uint32_t*, std::uint32_t*)> run) {
  return [run](Trial& t) -> Act {
    const std::size_t count = kCount * static_cast<std::size_t>(t.size);
    auto in = std::make_shared<Vector>(count, 1U), out = std::make_shared<Vector>(count);
    return [run, in, out, &t] { run(t.comm, in->data(), out->data()); };
  };
}

using Window = std::vector<std::uint32_t, tutti::Allocator<std::uint32_t>>;
constexpr auto kType = tutti::DataType::uint32;

const std::array kCalls = {
    Call{"create", false, true,
         [](Trial& t) -> Act {
           return [&t] {
             auto comm = tutti::Communicator::create(t.id, t.rank, t.size, t.options);
             comm.barrier();
           };
         }},
    Call{"a second create", true, true,
         [](Trial& t) -> Act {
           t.comm.barrier();
           return [&t] {
             auto comm = tutti::Communicator::create(t.id, t.rank, t.size, t.options);
             comm.barrier();
           };
         }},
    Call{"split", true, false,
         [](Trial& t) -> Act {
           return [&t] {
             auto comm = t.comm.split(0, -t.rank, t.options);
             comm.barrier();
           };
         }},
    Call{"split and add", true, false,
         [](Trial& t) -> Act {
           return [&t] {
             auto comm = t.comm.split(0, t.rank, t.options);
             std::vector<std::uint32_t> x(kCount);
             add_up(comm, x);
           };
         }},
    Call{"shrink", true, false,
         [](Trial& t) -> Act {
           t.comm.barrier();
           return [&t] {
             auto comm = t.comm.shrink({}, t.options);
             comm.barrier();
           };
         }},
    Call{"reconfigure", true, true,
         [](Trial& t) -> Act {
           constexpr std::size_t kLength = 512;
           const auto n = static_cast<std::size_t>(t.size);
           std::string own = t.comm.handle();
           own.resize(kLength);
           std::string all(kLength * n, '\0');
           t.comm.all_gather(own.data(), all.data(), kLength, tutti::DataType::uint8);
           std::vector<std::string> handles;
           for (std::size_t r = 0; r < n; ++r) handles.emplace_back(all.c_str() + r * kLength);
           return [&t, handles] {
             auto comm = t.comm.reconfigure(handles, 1, t.options);
             comm.barrier();
           };
         }},
    Call{"window", true, false,
         [](Trial& t) -> Act {
           return [&t] {
             auto window = t.comm.window(std::size_t{1} << 20);
             const int next = (t.rank + 1) % t.size, last = (t.rank + t.size - 1) % t.size;
             std::vector<std::uint32_t> x(50'000, static_cast<std::uint32_t>(t.rank));
             window.put_signal(next, 0, x.data(), 4 * x.size());
             window.wait_signal(last, 1);
             window.close();
           };
         }},
    Call{"all_reduce", true, false,
         collective([](auto& c, auto* in, auto* out) { c.all_reduce(in, out, kCount, kType); })},
    Call{"all_reduce of windows", true, false, collective<Window>([](auto& c, auto* in, auto* out) {
           c.all_reduce(in, out, kCount, kType);
         })},
    Call{"all_gather", true, false,
         collective([](auto& c, auto* in, auto* out) { c.all_gather(in, out, kCount, kType); })},
    Call{"reduce_scatter", true, false, collective([](auto& c, auto* in, auto* out) {
           c.reduce_scatter(in, out, kCount, kType);
         })},
    Call{"broadcast", true, false,
         collective([](auto& c, auto* in, auto* out) { c.broadcast(in, out, kCount, kType, 0); })},
    Call{"reduce and scatter", true, false, collective([](auto& c, auto* in, auto* out) {
           c.reduce(in, out, kCount, kType, {}, 0);
           c.scatter(in, out, kCount, kType, 0);
         })},
    Call{"gather", true, false,
         collective([](auto& c, auto* in, auto* out) { c.gather(in, out, kCount, kType, 0); })},
    Call{"all_to_all", true, false,
         collective([](auto& c, auto* in, auto* out) { c.all_to_all(in, out, kCount, kType); })},
    Call{"messages", true, false, collective<Window>([](auto& c, auto* in, auto* out) {
           const int next = (c.rank() + 1) % c.size(), last = (c.rank() + c.size() - 1) % c.size();
           tutti::group([&] {
             c.send(in, kCount, kType, next);
             c.recv(out, kCount, kType, last);
           });
         })},
    Call{"started calls", true, false, collective([](auto& c, auto* in, auto* out) {
           auto future = c.start({.collective = tutti::Collective::all_reduce,
                                  .in = in,
                                  .out = out,
                                  .count = kCount,
                                  .type = kType});
           future.wait();
         })},
};

// --- What is left --------------------------------------------------------------------------------

struct Held {
  std::size_t files = 0, segments = 0;
  bool is_more_than(const Held& other) const {
    return files > other.files || segments > other.segments;
  }
};

Held held() {
  Held h;
  for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++h.files;
  }
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:tutti") != std::string::npos) ++h.segments;
  }
  return h;
}

/// Threads and sockets go a moment after their owners.
bool is_held_again(const Held& before) {
  const auto end = Clock::now() + kToMeet + 4s;  // a meeting's server waits for its ranks
  while (held().is_more_than(before)) {
    if (Clock::now() > end) return false;
    usleep(20'000);
  }
  return true;
}

// --- A trial -------------------------------------------------------------------------------------

struct Outcome {
  std::int32_t error = 0;  // ErrorCode; 0: none
  std::int32_t is_wrong = 0;
};

void complain(int rank, const std::string& trial, const std::string& what) {
  fmt::print(stderr, "rank {}: {}: {}\n", rank, trial, what);
  wrong = 1;
}

bool names_the_cause(const std::string& text) {
  for (const char* const word : {"memory", "descriptor", "open files", "thread", "cannot", "no "}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

/// `more`: none, for a trial without a limit. Returns what each rank has seen.
void run_trial(tutti::Communicator& steady, const Call& call, bool memory, int victim,
               std::optional<std::size_t> more) {
  const std::string name = more ? fmt::format("{} where rank {} has {} {} left", call.name, victim,
                                              *more, memory ? "bytes" : "descriptors")
                                : fmt::format("{} without a limit", call.name);
  alarm(kStuck);
  Outcome mine;
  {
    Trial trial{steady, {}, steady.rank(), steady.size(), {}, {}};
    trial.options.rendezvous_timeout = kPatience;
    trial.options.timeout = kPatience;
    std::array<tutti::UniqueId, 2> ids{};
    if (trial.rank == 0) {
      tutti::MeetingPlace place;
      place.timeout = kToMeet;
      if (call.meets) ids[0] = tutti::make_unique_id(place);
      if (call.has_comm) ids[1] = tutti::make_unique_id(place);
    }
    steady.broadcast(ids.data(), ids.data(), sizeof ids, tutti::DataType::uint8, 0);
    trial.id = ids[0];
    if (call.has_comm) {
      trial.comm = tutti::Communicator::create(ids[1], trial.rank, trial.size, trial.options);
    }
    Act act = call.prepare(trial);
    if (call.meets) trial.options.rendezvous_timeout = kToMeet;
    steady.barrier();
    const auto begun = Clock::now();
    std::string text;
    {
      Scarcity scarcity;
      if (more && trial.rank == victim) {
        if (memory) {
          scarcity.memory.emplace(*more);
        } else {
          scarcity.descriptors.emplace(*more);
        }
      }
      try {
        act();
      } catch (const tutti::Error& e) {
        mine.error = static_cast<std::int32_t>(e.code());
        text = e.what();
      } catch (const std::exception& e) {
        mine.is_wrong = 1;
        text = e.what();
      }
    }
    const auto took = std::chrono::duration<double>(Clock::now() - begun).count();
    if (std::getenv("TUTTI_TEST_VERBOSE") != nullptr) {
      fmt::print(stderr, "rank {}: {}: {:.2f} s, {} '{}'\n", trial.rank, name, took, mine.error,
                 text);
    }
    if (mine.is_wrong != 0) complain(trial.rank, name, fmt::format("no Error, but '{}'", text));
    if (mine.error != 0 && text.empty()) complain(trial.rank, name, "an Error without a text");
    if (took > std::chrono::duration<double>(kAtOnce).count()) {
      complain(trial.rank, name, fmt::format("it takes {:.1f} s, and then '{}'", took, text));
    }
    const auto code = static_cast<tutti::ErrorCode>(mine.error);
    // So short a time to meet may be over before a server says that it can let nobody in, and a
    // rank may come when another one has given the meeting up.
    const bool is_late = call.meets && (code == tutti::ErrorCode::timed_out ||
                                        code == tutti::ErrorCode::invalid_usage);
    const bool is_cause = code == tutti::ErrorCode::system && names_the_cause(text);
    const bool is_news = code == tutti::ErrorCode::system || code == tutti::ErrorCode::peer_lost;
    if (mine.error != 0 && (!more || !(is_late || (trial.rank == victim ? is_cause : is_news)))) {
      complain(trial.rank, name, fmt::format("{}, '{}'", tutti::name(code), text));
    }
  }
  steady.barrier();
  std::vector<Outcome> all(static_cast<std::size_t>(steady.size()));
  steady.all_gather(&mine, all.data(), sizeof mine, tutti::DataType::uint8);
  const bool failed = all[static_cast<std::size_t>(victim)].error != 0;
  if (!failed && mine.error != 0) {
    complain(steady.rank(), name, "it fails, though the rank with the limit does not");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const bool memory = argc > 1 && std::string(argv[1]) == "memory";
  const std::size_t most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : SIZE_MAX;
  const char* const only = argc > 3 ? argv[3] : nullptr;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kDescriptors);
  setrlimit(RLIMIT_NOFILE, &limit);
  auto steady = tutti::Communicator::from_environment();
  const std::vector<std::size_t> all = limits(memory);
  std::size_t turn = 0;
  for (const Call& call : kCalls) {
    if (only != nullptr && std::string(only) != call.name) continue;
    for (int i = 0; i < 2; ++i) run_trial(steady, call, memory, 0, {});
    const Held before = held();
    // Others in each call, so that few are many together.
    const std::size_t each = std::max<std::size_t>(1, all.size() / std::min(most, all.size()));
    for (std::size_t l = turn++ % each; l < all.size(); l += each) {
      const int victim =
          static_cast<int>((l / each + turn) % static_cast<std::size_t>(steady.size()));
      run_trial(steady, call, memory, victim, all[l]);
      if (!is_held_again(before)) {
        const Held now = held();
        complain(steady.rank(), fmt::format("{}, limit {}", call.name, all[l]),
                 fmt::format("{} files and {} segments are open, {} and {} were before", now.files,
                             now.segments, before.files, before.segments));
      }
      steady.barrier();
    }
  }
  return wrong;
} catch (const std::exception& e) {
  fmt::print(stderr, "error: {}\n", e.what());
  return 2;
}
