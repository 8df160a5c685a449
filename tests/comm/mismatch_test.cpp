// Calls that do not match across ranks: an error on every rank, which names both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::error_of;
using test::run_thread_ranks;

/// Each rank makes its own call, then a barrier: every rank must see a mismatch that names two
/// ranks.
void expect_mismatch(int ranks, const std::function<void(Communicator&)>& calls) {
  run_thread_ranks(ranks, [&](Communicator& c) {
    const Error e = error_of([&] {
      calls(c);
      c.barrier();
    });
    EXPECT_EQ(e.code(), ErrorCode::mismatch) << "rank " << c.rank() << ": " << e.what();
    EXPECT_NE(std::string(e.what()).find("rank"), std::string::npos);
    EXPECT_EQ(error_of([&] { c.barrier(); }).code(), ErrorCode::mismatch) << "stays failed";
  });
}

TEST(Mismatch, IsATypedErrorOnEveryRank) {
  std::vector<float> a(4096), b(4096);
  const auto odd = [](Communicator& c) { return c.rank() == c.size() - 1; };
  for (const int n : {2, 3, 4}) {
    const std::vector<std::function<void(Communicator&, float*, float*)>> cases = {
        [&](Communicator& c, float* in, float* out) {  // operation
          odd(c) ? c.all_reduce(in, out, 4, DataType::float32)
                 : c.broadcast(in, out, 4, DataType::float32, 0);
        },
        [&](Communicator& c, float* in, float* out) {  // count
          c.all_reduce(in, out, odd(c) ? 5 : 4, DataType::float32);
        },
        [&](Communicator& c, float* in, float* out) {  // count, one of them nothing
          c.all_reduce(in, out, odd(c) ? 0 : 4, DataType::float32);
        },
        [&](Communicator& c, float* in, float* out) {  // large, so that nobody gets away with slots
          c.all_gather(in, out, odd(c) ? 600 : 601, DataType::float32);
        },
        [&](Communicator& c, float* in, float* out) {  // type
          c.all_reduce(in, out, 4, odd(c) ? DataType::int32 : DataType::float32);
        },
        [&](Communicator& c, float* in, float* out) {  // operator
          c.all_reduce(in, out, 4, DataType::float32, odd(c) ? ReduceKind::max : ReduceKind::sum);
        },
        [&](Communicator& c, float* in, float* out) {  // root
          c.broadcast(in, out, 4, DataType::float32, odd(c) ? 1 : 0);
        },
        [&](Communicator& c, float* in, float* out) {  // root of a reduction
          c.reduce(in, out, 4, DataType::float32, {}, odd(c) ? 1 : 0);
        },
        [&](Communicator& c, float* in, float* out) {  // what a binding knows of it
          Call call{.collective = Collective::all_gather, .in = in, .out = out, .count = 4};
          call.label = odd(c) ? 2047 : 1;
          c.run(call);
        },
        [&](Communicator& c, float* in, float* out) {  // the same of calls that were made before
          for (const int label : {1, 2, 1, 2, odd(c) ? 1 : 2}) {
            Call call{.collective = Collective::all_reduce, .in = in, .out = out, .count = 4};
            call.label = static_cast<std::uint16_t>(label);
            c.run(call);
          }
        },
        [&](Communicator& c, float* in, float* out) {  // order
          if (odd(c)) c.barrier();
          c.all_reduce(in, out, 4, DataType::float32);
          if (!odd(c)) c.barrier();
        },
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE("case " + std::to_string(i) + ", ranks " + std::to_string(n));
      expect_mismatch(n, [&](Communicator& c) {
        std::vector<float> in(4096), out(4096);
        cases[i](c, in.data(), out.data());
      });
    }
  }
}

// A root need not hear from anybody, and a rank that repeats a call does not look at the others'.
TEST(Mismatch, OfARootThatWasRightForLongIsFound) {
  for (const int n : {2, 3}) {
    for (const bool reduces : {false, true}) {
      for (const int late : {0, n - 1}) {
        SCOPED_TRACE(fmt::format("{} ranks, reduces {}, rank {} late", n, reduces, late));
        run_thread_ranks(n, [&](Communicator& c) {
          std::vector<float> in(16), out(16);
          const auto call = [&](int root) {
            reduces ? c.reduce(in.data(), out.data(), 16, DataType::float32, {}, root)
                    : c.broadcast(in.data(), out.data(), 16, DataType::float32, root);
          };
          for (int k = 0; k < 200; ++k) call(0);
          c.barrier();
          const Error e = error_of([&] {
            for (int k = 0; k < 200; ++k) call(0);
            if (c.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
            call(c.rank() == n - 1 ? n - 1 : 0);
            for (int k = 0; k < 20; ++k) call(0);
            c.barrier();
          });
          EXPECT_EQ(e.code(), ErrorCode::mismatch) << "rank " << c.rank() << ": " << e.what();
          EXPECT_NE(std::string(e.what()).find("#402 (float32 x 16"), std::string::npos)
              << e.what();
          EXPECT_NE(std::string(e.what()).find("root 0"), std::string::npos) << e.what();
          EXPECT_NE(std::string(e.what()).find(fmt::format("root {}", n - 1)), std::string::npos)
              << e.what();
        });
      }
    }
  }
}

TEST(Mismatch, BlamesTheRankThatDiffersFromMost) {
  for (const int odd : {0, 2, 3}) {
    run_thread_ranks(4, [&](Communicator& c) {
      // By then the others are known to agree.
      if (c.rank() == odd) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      std::vector<float> x(8);
      const Error e = error_of([&] {
        c.all_reduce(x.data(), x.data(), c.rank() == odd ? 5 : 4, DataType::float32);
        c.barrier();
      });
      EXPECT_EQ(e.rank(), odd) << e.what();
      EXPECT_NE(std::string(e.what()).find("(as 2 others)"), std::string::npos) << e.what();
    });
  }
}

/// What every rank is told when each has made its own call, and then a barrier.
void expect_told(int ranks, ErrorCode code, const std::vector<std::string>& parts,
                 const std::function<void(Communicator&)>& calls) {
  run_thread_ranks(ranks, [&](Communicator& c) {
    const Error e = error_of([&] {
      calls(c);
      c.barrier();
    });
    EXPECT_EQ(e.code(), code) << "rank " << c.rank() << ": " << e.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
          << "rank " << c.rank() << " is not told \"" << part << "\": " << e.what();
    }
  });
}

TEST(Mismatch, OfASplitSaysSo) {
  for (const int n : {2, 3}) {
    expect_told(n, ErrorCode::mismatch, {"called split #1", "called barrier #1"},
                [&](Communicator& c) {
                  if (c.rank() != n - 1) c.split(0, 0);
                });
    // Its exchange could be a user's own call.
    expect_told(n, ErrorCode::mismatch, {"called split #1", "called all_gather #1"},
                [&](Communicator& c) {
                  std::vector<char> in(24), out(24 * 3);
                  if (c.rank() != n - 1) {
                    c.split(0, 0);
                  } else {
                    c.all_gather(in.data(), out.data(), 24, DataType::uint8);
                  }
                });
  }
}

TEST(Mismatch, OfUnevenCountsNamesBothCounts) {
  using Counts = std::vector<std::size_t>;
  // Rank 0 sends `sent` to rank 2, which expects `expected`.
  for (const auto& [sent, expected] :
       {std::pair{4, 5}, std::pair{5, 4}, std::pair{0, 1}, std::pair{1, 0}, std::pair{70'000, 4},
        std::pair{4, 70'000}, std::pair{0, 70'000}, std::pair{70'000, 0},
        // 48 bytes are as many as a signal has; from 8 KiB on blocks go through windows.
        std::pair{12, 70'000}, std::pair{70'000, 12}, std::pair{70'000, 80'000},
        std::pair{80'000, 70'000}}) {
    const std::string told =
        fmt::format("rank 0 sends {} elements to rank 2, which expects {} from it", sent, expected);
    SCOPED_TRACE(told);
    expect_told(3, ErrorCode::mismatch, {"all_to_all_v #1 (float32)", told}, [&](Communicator& c) {
      std::vector<float> mine(300'000), got(300'000);
      Counts to(3, 3), from(3, 3);
      if (c.rank() == 0) to[2] = static_cast<std::size_t>(sent);
      if (c.rank() == 2) from[0] = static_cast<std::size_t>(expected);
      c.all_to_all_v(mine.data(), to, {}, got.data(), from, {}, DataType::float32);
    });
  }
  for (const Counts& odd : {Counts{2, 4, 3}, Counts{2, 4, 4}, Counts{0, 0, 0}}) {
    const std::size_t at = odd[0] == 0 ? 0 : 1;
    const std::string count = fmt::format("the count for rank {} is {} on rank ", at, odd[at]);
    const std::string other = fmt::format("but {} on rank ", odd[at]);
    run_thread_ranks(3, [&](Communicator& c) {
      std::vector<float> mine(10), got(10);
      const Counts counts = c.rank() == 2 ? odd : Counts{2, 3, 4};
      for (const bool gathers : {true, false}) {
        Communicator part = c.split(0, 0);
        const Error e = error_of([&] {
          if (gathers) {
            part.all_gather_v(mine.data(), got.data(), counts, {}, DataType::float32);
          } else {
            part.reduce_scatter_v(mine.data(), counts, {}, got.data(), DataType::float32);
          }
          part.barrier();
        });
        const std::string what = e.what();
        EXPECT_EQ(e.code(), ErrorCode::mismatch) << what;
        EXPECT_TRUE(what.find(count) != what.npos || what.find(other) != what.npos) << what;
        EXPECT_NE(what.find(gathers ? "all_gather_v #1" : "reduce_scatter_v #1"), what.npos);
      }
    });
  }
}

TEST(Mismatch, AfterARefusedCallSaysWhy) {
  for (const int n : {2, 3}) {
    const std::string why = fmt::format(
        "a call of rank {} was refused: all_reduce: the input is null, but rank {} has 16 bytes to "
        "read",
        n - 1, n - 1);
    const auto all_reduce = [n](Communicator& c, bool right) {
      std::vector<float> in(4), out(4);
      const bool null = c.rank() == n - 1 && !right;
      c.all_reduce(null ? nullptr : in.data(), out.data(), 4, DataType::float32);
    };
    // It goes on with its next call.
    expect_told(n, ErrorCode::mismatch, {"called barrier #2", why}, [&](Communicator& c) {
      all_reduce(c, true);
      const Error e = error_of([&] { all_reduce(c, false); });
      EXPECT_EQ(e.code(), c.rank() == n - 1 ? ErrorCode::invalid_argument : e.code());
      if (c.rank() != n - 1 && e.code() != ErrorCode{}) throw e;
    });
    // It gives up.
    run_thread_ranks(n, [&](Communicator& c) {
      const Error e = error_of([&] { all_reduce(c, false); });
      if (c.rank() == n - 1) return c.destroy();
      EXPECT_EQ(e.code(), ErrorCode::peer_lost);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("shrink"), std::string::npos) << e.what();
    });
    // It makes the call right: nobody ever hears of it.
    run_thread_ranks(n, [&](Communicator& c) {
      if (c.rank() == n - 1) {
        EXPECT_EQ(error_of([&] { all_reduce(c, false); }).code(), ErrorCode::invalid_argument);
      }
      all_reduce(c, true);
      const Error e = error_of([&] {
        if (c.rank() == 0) c.barrier();
        all_reduce(c, true);
        c.barrier();
      });
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_EQ(std::string(e.what()).find("refused"), std::string::npos) << e.what();
    });
  }
  // Also what only waiting shows: nobody numbers messages.
  Options options;
  options.timeout = std::chrono::milliseconds(300);
  run_thread_ranks(2, options, [](Communicator& c) {
    float x = 0;
    if (c.rank() == 1) {
      EXPECT_EQ(error_of([&] { c.send(nullptr, 1, DataType::float32, 0); }).code(),
                ErrorCode::invalid_argument);
      EXPECT_EQ(error_of([&] { c.recv(&x, 1, DataType::float32, 0); }).code(),
                ErrorCode::timed_out);
      return;
    }
    const Error e = error_of([&] { c.recv(&x, 1, DataType::float32, 1); });
    EXPECT_NE(std::string(e.what()).find("a call of rank 1 was refused: send: "), std::string::npos)
        << e.what();
  });
}

// The others wait in vain for a rank after its message to itself was refused.
TEST(Mismatch, AfterAMessageToOneselfSaysWhy) {
  for (const bool in_a_group : {false, true}) {
    Options options;
    options.timeout = std::chrono::milliseconds(300);
    std::vector<Communicator> comms = Communicator::create_local(2, options);
    std::int32_t x = 1;
    const Error refused = error_of([&] {
      if (!in_a_group) return comms[1].send(&x, 1, DataType::int32, 1);
      group([&] {
        comms[1].barrier();
        comms[1].send(&x, 1, DataType::int32, 1);
      });
    });
    EXPECT_EQ(refused.code(), ErrorCode::invalid_usage) << refused.what();
    const Error waiting = error_of([&] { comms[0].barrier(); });
    EXPECT_NE(std::string(waiting.what()).find("a call of rank 1 was refused"), std::string::npos)
        << waiting.what();
    EXPECT_NE(std::string(waiting.what()).find("itself"), std::string::npos) << waiting.what();
  }
}

// Two ranks that use two communicators in another order wait for each other for ever.
TEST(Mismatch, OfTheOrderOfCommunicatorsIsHintedAt) {
  Options options;
  options.timeout = std::chrono::milliseconds(800);  // what was said before is old by then
  std::barrier both(2);
  run_thread_ranks(2, options, [&](Communicator& c) {
    Communicator other = c.split(0, 0, options);
    const Error e = error_of([&] { (c.rank() == 0 ? c : other).barrier(); });
    both.arrive_and_wait();  // nobody leaves before
    EXPECT_EQ(e.code(), ErrorCode::timed_out);
    const std::string what = e.what();
    EXPECT_NE(what.find("that rank is itself waiting, in another communicator: waiting in step"),
              what.npos)
        << what;
    EXPECT_NE(what.find("in the same order"), what.npos) << what;
  });
  // A rank that is late is just that.
  run_thread_ranks(2, options, [&](Communicator& c) {
    Communicator other = c.split(0, 0, options);
    other.barrier();
    const Error e = error_of([&] {
      if (c.rank() == 0) c.barrier();
    });
    both.arrive_and_wait();
    EXPECT_EQ(std::string(e.what()).find("another communicator"), std::string::npos) << e.what();
  });
}

TEST(Mismatch, OfPointToPointNamesBothSides) {
  run_thread_ranks(2, [](Communicator& c) {
    std::vector<double> x(100);
    const Error e = error_of([&] {
      if (c.rank() == 0) {
        c.send(x.data(), 10, DataType::float32, 1);
        c.barrier();
      } else {
        c.recv(x.data(), 12, DataType::float64, 0);
      }
    });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(e.what()).find("float32 x 10"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("float64 x 12"), std::string::npos) << e.what();
  });
}

// Short ones and long ones; those that repeat the message before, and those that do not.
TEST(Mismatch, OfTheLabelsOfMessagesNamesBoth) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{1} << 20}) {
    for (const bool repeats : {false, true}) {
      run_thread_ranks(2, [&](Communicator& c) {
        std::vector<float> x(count);
        const bool sends = c.rank() == 0;
        const auto message = [&](int label) {
          Call call{.collective = Collective::send_recv, .count = count, .type = DataType::float32};
          if (sends) {
            call.in = x.data();
          } else {
            call.out = x.data();
          }
          call.peer = 1 - c.rank();
          call.sends = sends;
          call.label = static_cast<std::uint16_t>(label);
          c.run(call);
        };
        for (const int label : {7, 2047, 0, 7}) {
          if (sends) x.assign(count, static_cast<float>(label));
          message(label);
          EXPECT_EQ(x.back(), static_cast<float>(label));
        }
        const Error e = error_of([&] {
          message(repeats || sends ? 7 : 8);
          if (repeats) message(sends ? 7 : 8);
          c.barrier();
        });
        EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
        EXPECT_NE(std::string(e.what()).find("label 8 from rank 0"), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("label 7"), std::string::npos) << e.what();
      });
    }
  }
}

}  // namespace
}  // namespace tutti
