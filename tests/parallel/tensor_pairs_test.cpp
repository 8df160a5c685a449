// Conjugate pairs of tensor parallelism: operations are exact, and backwards are the derivatives of
// their forwards.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "parallel/tensor/pairs.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::tensor {
namespace {

using test::run_thread_ranks;

constexpr DataType kPairType = DataType::float64;

/// Number i of a whole tensor, as rank `rank` has it: integers, so that sums are exact.
double number(std::size_t i, int rank) {
  return static_cast<double>((i * 7 + 3) * static_cast<std::size_t>(rank + 1));
}

TEST(TensorPairs, MoveAndAddWhatTheySay) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Mapper mapper(axis);
      const auto p = static_cast<std::size_t>(ranks), self = static_cast<std::size_t>(comm.rank());
      double all = 0;  // the sum of what ranks multiply by
      for (int r = 0; r < ranks; ++r) all += r + 1;
      for (const Extent e : {Extent{1, 2 * p, 5}, Extent{3, p, 1}, Extent{4, 3 * p, 2},
                             Extent{2, 0, 3}, Extent{1, p, 1}}) {
        const std::size_t share = e.length / p;
        std::vector<double> whole(e.count()), slice(e.count() / p);
        // Where the rank's slice is in the whole.
        const auto place = [&](std::size_t i, std::size_t rank) {
          const std::size_t outer = i / (share * e.inner), rest = i % (share * e.inner);
          return (outer * e.length + rank * share) * e.inner + rest;
        };
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = number(i, comm.rank());
        std::vector<double> sum(whole.size()), part(slice.size(), -1), back(whole.size(), -1);
        mapper.run(Operation::all_reduce, whole.data(), sum.data(), e, kPairType);
        for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], number(i, 0) * all);
        mapper.run(Operation::split, whole.data(), part.data(), e, kPairType);
        for (std::size_t i = 0; i < part.size(); ++i) {
          EXPECT_EQ(part[i], number(place(i, self), comm.rank()));
        }
        mapper.run(Operation::all_gather, part.data(), back.data(), e, kPairType);
        for (std::size_t r = 0; r < p; ++r) {
          for (std::size_t i = 0; i < part.size(); ++i) {
            EXPECT_EQ(back[place(i, r)], number(place(i, r), static_cast<int>(r)));
          }
        }
        mapper.run(Operation::reduce_scatter, whole.data(), part.data(), e, kPairType);
        for (std::size_t i = 0; i < part.size(); ++i) {
          EXPECT_EQ(part[i], number(place(i, self), 0) * all);
        }
        mapper.run(Operation::none, whole.data(), back.data(), e, kPairType);
        EXPECT_EQ(back, whole);
      }
    });
  }
}

// That each backward is the derivative of its forward: over all ranks, the product of what the
// forward makes of x with y is that of x with what the backward makes of y.
TEST(TensorPairs, AreConjugate) {
  constexpr int kRanks = 4;
  struct Case {
    Pair pair;
    bool in_whole, out_whole;
    // A whole tensor that all ranks have alike counts once, not once for each rank.
    bool in_alike, out_alike;
  };
  for (const Case& c :
       {Case{kCopy, true, true, true, false}, Case{kReduce, true, true, false, true},
        Case{kGather, false, true, false, true}, Case{kScatter, true, false, true, false},
        Case{kSequenceGather, false, true, false, false},
        Case{kSequenceScatter, true, false, false, false}}) {
    run_thread_ranks(kRanks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Mapper mapper(axis);
      const Extent e{3, 8, 2};
      const auto numbers = [&](bool whole, bool alike, std::size_t seed) {
        std::vector<double> v(whole ? e.count() : e.count() / kRanks);
        const std::size_t rank = alike ? 0 : static_cast<std::size_t>(comm.rank());
        for (std::size_t i = 0; i < v.size(); ++i) {
          v[i] = static_cast<double>((i * 5 + rank * 11 + seed) % 17) - 8;
        }
        return v;
      };
      const auto x = numbers(c.in_whole, c.in_alike, 1), y = numbers(c.out_whole, c.out_alike, 2);
      std::vector<double> fx(y.size()), by(x.size());
      mapper.forward(c.pair, x.data(), fx.data(), e, kPairType);
      mapper.backward(c.pair, y.data(), by.data(), e, kPairType);
      double sums[2] = {};
      for (std::size_t i = 0; i < y.size(); ++i) sums[0] += fx[i] * y[i];
      for (std::size_t i = 0; i < x.size(); ++i) sums[1] += by[i] * x[i];
      if (c.out_alike && comm.rank() > 0) sums[0] = 0;
      if (c.in_alike && comm.rank() > 0) sums[1] = 0;
      comm.all_reduce(sums, sums, 2, kPairType);
      EXPECT_EQ(sums[0], sums[1]);
      EXPECT_NE(sums[0], 0);
    });
  }
}

}  // namespace
}  // namespace tutti::parallel::tensor
