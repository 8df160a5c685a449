// See explorer.h.
#include "tests/memory_model/explorer.h"

#include <fmt/format.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>

namespace tutti::model {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr std::size_t kStory = 60;                                // operations
constexpr std::int64_t kTick = 1000, kPatience = 10'000'000'000;  // ns
constexpr int kMostIdle = 8;  // rounds in which time passes and nobody stores anything

std::size_t next_choice(std::size_t ways);

struct Fiber {
  enum State { ready, asleep, paused, ended };
  State state = ended;
  std::uintptr_t sleeps_on = 0;
  bool timed = false, timed_out = false;
  std::uint64_t came = 0;  // to sleep
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  ucontext_t context{};
  std::function<void()> body;
};

struct Explorer {
  Memory memory{next_choice};
  std::array<Fiber, kMostThreads> fibers;
  std::size_t threads = 0, current = kMostThreads;  // kMostThreads: none
  ucontext_t outside{};
  Bounds bounds;
  Choices planned;     // the first ones of this execution
  Choices made, ways;  // and all, each of so many
  bool random = false, cut = false, tells = false;
  bool switches = false;   // the choice is whether the thread goes on,
  std::uint64_t stay = 2;  // which it does so many times, on average, in a random execution
  std::size_t age = 0;     // how it chooses among values, of which
  std::size_t values = 0;  // it has chosen so many,
  std::size_t newer = 0;   // and this one differs
  std::mt19937_64 numbers;
  int preemptions = 0, timeouts = 0, idle_rounds = 0;
  std::uint64_t sleeps = 0, idle_since = 0;
  std::int64_t time = 0;
  std::string failure;
  std::deque<std::string> story;

  /// Of the execution; the fibers that have not ended are left as they are.
  void end() {
    const std::size_t from = current;
    current = kMostThreads;
    swapcontext(&fibers[from].context, &outside);
  }
  void fail(std::string what) {
    failure = std::move(what);
    end();
  }
  void go_on_with(std::size_t to) {
    const std::size_t from = current;
    if (to == from) return;
    current = to;
    swapcontext(&fibers[from].context, &fibers[to].context);
  }
  std::size_t list(Fiber::State state, std::array<std::size_t, kMostThreads>& found) const {
    std::size_t count = 0;
    for (std::size_t t = 0; t < threads; ++t) {
      if (fibers[t].state == state) found[count++] = t;
    }
    return count;
  }

  /// The current thread cannot go on: another one does.
  void leave() {
    std::array<std::size_t, kMostThreads> can;
    std::size_t count = list(Fiber::ready, can);
    if (count > 0) return go_on_with(can[count > 1 ? next_choice(count) : 0]);
    if (list(Fiber::ended, can) == threads) return end();
    // Time passes. Those that look again find the newest values; where that has changed nothing,
    // those wake that sleep for a time only.
    count = list(Fiber::paused, can);
    const bool idle = count == 0 || memory.stores() == idle_since;
    idle_since = memory.stores();
    idle_rounds = idle ? idle_rounds + 1 : 0;
    if (idle) {
      time += kPatience;
      for (std::size_t t = 0; t < threads; ++t) {
        Fiber& f = fibers[t];
        if (f.state != Fiber::asleep || !f.timed) continue;
        ++timeouts;
        f.timed_out = true;
        can[count++] = t;
      }
    }
    if (count == 0 || idle_rounds > kMostIdle) return fail("a thread waits for ever");
    for (std::size_t n = 0; n < count; ++n) {
      fibers[can[n]].state = Fiber::ready;
      memory.refresh(can[n]);
    }
    go_on_with(can[0]);
  }

  void run(const Program& program);
  void note(Result& result);
};

Explorer* explorer = nullptr;
std::size_t executions = 0;

std::size_t next_choice(std::size_t ways) {
  Explorer& e = *explorer;
  const std::size_t n = e.made.size();
  if (n >= e.bounds.most_choices) {
    e.cut = true;
    e.end();
  }
  std::size_t chosen = 0;
  if (n < e.planned.size()) {
    chosen = std::min<std::size_t>(e.planned[n], ways - 1);
  } else if (e.random && e.switches) {
    if (e.numbers() % e.stay == 0) chosen = e.numbers() % ways;
  } else if (e.random) {
    // Any value; seldom an old one; or all are the oldest, but for one.
    ++e.values;
    const bool usual = e.numbers() % 16 >= (e.age == 0 ? 8U : 1U);
    chosen = e.age == 2 ? (e.values == e.newer ? 0 : ways - 1) : usual ? 0 : e.numbers() % ways;
  }
  e.made.push_back(static_cast<std::uint32_t>(chosen));
  e.ways.push_back(static_cast<std::uint32_t>(ways));
  return chosen;
}

void run_fiber() {
  Explorer& e = *explorer;
  try {
    e.fibers[e.current].body();
  } catch (const std::exception& error) {
    e.fail(fmt::format("a thread throws: {}", error.what()));
  }
  e.fibers[e.current].state = Fiber::ended;
  e.leave();
}

void Explorer::run(const Program& program) {
  ++executions;
  made.clear();
  ways.clear();
  failure.clear();
  story.clear();
  preemptions = timeouts = idle_rounds = 0;
  sleeps = idle_since = 0;
  values = 0;
  time = kPatience;
  cut = false;
  const Execution execution = program();
  threads = execution.threads.size();
  if (threads == 0 || threads > kMostThreads) throw std::logic_error("one thread to kMostThreads");
  memory.begin(threads);
  for (std::size_t t = 0; t < threads; ++t) {
    Fiber& f = fibers[t];
    f.state = Fiber::ready;
    f.body = execution.threads[t];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = nullptr;
    makecontext(&f.context, run_fiber, 0);
  }
  current = threads > 1 ? next_choice(threads) : 0;
  swapcontext(&outside, &fibers[current].context);
  current = kMostThreads;
  if (failure.empty() && !cut) {
    if (!memory.race().empty()) {
      failure = memory.race();
    } else {
      try {
        execution.after();
      } catch (const std::exception& error) {
        failure = error.what();
      }
    }
  }
  for (Fiber& f : fibers) f.body = nullptr;
}

void Explorer::note(Result& result) {
  ++result.executions;
  if (failure.empty()) return;
  result.failure = failure;
  result.choices = made;
}

}  // namespace

Result explore(const Program& program, const Bounds& bounds) {
  Result result;
  const auto e = std::make_unique<Explorer>();
  explorer = e.get();
  e->bounds = bounds;
  while (result.executions < bounds.executions && !result.complete && result.failure.empty()) {
    e->run(program);
    e->note(result);
    // The next one differs in the last choice that has another way.
    e->planned = e->made;
    while (!e->planned.empty() && e->planned.back() + 1 >= e->ways[e->planned.size() - 1]) {
      e->planned.pop_back();
    }
    result.complete = e->planned.empty();
    if (!e->planned.empty()) ++e->planned.back();
  }
  e->planned.clear();
  e->random = true;
  for (std::size_t n = 0; n < bounds.random && !result.complete && result.failure.empty(); ++n) {
    e->numbers.seed(bounds.seed + n);
    e->stay = std::uint64_t{2} << n % 3 * 2;  // 2, 8, 32
    e->age = n / 3 % 3;
    e->newer = n / 9 % 16;
    e->run(program);
    e->note(result);
  }
  explorer = nullptr;
  if (!result.failure.empty()) result.story = replay(program, result.choices).story;
  return result;
}

Result replay(const Program& program, const Choices& choices) {
  Result result;
  const auto e = std::make_unique<Explorer>();
  explorer = e.get();
  e->planned = choices;
  e->random = e->tells = true;  // any preemptions that the choices say
  e->bounds.most_choices = choices.size() + 1;
  e->run(program);
  e->note(result);
  for (const std::string& line : e->story) result.story += line + '\n';
  explorer = nullptr;
  return result;
}

// --- For programs --------------------------------------------------------------------------------

void require(bool holds, const char* what) {
  if (holds) return;
  if (!runs()) throw std::logic_error(what);
  explorer->fail(what);
}

void await(const std::function<bool()>& ready) {
  while (!ready()) pause();
}

std::size_t choose(std::size_t ways) { return next_choice(ways); }
int timeouts() { return explorer->timeouts; }

bool kill(std::size_t thread) {
  Explorer& e = *explorer;
  e.memory.acquire(e.current, e.memory.release(thread));
  return std::exchange(e.fibers[thread].state, Fiber::ended) != Fiber::ended;
}

// --- For hooks.cpp -------------------------------------------------------------------------------

bool runs() { return explorer != nullptr && explorer->current < kMostThreads; }
std::size_t this_thread() { return explorer->current; }
std::size_t execution() { return executions; }
Memory& memory() { return explorer->memory; }

void may_switch(const char* what, std::uintptr_t at) {
  Explorer& e = *explorer;
  if (!e.memory.race().empty()) e.fail(e.memory.race());
  std::array<std::size_t, kMostThreads> can;
  std::size_t count = e.list(Fiber::ready, can);
  if (count > 1 && (e.random || e.preemptions < e.bounds.preemptions)) {
    // The first way: to go on.
    std::swap(can[0], *std::find(can.begin(), can.begin() + count, e.current));
    e.switches = true;
    const std::size_t next = can[next_choice(count)];
    e.switches = false;
    if (next != e.current) ++e.preemptions;
    e.go_on_with(next);
  }
  if (e.tells) {
    e.story.push_back(fmt::format("thread {}: {} {:#x}", e.current, what, at));
    if (e.story.size() > kStory) e.story.pop_front();
  }
}

bool sleep_on(std::uintptr_t at, bool timed) {
  Explorer& e = *explorer;
  Fiber& f = e.fibers[e.current];
  f.state = Fiber::asleep;
  f.sleeps_on = at;
  f.timed = timed;
  f.timed_out = false;
  f.came = ++e.sleeps;
  e.leave();
  return !f.timed_out;
}

void wake(std::uintptr_t at, std::size_t most) {
  Explorer& e = *explorer;
  for (; most > 0; --most) {
    Fiber* first = nullptr;
    for (std::size_t t = 0; t < e.threads; ++t) {
      Fiber& f = e.fibers[t];
      if (f.state == Fiber::asleep && f.sleeps_on == at && (!first || f.came < first->came)) {
        first = &f;
      }
    }
    if (first == nullptr) return;
    first->state = Fiber::ready;
  }
}

void pause() {
  Explorer& e = *explorer;
  e.fibers[e.current].state = Fiber::paused;
  e.leave();
}

std::int64_t now() { return explorer->time += kTick; }

}  // namespace tutti::model
