// See world.h.
#include "tests/simulator/world.h"

#include <linux/futex.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "tests/simulator/files.h"

namespace tutti::simulator {
namespace {

World* the_world = nullptr;

/// As the kernel does for the robust futexes of a thread that ends.
void mark_life_words(Process& process) {
  auto* const head = static_cast<robust_list_head*>(process.robust_list);
  if (head == nullptr) return;
  const auto mark = [&](robust_list* entry) {
    auto* const word =
        reinterpret_cast<std::uint32_t*>(reinterpret_cast<char*>(entry) + head->futex_offset);
    if ((*word & FUTEX_TID_MASK) == process.robust_holder) *word |= FUTEX_OWNER_DIED;
  };
  if (head->list_op_pending != nullptr) mark(head->list_op_pending);
  for (robust_list* at = head->list.next; at != &head->list; at = at->next) mark(at);
}

}  // namespace

World& world() { return *the_world; }
bool is_world() { return the_world != nullptr; }
void begin_world(std::uint64_t seed) { the_world = new World(seed); }

// --- processes and threads -----------------------------------------------------------------------

Process& World::add_process(int number, int host) {
  processes.push_back(std::make_unique<Process>());
  Process& process = *processes.back();
  process.number = number;
  process.host = host;
  return process;
}

Fiber& World::start_fiber(Process& process, void* (*start)(void*), void* argument) {
  if (fibers.size() == kSeats) {
    std::fprintf(stderr, "simulator: more than %zu threads in a history\n", kSeats);
    std::abort();
  }
  auto made = std::make_unique<Fiber>();
  Fiber& fiber = *made;
  fiber.number = static_cast<int>(fibers.size());
  fiber.process = &process;
  fiber.seat = fibers.size();
  fiber.start = start;
  fiber.argument = argument;
  fiber.context = begin_at(seat(fiber.seat), enter);
  fibers.push_back(std::move(made));
  process.fibers.push_back(&fiber);
  make_runnable(fiber);
  return fiber;
}

void World::enter() {
  Fiber& self = *world().current_;
  world().end_fiber(self.start(self.argument));
}

void World::end_fiber(void* result) {
  Fiber& self = *current_;
  while (!self.at_end.empty()) {
    const auto [destroy, object] = self.at_end.back();
    self.at_end.pop_back();
    destroy(object);
  }
  self.result = result;
  self.state = Fiber::State::ended;
  std::erase(self.process->fibers, &self);
  for (Fiber* const joiner : self.joiners) make_runnable(*joiner);
  trace(1, static_cast<std::uint64_t>(self.number));
  leave();
  std::abort();
}

bool World::join(Fiber& other) {
  while (other.state != Fiber::State::ended) {
    other.joiners.push_back(current_);
    wait_at(nullptr, kNever);
  }
  return true;
}

void World::kill(Process& process, bool silently) {
  if (!process.alive) return;
  process.alive = false;
  process.silent = silently;
  for (Fiber* const fiber : process.fibers) {
    fiber->state = Fiber::State::ended;
    std::erase(runnable_, fiber);
    std::erase(idle_, fiber);
    for (auto& [address, sleepers] : sleepers_) std::erase(sleepers, fiber);
  }
  process.fibers.clear();
  process.waiting.clear();
  trace(2, static_cast<std::uint64_t>(process.number));
  mark_life_words(process);
  close_all(process);
}

void World::stop(Process& process, Time until) {
  process.stopped_until = std::max(process.stopped_until, until);
  plan(
      until, [](void* what, std::uint64_t) { world().look_again(*static_cast<Process*>(what)); },
      &process);
}

// --- waiting -------------------------------------------------------------------------------------

void World::leave() {
  Fiber& self = *current_;
  switch_to(self.context, scheduler_);
}

void World::make_runnable(Fiber& fiber) {
  if (fiber.state == Fiber::State::ended) return;
  if (fiber.state == Fiber::State::waiting) {
    if (fiber.address != nullptr) {
      const auto there = sleepers_.find(fiber.address);
      std::erase(there->second, &fiber);
      if (there->second.empty()) sleepers_.erase(there);
      fiber.address = nullptr;
    }
    if (fiber.ready != nullptr) {
      std::erase(fiber.process->waiting, &fiber);
      fiber.ready = nullptr;
    }
  }
  ++fiber.wait;
  fiber.state = Fiber::State::runnable;
  runnable_.push_back(&fiber);
}

void World::on_deadline(void* fiber, std::uint64_t wait) {
  Fiber& its = *static_cast<Fiber*>(fiber);
  if (its.wait != wait || its.state != Fiber::State::waiting) return;
  its.timed_out = true;
  world().make_runnable(its);
}

void World::expect(Fiber& fiber, Time deadline) {
  fiber.timed_out = false;
  fiber.state = Fiber::State::waiting;
  if (deadline != kNever) plan(std::max(deadline, now_ + 1), on_deadline, &fiber, fiber.wait);
}

void World::yield() {
  Fiber& self = *current_;
  ++self.wait;
  runnable_.push_back(&self);
  leave();
}

void World::let_pass() {
  Fiber& self = *current_;
  ++self.wait;
  idle_.push_back(&self);
  leave();
}

bool World::wait_at(const void* address, Time deadline) {
  Fiber& self = *current_;
  expect(self, deadline);
  self.address = address;
  if (address != nullptr) sleepers_[address].push_back(&self);
  leave();
  return !self.timed_out;
}

bool World::wait_until(bool (*ready)(void*), void* what, Time deadline) {
  Fiber& self = *current_;
  if (ready(what)) return true;
  if (deadline <= now_) return false;
  expect(self, deadline);
  self.ready = ready;
  self.what = what;
  self.process->waiting.push_back(&self);
  leave();
  return !self.timed_out;
}

int World::wake(const void* address, int most) {
  int woken = 0;
  while (woken < most) {
    const auto there = sleepers_.find(address);
    if (there == sleepers_.end()) break;
    std::vector<Fiber*>& sleepers = there->second;
    make_runnable(*sleepers[random.below(sleepers.size())]);
    ++woken;
  }
  return woken;
}

void World::look_again(Process& process) {
  for (std::size_t i = 0; i < process.waiting.size();) {
    Fiber& fiber = *process.waiting[i];
    if (fiber.ready(fiber.what)) {
      make_runnable(fiber);
    } else {
      ++i;
    }
  }
}

// --- the run -------------------------------------------------------------------------------------

void World::plan(Time at, void (*happen)(void*, std::uint64_t), void* what, std::uint64_t number) {
  events_.push({at, planned_++, happen, what, number});
}

World::End World::run(bool (*is_over)(), Time limit, std::uint64_t steps) {
  const std::uint64_t last = steps_ + steps;
  std::vector<Fiber*> stopped;
  while (!is_over()) {
    if (now_ > limit || steps_ > last) return End::too_long;
    while (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      event.happen(event.what, event.number);
    }
    if (is_over()) break;
    Fiber* next = nullptr;
    std::size_t may = runnable_.size();
    while (may > 0 && next == nullptr) {
      const std::size_t which = random.below(may);
      Fiber* const fiber = runnable_[which];
      --may;
      if (fiber->process->stopped_until > now_) {  // behind those that may
        std::swap(runnable_[which], runnable_[may]);
        continue;
      }
      next = fiber;
      runnable_.erase(runnable_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (next == nullptr) {
      if (events_.empty() && idle_.empty()) return End::hang;
      constexpr Time kMoment = 100 * kMicrosecond;
      const Time moment = idle_.empty() ? kNever : now_ + kMoment;
      now_ = std::max(now_, events_.empty() ? moment : std::min(moment, events_.top().at));
      runnable_.insert(runnable_.end(), idle_.begin(), idle_.end());
      idle_.clear();
      continue;
    }
    ++steps_;
    now_ += 50;
    current_ = next;
    switch_to(scheduler_, next->context);
    current_ = nullptr;
  }
  return End::over;
}

// --- the story -----------------------------------------------------------------------------------

void World::tell(const char* format, ...) {
  if (!tells) return;
  const double seconds = static_cast<double>(now_ - 1000 * kSecond) * 1e-9;
  if (current_ != nullptr) {
    std::printf("%12.6f  rank %d, thread %d%s%s: ", seconds, current_->process->number,
                current_->number, current_->name.empty() ? "" : " ", current_->name.c_str());
  } else {
    std::printf("%12.6f  ", seconds);
  }
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

void World::tell_threads() {
  for (const auto& fiber : fibers) {
    if (fiber->state == Fiber::State::ended) continue;
    tell("rank %d, thread %d %s %s", fiber->process->number, fiber->number, fiber->name.c_str(),
         fiber->state == Fiber::State::runnable ? "runs"
         : fiber->ready != nullptr              ? "waits for a descriptor"
         : fiber->address != nullptr            ? "waits for another thread"
                                                : "sleeps");
  }
}

}  // namespace tutti::simulator
