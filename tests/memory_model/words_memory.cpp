// Windows, memory that others touch, and the turns of threads. docs/memory-model.md says which
// program each word has.
#include <atomic>
#include <memory>

#include "core/asymmetric_fence.h"
#include "core/turns.h"
#include "tests/memory_model/words.h"
#include "tests/memory_model/zeros.h"
#include "transport/host/control_block.h"
#include "transport/host/signal_board.h"

namespace tutti::model {
namespace {

// --- Windows and memory that others touch --------------------------------------------------------

Program signals() {
  return [] {
    struct Shared {
      std::shared_ptr<SharedMemory> memory =
          SharedMemory::create("tutti-model", SignalBoard::bytes(1));
      SignalBoard board{memory};
      std::uint64_t data[2]{};
    };
    const auto s = std::make_shared<Shared>();
    return Execution{{[s] {
                        for (std::uint64_t n = 0; n < 2; ++n) {
                          s->data[n] = n + 7;
                          s->board.place(0, 0).store(8 * n, std::memory_order_relaxed);
                          s->board.signal(0, 0).store(n + 1, std::memory_order_release);
                        }
                        s->board.set_state(WindowState::left, std::memory_order_release);
                      },
                      [s] {
                        const bool left =
                            s->board.state(std::memory_order_acquire) == WindowState::left;
                        const auto count = s->board.signal(0, 0).load(std::memory_order_acquire);
                        require(!left || count == 2, "a rank that has left, without its signals");
                        for (std::uint64_t n = 0; n < count; ++n) {
                          require(s->data[n] == n + 7, "the data are not there");
                        }
                      }}};
  };
}

// A window ends while another rank writes to it: its owner waits, or the writer sees the end.
template <bool kLight>
Program a_window_that_ends() {
  return [] {
    struct Shared {
      std::shared_ptr<SharedMemory> memory =
          SharedMemory::create("tutti-model", SignalBoard::bytes(1));
      SignalBoard board{memory};
      int data = 0;
      Shared() { board.set_state(WindowState::open, std::memory_order_relaxed); }
    };
    const auto s = std::make_shared<Shared>();
    return Execution{
        {[s] {
           announce(s->board.writing(0), kLight);
           if (s->board.state(std::memory_order_seq_cst) == WindowState::open) {
             s->data = 1;
           }
           s->board.writing(0).store(0, std::memory_order_release);
         },
         [s] {
           s->board.set_state(WindowState::ended, std::memory_order_release);
           heavy_fence();
           await([&] { return s->board.writing(0).load(std::memory_order_acquire) == 0; });
           s->data = 2;  // the owner's again
         }}};
  };
}

// A communicator fails while another rank touches this one's memory.
Program memory_that_is_taken_back() {
  return [] {
    struct Shared {
      ControlBlock block;
      int data;
    };
    const auto s = zeros<Shared>();
    return Execution{{[s] {
                        announce(s->block.touches, true);
                        if (!s->block.failure.is_there()) s->data = 1;
                        s->block.touches.store(0, std::memory_order_release);
                      },
                      [s] {
                        s->block.failure.write({ErrorCode::peer_lost, 1, "", false});
                        heavy_fence();
                        await(
                            [&] { return s->block.touches.load(std::memory_order_acquire) == 0; });
                        s->data = 2;
                      }}};
  };
}

// --- Threads -------------------------------------------------------------------------------------

template <int kThreads, int kTurns>
Program turns() {
  return [] {
    struct Shared {
      Turns turns{[] {}, [] { return Deadline::max(); }};
      int data = 0;
    };
    const auto s = std::make_shared<Shared>();
    const auto takes = [s] {
      for (int n = 0; n < kTurns; ++n) {
        s->turns.lock();
        ++s->data;
        s->turns.unlock();
      }
    };
    Execution e;
    for (int t = 0; t < kThreads; ++t) e.threads.emplace_back(takes);
    e.after = [s] { require(s->data == kThreads * kTurns, "a turn is lost"); };
    return e;
  };
}

// A thread that gives up waiting for the first one's turn, and comes again: nothing but the end of
// that turn says that it may have the next one.
Program a_thread_that_gives_up_and_comes_again() {
  return [] {
    struct Shared {
      Turns turns{[] {}, [] { return Deadline::max(); }};
      std::atomic<bool> tried{false};  // relaxed: it says when, and hands on nothing
      int data = 0, of_second = 0;
    };
    const auto s = std::make_shared<Shared>();
    const auto comes = [s](Deadline deadline) {
      try {
        s->turns.lock(deadline);
      } catch (const Error&) {
        return;
      }
      ++s->data;
      ++s->of_second;
      s->turns.unlock();
    };
    return Execution{{[s] {
                        s->turns.lock();
                        ++s->data;
                        await([&] { return s->tried.load(std::memory_order_relaxed); });
                        s->turns.unlock();
                      },
                      [s, comes] {
                        comes(Deadline{});  // which is over
                        s->tried.store(true, std::memory_order_relaxed);
                        comes(Deadline::max());
                      }},
                     [s] { require(s->data == 1 + s->of_second, "a turn is lost"); }};
  };
}

}  // namespace

std::vector<Words> words_of_memory() {
  return {
      {"Signals", signals},
      {"AWindowThatEnds", a_window_that_ends<true>},
      {"AWindowThatEndsWithoutMembarrier", a_window_that_ends<false>},
      {"MemoryThatIsTakenBack", memory_that_is_taken_back},
      {"TurnsOfTwo", turns<2, 2>},
      {"TurnsOfThree", turns<3, 2>},
      {"AThreadThatGivesUpAndComesAgain", a_thread_that_gives_up_and_comes_again},
  };
}

}  // namespace tutti::model
