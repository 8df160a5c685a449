// The simulated world: processes on hosts, their threads, one clock, and what is going to happen.
//
// One thread of the world runs at a time, and runs on until it enters the simulated system: there
// it may have to wait, or hand over. What happens later (a packet arrives, a wait ends) is an
// event. When no thread can run, the clock jumps to the next event. All choices come from one seed,
// so a seed is a whole history, and its hash says whether two runs were the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/simulator/fiber.h"
#include "tests/simulator/random.h"

namespace tutti::simulator {

using Time = std::uint64_t;  // nanoseconds
inline constexpr Time kMicrosecond = 1000, kMillisecond = 1000 * kMicrosecond,
                      kSecond = 1000 * kMillisecond;
inline constexpr Time kNever = ~Time{0};

struct Object;
struct Fiber;

/// A process: what the kernel knows of it.
struct Process {
  int number = 0;  // of the rank, in most histories
  int host = 0;
  bool alive = true;
  bool silent = false;  // its host is off: nothing leaves it any more
  Time stopped_until = 0;
  std::int64_t clock_offset = 0;  // of the steady clock; hosts have started at different times
  std::int64_t wall_offset = 0;   // of the other one, which may jump
  std::map<std::string, std::string> environment;
  std::vector<Object*> files;   // by descriptor, from kFirstFile on
  std::vector<int> real_files;  // descriptors of the real kernel, as of memory
  std::vector<Fiber*> fibers;   // that live
  std::vector<Fiber*> waiting;  // of them, for something to become ready
  void* robust_list = nullptr;  // of life words, which the kernel marks when the process ends
  std::uint32_t robust_holder = 0;
  bool has_returned = false;  // from its main()

  std::int64_t id() const { return 1000 + number; }
};

/// A thread of a process.
struct Fiber {
  enum class State : std::uint8_t { runnable, waiting, ended };
  int number = 0;
  Process* process = nullptr;
  std::size_t seat = 0;
  Context context;
  State state = State::runnable;
  bool timed_out = false;
  bool detached = false;
  std::uint64_t wait = 0;          // the number of its current wait
  const void* address = nullptr;   // it waits for a wake there
  bool (*ready)(void*) = nullptr;  // it waits until this is true of `what`
  void* what = nullptr;
  std::vector<Fiber*> joiners;
  void* (*start)(void*) = nullptr;
  void* argument = nullptr;
  void* result = nullptr;
  std::vector<std::pair<void (*)(void*), void*>> at_end;  // destructors of thread_local objects
  std::string name;
};

/// Something that will happen.
struct Event {
  Time at;
  std::uint64_t order;  // of those of one time, the first planned is the first
  void (*happen)(void* what, std::uint64_t number);
  void* what;
  std::uint64_t number;
  bool operator>(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

class World {
 public:
  explicit World(std::uint64_t seed) : random(seed), network_random(seed ^ 0x6e6574) {}

  // --- processes and threads ---

  Process& add_process(int number, int host);
  Fiber& start_fiber(Process& process, void* (*start)(void*), void* argument);
  /// Ends `process` as kill -9 does; `silently`: as when its host loses power.
  void kill(Process& process, bool silently);
  /// It runs no more until then, as after SIGSTOP.
  void stop(Process& process, Time until);

  /// The thread that runs; null: none, as what runs is no part of the simulated world.
  Fiber* current() const { return current_; }

  // --- for the thread that runs ---

  /// Others may run now.
  void yield();
  /// Others run now; where none can, time passes until the next event (for a moment, at most).
  void let_pass();
  /// Waits for a wake at `address`. False: `deadline` came first.
  bool wait_at(const void* address, Time deadline);
  /// Waits until `ready(what)`, which is asked when something happens to the process. False:
  /// `deadline` came first.
  bool wait_until(bool (*ready)(void*), void* what, Time deadline);
  void sleep_until(Time when) { wait_at(nullptr, when); }
  [[noreturn]] void end_fiber(void* result);
  bool join(Fiber& other);

  /// Wakes up to `most` of those that wait at `address`.
  int wake(const void* address, int most);
  /// Something has happened to a descriptor of the process.
  void look_again(Process& process);

  // --- time ---

  Time now() const { return now_; }
  /// The thread that runs has spent some.
  void spend(Time time) { now_ += time; }
  void plan(Time at, void (*happen)(void*, std::uint64_t), void* what, std::uint64_t number = 0);

  // --- the run ---

  enum class End : std::uint8_t { over, hang, too_long };
  /// Runs until `is_over()`; or nothing can happen any more, or time or steps have run out.
  End run(bool (*is_over)(), Time limit, std::uint64_t steps);

  /// What happened, for the hash and, where it is wanted, for the story.
  void trace(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
    hash_ = (hash_ ^ a) * 0x100000001b3U;
    hash_ = (hash_ ^ b) * 0x100000001b3U;
    hash_ = (hash_ ^ c ^ now_) * 0x100000001b3U;
    hash_ ^= hash_ >> 29;
  }
  std::uint64_t hash() const { return hash_; }
  std::uint64_t steps() const { return steps_; }
  /// A line of the story; printed at once where it is wanted.
  void tell(const char* format, ...) __attribute__((format(printf, 2, 3)));
  /// The threads that there are, and what each waits for.
  void tell_threads();
  bool tells = false;

  Random random;          // who runs next
  Random network_random;  // how long what takes
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<std::unique_ptr<Fiber>> fibers;

 private:
  void make_runnable(Fiber& fiber);
  void leave();  // the thread that runs, for the scheduler
  void expect(Fiber& fiber, Time deadline);
  static void enter();
  static void on_deadline(void* fiber, std::uint64_t wait);

  Fiber* current_ = nullptr;
  Context scheduler_;
  std::vector<Fiber*> runnable_;
  std::vector<Fiber*> idle_;  // in let_pass()
  std::unordered_map<const void*, std::vector<Fiber*>> sleepers_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t planned_ = 0;
  Time now_ = 1000 * kSecond;
  std::uint64_t hash_ = 0xcbf29ce484222325U;
  std::uint64_t steps_ = 0;
};

/// The world of this history.
World& world();
bool is_world();  // there is one
void begin_world(std::uint64_t seed);

}  // namespace tutti::simulator
