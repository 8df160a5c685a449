// Compressed reduce-scatters, bit for bit against the format of core/compressed.h: the result is
// that of compressing each input, the data for each rank apart, and summing in the order of the
// ranks, whatever the cut of the call is. And the bound of the error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "comm/communicator.h"
#include "core/compressed.h"
#include "tests/comm/compressed_data.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace test;

/// What rank `rank` has for rank `to`: `count` elements.
Bytes part(DataType type, std::size_t count, int rank, int to, bool finite) {
  return input(type, count, rank + 10 * to, finite);
}
Bytes all_parts(DataType type, std::size_t count, int rank, int ranks, bool finite) {
  Bytes all;
  for (int to = 0; to < ranks; ++to) {
    const Bytes one = part(type, count, rank, to, finite);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

/// Rank `own`'s result.
Bytes expected(DataType type, std::size_t count, int own, int ranks, ReduceKind kind) {
  std::vector<Bytes> packed;
  for (int r = 0; r < ranks; ++r) {
    const Bytes mine = part(type, count, r, own, false);
    Source source{mine.data()};
    if (kind == ReduceKind::pre_multiplied_sum) {
      source.prescale = Prescale::multiply;
      source.scalar = op_of(kind, type, r).scalar;
    }
    void* const to = packed.emplace_back(compressed_bytes(type, count)).data();
    const unsigned char plain = 0;
    combine_compressed(type, {&to, 1}, 1, {&source, 1}, {&plain, 1}, count);
  }
  std::vector<Source> sources;
  for (const Bytes& p : packed) sources.push_back({p.data()});
  Bytes result(count * size_of(type));
  void* const to = result.data();
  const std::vector<unsigned char> compressed(packed.size(), 1);
  combine_compressed(
      type, {&to, 1}, 0, sources, compressed, count,
      {.divisor = static_cast<std::uint32_t>(ranks), .divide_result = kind == ReduceKind::avg});
  return result;
}

Call scatter_of(const void* in, void* out, std::size_t count, DataType type, ReduceOp op) {
  return {.collective = Collective::reduce_scatter,
          .in = in,
          .out = out,
          .count = count,
          .type = type,
          .op = op,
          .compressed = true};
}

void expect_right_parts(int ranks, const Options& options, const std::vector<std::size_t>& counts) {
  run_thread_ranks(ranks, options, [&](Communicator& c) {
    for (const DataType type : kTypes) {
      for (const std::size_t count : counts) {
        const Bytes mine = all_parts(type, count, c.rank(), ranks, false);
        for (const ReduceKind kind :
             {ReduceKind::sum, ReduceKind::avg, ReduceKind::pre_multiplied_sum}) {
          const std::string what =
              fmt::format("{} {} x {}, {} ranks", name(type), name(kind), count, ranks);
          const ReduceOp op = op_of(kind, type, c.rank());
          Bytes wanted = mine;
          if (ranks > 1) {
            wanted = expected(type, count, c.rank(), ranks, kind);
          } else if (count > 0) {  // nothing travels, so nothing is compressed
            c.reduce_scatter(mine.data(), wanted.data(), count, type, op);
          }
          Bytes out(count * size_of(type), 0xAA);
          c.run(scatter_of(mine.data(), out.data(), count, type, op));
          expect_same(type, out, wanted, what);
          EXPECT_EQ(mine, all_parts(type, count, c.rank(), ranks, false)) << what;
          Bytes in_place = mine;
          std::uint8_t* const own =
              in_place.data() + static_cast<std::size_t>(c.rank()) * out.size();
          c.run(scatter_of(in_place.data(), own, count, type, op));
          expect_same(type, Bytes(own, own + out.size()), wanted, what + " in place");
        }
      }
    }
  });
}

class CompressedScatterRanks : public testing::TestWithParam<int> {};

TEST_P(CompressedScatterRanks, GiveTheBitsOfTheFormat) {
  expect_right_parts(GetParam(), Options(), {0, 1, 15, 16, 17, 31, 32, 33, 97, 1000, 20'001});
}

TEST_P(CompressedScatterRanks, DoSoInManyTilesToo) {
  Options options;
  options.slots = 4;
  options.slot_bytes = 1024;
  expect_right_parts(GetParam(), options, {1, 1023, 5'345});
}

INSTANTIATE_TEST_SUITE_P(Few, CompressedScatterRanks, testing::Values(1, 2, 3, 4, 5));

// The sum is not compressed: only the inputs' errors are in it.
TEST(CompressedScatter, TheErrorIsWithinTheBound) {
  constexpr std::size_t kCount = 4099;
  for (const int ranks : {2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& c) {
      for (const DataType type : kTypes) {
        const Bytes mine = all_parts(type, kCount, c.rank(), ranks, true);
        Bytes out(kCount * size_of(type));
        c.run(scatter_of(mine.data(), out.data(), kCount, type, ReduceKind::sum));
        std::vector<std::vector<float>> all;
        for (int r = 0; r < ranks; ++r) {
          all.push_back(widened(type, part(type, kCount, r, c.rank(), true)));
        }
        // What storing it in the type rounds, and what float32's sums do.
        const int digits = type == DataType::float32 ? 24 : type == DataType::float16 ? 11 : 8;
        expect_close_to_sum(type, widened(type, out), all, [&](double inputs, float found) {
          const double bound = inputs / 127 + std::ldexp(ranks, -127);  // docs/low-precision.md
          const double rounding = std::fabs(found) * std::ldexp(1.0, -digits) +
                                  inputs * std::ldexp(ranks, -24) +
                                  (type == DataType::float16 ? std::ldexp(1.0, -25) : 0);
          return bound + rounding;
        });
      }
    });
  }
}

TEST(CompressedScatter, StartedCallsAndGroupsHaveTheSameBits) {
  constexpr std::size_t kCount = 5000;
  constexpr DataType kType = DataType::bfloat16;
  run_thread_ranks(3, [&](Communicator& c) {
    const Bytes wanted = expected(kType, kCount, c.rank(), 3, ReduceKind::sum);
    const Bytes mine = all_parts(kType, kCount, c.rank(), 3, false);
    Bytes started(wanted.size()), grouped(wanted.size()), plain(wanted.size());
    const Call call = scatter_of(mine.data(), started.data(), kCount, kType, {});
    EXPECT_GT(c.predict(call).count(), 0);
    Future f = c.start(call);
    group([&] {
      c.run(scatter_of(mine.data(), grouped.data(), kCount, kType, {}));
      c.reduce_scatter(mine.data(), plain.data(), kCount, kType);
    });
    f.wait();
    expect_same(kType, started, wanted, "started");
    expect_same(kType, grouped, wanted, "in a group");
    EXPECT_NE(plain, wanted) << "an ordinary call is not compressed";
  });
}

TEST(CompressedScatter, OtherTypesAndOperatorsAreRefused) {
  run_thread_ranks(2, [](Communicator& c) {
    Bytes in(64), out(32);
    const auto refused = [&](DataType type, ReduceOp op, const char* why) {
      const Error e = error_of([&] { c.run(scatter_of(in.data(), out.data(), 4, type, op)); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    };
    refused(DataType::float64, {}, "float16, bfloat16 and float32 have one");
    refused(DataType::float32, ReduceKind::max, "sum, avg and pre_multiplied_sum are");
    Call call = scatter_of(in.data(), out.data(), 4, DataType::float32, {});
    call.collective = Collective::reduce_scatter_v;
    const std::size_t counts[] = {4, 4};
    call.in_counts = counts;
    EXPECT_EQ(error_of([&] { c.run(call); }).code(), ErrorCode::invalid_argument);
    c.barrier();  // nobody has begun anything
  });
}

TEST(CompressedScatter, RanksThatDisagreeGetAMismatchThatNamesBoth) {
  for (const std::size_t count : {std::size_t{8}, std::size_t{50'000}}) {
    run_thread_ranks(3, [&](Communicator& c) {
      Bytes in(3 * count * 2), out(count * 2);
      Call call = scatter_of(in.data(), out.data(), count, DataType::bfloat16, {});
      call.compressed = c.rank() == 2;
      const Error e = error_of([&] {
        c.run(call);
        c.barrier();
      });
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      const std::string what = e.what();
      EXPECT_NE(what.find(fmt::format("(bfloat16 x {}, sum, compressed)", count)),
                std::string::npos)
          << what;
      EXPECT_NE(what.find(fmt::format("(bfloat16 x {}, sum)", count)), std::string::npos) << what;
    });
  }
}

TEST(CompressedScatter, AUsersPlanServesTheCallsThatAskForIt) {
  const std::string text =
      to_text(generate_plan(*find_algorithm(Collective::reduce_scatter, "direct_compressed"),
                            {Collective::reduce_scatter, 2}));
  constexpr DataType kType = DataType::float16;
  run_thread_ranks(2, [&](Communicator& c) {
    const Bytes mine = all_parts(kType, 300, c.rank(), 2, false);
    Bytes before(600), after(600), out(600);
    c.reduce_scatter(mine.data(), before.data(), 300, kType);
    c.use_plan(text);
    c.run(scatter_of(mine.data(), out.data(), 300, kType, {}));
    expect_same(kType, out, expected(kType, 300, c.rank(), 2, ReduceKind::sum), "");
    c.reduce_scatter(mine.data(), after.data(), 300, kType);
    EXPECT_EQ(before, after);
  });
}

}  // namespace
}  // namespace tutti
