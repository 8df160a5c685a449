// The threads of an emulated thread block: fibers of one thread of this process, which run in an
// order that a seed decides, and only change places where they wait. To ThreadSanitizer each is a
// thread of its own, ordered after others by nothing but meet(); so it sees a barrier that is
// missing. Fibers that wait at different places for ever end the process: threads of a warp that
// have parted.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti::test {

class Fibers {
 public:
  static constexpr std::uint32_t kMost = 128;

  Fibers(std::uint32_t count, std::uint64_t seed);
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers();

  /// `body(i)` for each fiber i; until all have ended.
  void run(const std::function<void(std::uint32_t)>& body);

  /// Lets another one run, or another thread of the process.
  void yield();

  /// Where some of them wait for each other.
  struct Meeting {
    std::uint32_t here = 0;
    bool all = true, any = false;  // of what those here have said
    bool all_said = true, any_said = false;
    char order = 0;  // for ThreadSanitizer
  };
  /// Until `count` of them have come; what all of them have said is then in the meeting.
  void meet(Meeting& meeting, std::uint32_t count, bool said);

  /// A number from a sequence that the seed decides.
  std::uint64_t random();

 private:
  struct Fiber {
    ucontext_t context;
    std::byte* stack;
    void* sanitizer;   // ThreadSanitizer's
    void* fake_stack;  // AddressSanitizer's
    const Meeting* waits_for;
    bool ended;
  };

  void prepare(Fiber& fiber);
  static void begin(unsigned high, unsigned low);
  void next();
  void switch_to(std::uint32_t to);
  void arrived();

  std::uint32_t count_;
  std::uint64_t random_;
  std::uint32_t current_;
  std::uint32_t left_ = 0;
  std::uint32_t yields_ = 0;
  const std::function<void(std::uint32_t)>* body_ = nullptr;
  Fiber* fibers_;  // and the thread's own, the last
  const void* thread_stack_ = nullptr;
  std::size_t thread_stack_bytes_ = 0;
};

}  // namespace tutti::test
