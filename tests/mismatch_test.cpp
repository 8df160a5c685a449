// Calls that do not match across ranks: an error on every rank, which names both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "tests/thread_ranks.h"

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
TEST(Mismatch, OfARootThatWasRightForLong) {
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

}  // namespace
}  // namespace tutti
