// When a call has thrown, its buffers are the caller's again: no other rank of the host reads or
// writes them any more. The ranks are threads, once as they are and once as if they were processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/comm/started.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr int kUntouchedRanks = 3;
constexpr std::size_t kLongCall = std::size_t{1} << 20;  // the calls take about a millisecond
constexpr float kMark = -12345;

using Floats = std::vector<float, Allocator<float>>;

Call call_of(Collective collective, Floats& in, Floats& out) {
  Call call;
  call.collective = collective;
  call.in = in.data();
  call.out = out.data();
  call.type = DataType::float32;
  const bool blocks = collective == Collective::all_gather ||
                      collective == Collective::all_to_all ||
                      collective == Collective::reduce_scatter;
  call.count = blocks ? kLongCall / kUntouchedRanks : kLongCall;
  return call;
}

class Untouched : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, Untouched, testing::Bool(), test::together_or_apart);

/// Calls in a loop until rank 0 aborts; then each rank marks its buffers, and looks at them a
/// little later.
void abort_and_look(Collective collective, bool started, std::chrono::microseconds after) {
  std::vector<Communicator> all = Communicator::create_local(kUntouchedRanks);
  std::vector<std::jthread> ranks;
  for (Communicator& c : all) {
    ranks.emplace_back([&, rank = &c] {
      Floats in(kLongCall, 1), out(kLongCall, 0);
      const Call call = call_of(collective, in, out);
      try {
        for (;;) {
          if (started) {
            rank->start(call).wait();
          } else {
            rank->run(call);
          }
        }
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::aborted) << e.what();
      }
      std::ranges::fill(out, kMark);
      std::this_thread::sleep_for(5ms);
      EXPECT_EQ(std::ranges::count(out, kMark), static_cast<std::ptrdiff_t>(kLongCall))
          << name(collective) << (started ? ", started" : "");
    });
  }
  std::this_thread::sleep_for(20ms + after);
  all[0].abort();
}

TEST_P(Untouched, TheOutputOfACallThatHasThrown) {
  for (int round = 0; round < 12; ++round) {
    const std::chrono::microseconds after(137 * round);
    for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
      abort_and_look(collective, false, after);
      abort_and_look(collective, true, after);
    }
  }
}

// They are unmapped at once.
TEST_P(Untouched, MemoryThatIsFreedWhenItsCallHasThrown) {
  for (int round = 0; round < 10; ++round) {
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather,
                                        Collective::all_to_all, Collective::reduce_scatter}) {
      std::vector<Communicator> all = Communicator::create_local(kUntouchedRanks);
      std::vector<std::jthread> ranks;
      for (Communicator& c : all) {
        ranks.emplace_back([&, rank = &c] {
          auto in = std::make_unique<Floats>(kLongCall, 1),
               out = std::make_unique<Floats>(kLongCall, 0);
          const Call call = call_of(collective, *in, *out);
          try {
            for (;;) rank->run(call);
          } catch (const Error&) {
            in.reset();
            out.reset();
          }
        });
      }
      std::this_thread::sleep_for(10ms + std::chrono::microseconds(211 * round));
      all[0].abort();
    }
  }
}

}  // namespace
}  // namespace tutti
