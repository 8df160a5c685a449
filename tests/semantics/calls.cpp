// What a call may be given, and what it touches (docs/semantics.md, Calls): nothing at all, the
// same memory twice, memory at odd addresses; and what is refused, where.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <ranges>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/memory.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr DataType kType = DataType::int32;
using Numbers = std::vector<std::int32_t>;

std::int32_t element(int rank, std::size_t i) {
  return 1000 * (rank + 1) + static_cast<std::int32_t>(i);
}
Numbers elements(int rank, std::size_t count) {
  Numbers x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = element(rank, i);
  return x;
}

// semantics.md: C1
TEST(SemanticsCalls, OfNothingWaitForNobody) {
  for (const int how : {0, 1, 2}) {  // blocking, started, in a group
    std::atomic<int> returned = 0;
    run_thread_ranks(3, [&](Communicator& c) {
      // Each rank in turn: one that waited for another one would wait for ever.
      while (returned.load() != c.rank()) std::this_thread::yield();
      for (const Collective collective :
           {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
            Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter,
            Collective::all_to_all, Collective::all_gather_v, Collective::reduce_scatter_v}) {
        const std::vector<std::size_t> none(3);
        Call call{.collective = collective, .type = kType};
        if (collective == Collective::all_gather_v) call.out_counts = none;
        if (collective == Collective::reduce_scatter_v) call.in_counts = none;
        if (how == 0) c.run(call);
        if (how == 1) c.start(call).wait();
        if (how == 2) group([&] { c.run(call); });
      }
      ++returned;
      c.barrier();
    });
  }
}

// semantics.md: C9
TEST(SemanticsCalls, MessagesOfNothingAreMessages) {
  std::atomic<bool> sent = false;
  run_thread_ranks(2, [&](Communicator& c) {
    if (c.rank() == 0) {
      std::this_thread::sleep_for(20ms);
      sent = true;
      c.send(nullptr, 0, kType, 1);
    } else {
      c.recv(nullptr, 0, kType, 0);
      EXPECT_TRUE(sent.load());
    }
  });
}

// semantics.md: C1
TEST(SemanticsCalls, OfNothingHaveToMatchAndAreChecked) {
  run_thread_ranks(2, [](Communicator& c) {
    float x = 1;
    EXPECT_EQ(error_of([&] { c.broadcast(&x, &x, 0, DataType::float32, 2); }).code(),
              ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { c.run({.collective = Collective::barrier, .count = 1}); }).code(),
              ErrorCode::invalid_argument);
    const Error e = error_of([&] {
      c.all_reduce(&x, &x, c.rank() == 0 ? 0 : 1, DataType::float32);
      c.barrier();
    });
    EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
    EXPECT_EQ(error_of([&] { c.all_reduce(&x, &x, 0, DataType::float32); }).code(),
              ErrorCode::mismatch)
        << "a failed communicator is usable";
  });
}

// semantics.md: C2
TEST(SemanticsCalls, WithAnEmptyBlockAreCallsOfAllRanks) {
  std::atomic<int> arrived = 0;
  run_thread_ranks(3, [&](Communicator& c) {
    const std::vector<std::size_t> counts{2, 0, 3};
    const auto rank = static_cast<std::size_t>(c.rank());
    Numbers all(5), sum(3);
    c.all_gather_v(elements(c.rank(), counts[rank]), all, counts);
    EXPECT_EQ(all, (Numbers{1000, 1001, 3000, 3001, 3002}));
    c.reduce_scatter_v(elements(c.rank(), 5), counts, {}, std::span(sum).first(counts[rank]));
    for (std::size_t i = 0; i < counts[rank]; ++i) {
      EXPECT_EQ(sum[i], 6000 + 3 * static_cast<int>(i + (rank == 2 ? 2 : 0)));
    }
    // An all_to_all_v, whose counts only pairs know, waits even if nobody has anything.
    if (c.rank() == 2) std::this_thread::sleep_for(30ms);
    ++arrived;
    const std::vector<std::size_t> none(3);
    c.all_to_all_v(nullptr, none, {}, nullptr, none, {}, kType);
    EXPECT_EQ(arrived.load(), 3);
  });
}

template <class Vector>
void expect_in_place(Communicator& c) {
  const auto ranks = static_cast<std::size_t>(c.size());
  const auto rank = static_cast<std::size_t>(c.rank());
  const int root = c.size() - 1;
  for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{20'000}}) {
    const std::size_t own = rank * n;
    const Numbers mine = elements(c.rank(), ranks * n);
    Vector apart(ranks * n), x(mine.begin(), mine.end());
    const auto restore = [&] { x.assign(mine.begin(), mine.end()); };
    const auto expect = [&](const char* call, std::size_t begin, std::size_t count) {
      for (std::size_t i = begin; i < begin + count; ++i) {
        ASSERT_EQ(x[i], apart[i]) << call << ", element " << i << " of " << count;
      }
      restore();
    };
    const Vector in(mine.begin(), mine.end());
    c.all_reduce(in.data(), apart.data(), ranks * n, kType);
    c.all_reduce(x.data(), x.data(), ranks * n, kType);
    expect("all_reduce", 0, ranks * n);
    c.all_gather(in.data() + own, apart.data(), n, kType);
    c.all_gather(x.data() + own, x.data(), n, kType);
    expect("all_gather", 0, ranks * n);
    c.reduce_scatter(in.data(), apart.data() + own, n, kType);
    c.reduce_scatter(x.data(), x.data() + own, n, kType);
    expect("reduce_scatter", own, n);
    c.broadcast(in.data(), apart.data(), n, kType, root);
    c.broadcast(x.data(), x.data(), n, kType, root);
    expect("broadcast", 0, n);
    c.reduce(in.data(), apart.data(), n, kType, {}, root);
    c.reduce(x.data(), c.rank() == root ? x.data() : nullptr, n, kType, {}, root);
    if (c.rank() == root) expect("reduce", 0, n);
    restore();
    c.gather(in.data() + own, apart.data(), n, kType, root);
    c.gather(x.data() + own, c.rank() == root ? x.data() : nullptr, n, kType, root);
    if (c.rank() == root) expect("gather", 0, ranks * n);
    restore();
    c.scatter(in.data(), apart.data() + own, n, kType, root);
    c.scatter(x.data(), x.data() + own, n, kType, root);
    if (c.rank() == root) expect("scatter", own, n);
  }
}

// semantics.md: C3
TEST(SemanticsCalls, InPlaceGiveWhatOthersGive) {
  for (const int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [](Communicator& c) {
      expect_in_place<Numbers>(c);
      expect_in_place<std::vector<std::int32_t, Allocator<std::int32_t>>>(c);
    });
  }
}

// semantics.md: C5, C10
TEST(SemanticsCalls, WhoseBuffersOverlapOtherwiseAreRefusedAndMayBeMadeRight) {
  run_thread_ranks(3, [](Communicator& c) {
    const auto rank = static_cast<std::size_t>(c.rank());
    Numbers x = elements(c.rank(), 100), y(100);
    const auto refused = [&](const std::function<void()>& call) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
      EXPECT_CONTAINS(e, "overlap");
    };
    refused([&] { c.all_reduce(x.data(), x.data() + 1, 10, kType); });
    refused([&] { c.all_reduce(x.data() + 9, x.data(), 10, kType); });
    refused([&] { c.all_gather(x.data() + 10 * ((rank + 1) % 3), x.data(), 10, kType); });
    refused([&] { c.reduce_scatter(x.data(), x.data() + 10 * rank + 1, 10, kType); });
    refused([&] { c.broadcast(x.data(), x.data() + 4, 10, kType, c.rank()); });
    refused([&] { c.all_to_all(x.data(), x.data(), 10, kType); });
    refused([&] {
      const std::vector<std::size_t> counts{2, 2, 2}, overlapping{0, 1, 4};
      c.all_to_all_v(x.data(), counts, {}, y.data(), counts, overlapping, kType);
    });
    // Only rank 1's is wrong, and it makes it again: the others have just waited.
    if (c.rank() == 1) refused([&] { c.all_reduce(x.data(), x.data() + 1, 10, kType); });
    c.all_reduce(x.data(), y.data(), 10, kType);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(y[i], 6000 + 3 * static_cast<int>(i));
    // To read the same memory twice is no overlap.
    const std::vector<std::size_t> counts{2, 2, 2}, same(3);
    c.all_to_all_v(x.data(), counts, same, y.data(), counts, {}, kType);
    EXPECT_EQ(Numbers(y.begin(), y.begin() + 6), (Numbers{1000, 1001, 2000, 2001, 3000, 3001}));
  });
}

// semantics.md: C4
TEST(SemanticsCalls, WriteNoOutputOfRanksThatAreNotTheRootAndNoGaps) {
  run_thread_ranks(3, [](Communicator& c) {
    const Numbers marks(60, -1), mine = elements(c.rank(), 60);
    for (const bool window : {false, true}) {
      std::vector<std::int32_t, Allocator<std::int32_t>> in_window(60, -1);
      Numbers in_malloc(60, -1);
      std::int32_t* const out = window ? in_window.data() : in_malloc.data();
      c.reduce(mine.data(), out, 10, kType, {}, 0);
      if (c.rank() != 0) {
        EXPECT_EQ(Numbers(out, out + 60), marks);
      }
      std::fill_n(out, 60, -1);
      c.gather(mine.data(), out, 10, kType, 2);
      if (c.rank() != 2) {
        EXPECT_EQ(Numbers(out, out + 60), marks);
      }
      std::fill_n(out, 60, -1);
      // Blocks of two at elements 1, 11 and 40.
      const std::vector<std::size_t> counts{2, 2, 2}, offsets{11, 1, 40};
      c.all_gather_v(mine.data(), out, counts, offsets, kType);
      Numbers expected(60, -1);
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t i = 0; i < 2; ++i) {
          expected[offsets[r] + i] = element(static_cast<int>(r), i);
        }
      }
      EXPECT_EQ(Numbers(out, out + 60), expected);
    }
    EXPECT_EQ(mine, elements(c.rank(), 60));
  });
}

// semantics.md: C6
TEST(SemanticsCalls, GiveTheSameBitsAtAnyAddress) {
  for (const bool invariant : {false, true}) {
    Options options;
    options.invariant = invariant;
    run_thread_ranks(3, options, [](Communicator& c) {
      constexpr std::size_t kCount = 5003;
      std::vector<std::byte> memory(2 * kCount * 4 + 256);
      std::vector<float> first;
      for (const std::size_t off : {0, 1, 2, 3, 7, 63}) {
        std::byte* const in = memory.data() + off + static_cast<std::size_t>(c.rank());
        std::byte* const out = memory.data() + kCount * 4 + 128 - off;
        for (std::size_t i = 0; i < kCount; ++i) {
          const float x = 1.0F / static_cast<float>(i % 1009 + 3 + static_cast<unsigned>(c.rank()));
          std::memcpy(in + 4 * i, &x, 4);
        }
        c.all_reduce(in, out, kCount, DataType::float32);
        std::vector<float> got(kCount);
        std::memcpy(got.data(), out, kCount * 4);
        if (first.empty()) first = got;
        ASSERT_EQ(std::memcmp(got.data(), first.data(), kCount * 4), 0) << off;
      }
    });
  }
}

// Contiguous memory alone, of the types that Tutti has; or it does not compile.
// semantics.md: C7
static_assert(InputBuffer<Numbers> && OutputBuffer<Numbers&>);
static_assert(!InputBuffer<std::deque<float>> && !InputBuffer<std::list<float>>);
static_assert(!InputBuffer<std::vector<bool>>);
static_assert(!InputBuffer<decltype(std::declval<Numbers&>() | std::views::reverse)>);

// semantics.md: C8
TEST(SemanticsCalls, ThatDoNotMatchFailOnAllRanks) {
  using Body = std::function<void(Communicator&, bool odd, std::int32_t* in, std::int32_t* out)>;
  const std::vector<std::pair<const char*, Body>> cases{
      {"operation",
       [](Communicator& c, bool odd, auto* in, auto* out) {
         odd ? c.all_gather(in, out, 4, kType) : c.all_reduce(in, out, 4, kType);
       }},
      {"count", [](Communicator& c, bool odd, auto* in,
                   auto* out) { c.all_reduce(in, out, odd ? 3 : 4, kType); }},
      {"type", [](Communicator& c, bool odd, auto* in,
                  auto* out) { c.all_gather(in, out, 4, odd ? DataType::float32 : kType); }},
      {"operator",
       [](Communicator& c, bool odd, auto* in, auto* out) {
         c.all_reduce(in, out, 4, kType, odd ? ReduceKind::min : ReduceKind::max);
       }},
      {"root", [](Communicator& c, bool odd, auto* in,
                  auto* out) { c.reduce(in, out, 4, kType, {}, odd ? 1 : 0); }},
      {"compressed",
       [](Communicator& c, bool odd, auto* in, auto* out) {
         c.run({.collective = Collective::all_reduce,
                .in = in,
                .out = out,
                .count = 4,
                .type = DataType::float32,
                .compressed = odd});
       }},
      {"label",
       [](Communicator& c, bool odd, auto* in, auto* out) {
         Call call{.collective = Collective::all_reduce, .in = in, .out = out, .count = 4};
         call.label = odd ? 5 : 6;
         c.run(call);
       }},
  };
  for (const int ranks : {2, 3}) {
    for (const auto& [what, body] : cases) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", what, ranks));
      run_thread_ranks(ranks, [&, &body = body](Communicator& c) {
        Numbers in(4), out(4 * static_cast<std::size_t>(ranks));
        const Error e = error_of([&] {
          body(c, c.rank() == ranks - 1, in.data(), out.data());
          c.barrier();
        });
        EXPECT_EQ(e.code(), ErrorCode::mismatch) << c.rank() << ": " << e.what();
      });
    }
  }
}

// semantics.md: C9
TEST(SemanticsCalls, OfMessagesHaveTheSameCountAndTypeOnBothSides) {
  for (const auto& [sent, expected] :
       {std::pair{4, 8}, std::pair{8, 4}, std::pair{70'000, 8}, std::pair{0, 8}, std::pair{8, 0}}) {
    for (const bool type : {false, true}) {
      run_thread_ranks(2, [&, n = sent, m = expected](Communicator& c) {
        Numbers x(70'000);
        const auto count = static_cast<std::size_t>(type || c.rank() == 0 ? n : m);
        const Error e = error_of([&] {
          if (c.rank() == 0) c.send(x.data(), count, kType, 1);
          if (c.rank() == 1) c.recv(x.data(), count, type ? DataType::float32 : kType, 0);
          c.barrier();
        });
        EXPECT_EQ(e.code(), ErrorCode::mismatch) << c.rank() << ": " << e.what();
      });
    }
  }
}

// semantics.md: C10
TEST(SemanticsCalls, ThatOneRankIsRefusedLetTheOthersWait) {
  Options options;
  options.timeout = 500ms;
  run_thread_ranks(2, options, [](Communicator& c) {
    Numbers x(4);
    const Error e =
        error_of([&] { c.all_reduce(c.rank() == 1 ? nullptr : x.data(), x.data(), 4, kType); });
    EXPECT_EQ(e.code(), c.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::timed_out);
    if (c.rank() == 0) {
      EXPECT_CONTAINS(e, "a call of rank 1 was refused: all_reduce: the input");
    }
    if (c.rank() == 1) std::this_thread::sleep_for(1s);
  });
}

}  // namespace
}  // namespace tutti::test
