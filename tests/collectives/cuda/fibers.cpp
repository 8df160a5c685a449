#include "tests/collectives/cuda/fibers.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// What the fibers share here is touched by one of them at a time, which only this thread knows.
#define TUTTI_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define TUTTI_UNSEEN
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::test {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

/// Stacks are kept: a test makes a hundred thousand fibers.
struct Stacks {
  std::mutex mutex;
  std::vector<std::byte*> free;

  static Stacks& all() {
    static auto* const instance = new Stacks;
    return *instance;
  }
  std::byte* take() {
    {
      const std::lock_guard lock(mutex);
      if (!free.empty()) {
        std::byte* const stack = free.back();
        free.pop_back();
        return stack;
      }
    }
    void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("the stack of a fiber");
      std::abort();
    }
    return static_cast<std::byte*>(memory);
  }
  void give(std::byte* stack) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, kStackBytes);
#endif
    const std::lock_guard lock(mutex);
    free.push_back(stack);
  }
};

}  // namespace

Fibers::Fibers(std::uint32_t count, std::uint64_t seed)
    : count_(count),
      random_(seed * 0x9E3779B97F4A7C15ULL | 1),
      current_(count),
      fibers_(new Fiber[count + 1]{}) {
  if (count > kMost) std::abort();
}

Fibers::~Fibers() { delete[] fibers_; }

TUTTI_UNSEEN std::uint64_t Fibers::random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_ * 0x2545F4914F6CDD1DULL >> 16;
}

/// By itself, as getcontext() is one of those that may return twice to the compiler.
void Fibers::prepare(Fiber& f) {
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  f.stack = Stacks::all().take();
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStackBytes;
  f.context.uc_link = nullptr;
  makecontext(&f.context, reinterpret_cast<void (*)()>(&Fibers::begin), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
#if defined(__SANITIZE_THREAD__)
  f.sanitizer = __tsan_create_fiber(0);
#endif
}

void Fibers::run(const std::function<void(std::uint32_t)>& body) {
  body_ = &body;
  left_ = count_;
  for (std::uint32_t i = 0; i < count_; ++i) prepare(fibers_[i]);
#if defined(__SANITIZE_THREAD__)
  fibers_[count_].sanitizer = __tsan_get_current_fiber();
  for (std::uint32_t i = 0; i < count_; ++i) __tsan_release(&fibers_[i].ended);
#endif
  next();
  for (std::uint32_t i = 0; i < count_; ++i) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(&fibers_[i].stack);
    __tsan_destroy_fiber(fibers_[i].sanitizer);
#endif
    Stacks::all().give(fibers_[i].stack);
  }
}

TUTTI_UNSEEN void Fibers::begin(unsigned high, unsigned low) {
  auto* const self =
      reinterpret_cast<Fibers*>(static_cast<std::uintptr_t>(high) << 32 | std::uintptr_t{low});
  self->arrived();
  const std::uint32_t i = self->current_;
  Fiber& f = self->fibers_[i];
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&f.ended);
#endif
  (*self->body_)(i);
#if defined(__SANITIZE_THREAD__)
  __tsan_release(&f.stack);
#endif
  f.ended = true;
  --self->left_;
  self->next();
}

TUTTI_UNSEEN void Fibers::yield() {
  // Once a round: what is waited for comes from another thread.
  if (++yields_ % count_ == 0) sched_yield();
  next();
}

/// Goes on with one that can; with the thread itself, when all have ended.
TUTTI_UNSEEN void Fibers::next() {
  if (left_ == 0) return switch_to(count_);
  std::uint32_t ready = 0;
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (!fibers_[i].ended && fibers_[i].waits_for == nullptr) ++ready;
  }
  if (ready == 0) {
    std::fprintf(stderr, "the threads of a block wait for each other at different places\n");
    std::abort();
  }
  auto pick = static_cast<std::uint32_t>(random() % ready);
  std::uint32_t i = 0;
  for (;; ++i) {
    if (fibers_[i].ended || fibers_[i].waits_for != nullptr) continue;
    if (pick-- == 0) break;
  }
  if (i != current_) switch_to(i);
}

TUTTI_UNSEEN void Fibers::switch_to(std::uint32_t to) {
  Fiber& from = fibers_[current_];
  Fiber& other = fibers_[to];
  current_ = to;
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(other.sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* const stack = to == count_ ? thread_stack_ : other.stack;
  __sanitizer_start_switch_fiber(from.ended ? nullptr : &from.fake_stack, stack,
                                 to == count_ ? thread_stack_bytes_ : kStackBytes);
#endif
  swapcontext(&from.context, &other.context);
  arrived();
}

/// After a switch.
TUTTI_UNSEEN void Fibers::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fibers_[current_].fake_stack, &stack, &bytes);
  // The first switch is from the thread's own stack.
  if (thread_stack_ == nullptr) {
    thread_stack_ = stack;
    thread_stack_bytes_ = bytes;
  }
#endif
}

TUTTI_UNSEEN void Fibers::meet(Meeting& m, std::uint32_t count, bool said) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(&m.order);
#endif
  m.all = m.all && said;
  m.any = m.any || said;
  if (++m.here < count) {
    fibers_[current_].waits_for = &m;
    next();
  } else {
    m.all_said = m.all;
    m.any_said = m.any;
    m.here = 0;
    m.all = true;
    m.any = false;
    for (std::uint32_t i = 0; i < count_; ++i) {
      if (fibers_[i].waits_for == &m) fibers_[i].waits_for = nullptr;
    }
  }
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&m.order);
#endif
}

}  // namespace tutti::test
