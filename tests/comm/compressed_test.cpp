// Compressed all-reduces, bit for bit against the format of core/compressed.h: the result is that
// of compressing each input, summing in the order of the ranks, and compressing the sum, whatever
// the cut of the call is. And the bound of the error, and calls that are refused.
#include "core/compressed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "comm/communicator.h"
#include "tests/comm/compressed_data.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace test;

Bytes expected(DataType type, const std::vector<Bytes>& inputs, ReduceKind kind) {
  const std::size_t count = inputs[0].size() / size_of(type);
  const std::size_t ranks = inputs.size();
  std::vector<Bytes> packed;
  std::vector<Source> sources;
  for (std::size_t r = 0; r < ranks; ++r) {
    Source own{inputs[r].data()};
    if (kind == ReduceKind::pre_multiplied_sum) {
      own.prescale = Prescale::multiply;
      own.scalar = op_of(kind, type, static_cast<int>(r)).scalar;
    }
    packed.emplace_back(compressed_bytes(type, count));
    void* const to = packed.back().data();
    const unsigned char plain = 0;
    combine_compressed(type, {&to, 1}, 1, {&own, 1}, {&plain, 1}, count);
    sources.push_back({packed.back().data()});
  }
  Bytes sum(compressed_bytes(type, count)), result(count * size_of(type));
  void* const to[] = {sum.data(), result.data()};
  const std::vector<unsigned char> compressed(ranks, 1);
  combine_compressed(
      type, to, 1, sources, compressed, count,
      {.divisor = static_cast<std::uint32_t>(ranks), .divide_result = kind == ReduceKind::avg});
  return result;
}

Call call_of(const Bytes& in, Bytes& out, DataType type, ReduceOp op) {
  return {.collective = Collective::all_reduce,
          .in = in.data(),
          .out = out.data(),
          .count = out.size() / size_of(type),
          .type = type,
          .op = op,
          .compressed = true};
}

void expect_right_reductions(int ranks, const Options& options,
                             const std::vector<std::size_t>& counts) {
  run_thread_ranks(ranks, options, [&](Communicator& c) {
    for (const DataType type : kTypes) {
      for (const std::size_t count : counts) {
        std::vector<Bytes> inputs;
        for (int r = 0; r < ranks; ++r) inputs.push_back(input(type, count, r, false));
        for (const ReduceKind kind :
             {ReduceKind::sum, ReduceKind::avg, ReduceKind::pre_multiplied_sum}) {
          const std::string what =
              fmt::format("{} {} x {}, {} ranks", name(type), name(kind), count, ranks);
          Bytes wanted = ranks > 1 ? expected(type, inputs, kind) : Bytes();
          const Bytes& mine = inputs[static_cast<std::size_t>(c.rank())];
          const ReduceOp op = op_of(kind, type, c.rank());
          if (ranks == 1) {  // nothing travels, so nothing is compressed
            wanted = mine;
            if (count > 0) {
              c.run({.collective = Collective::all_reduce,
                     .in = mine.data(),
                     .out = wanted.data(),
                     .count = count,
                     .type = type,
                     .op = op});
            }
          }
          Bytes out(mine.size(), 0xAA);
          c.run(call_of(mine, out, type, op));
          expect_same(type, out, wanted, what);
          EXPECT_EQ(mine, input(type, count, c.rank(), false)) << what;
          Bytes in_place = mine;
          c.run(call_of(in_place, in_place, type, op));
          expect_same(type, in_place, wanted, what + " in place");
        }
      }
    }
  });
}

class CompressedRanks : public testing::TestWithParam<int> {};

TEST_P(CompressedRanks, GiveTheBitsOfTheFormat) {
  expect_right_reductions(GetParam(), Options(), {0, 1, 15, 16, 17, 31, 32, 33, 97, 1000, 70'001});
}

TEST_P(CompressedRanks, DoSoInManyTilesToo) {
  Options options;
  options.slots = 4;
  options.slot_bytes = 1024;
  expect_right_reductions(GetParam(), options, {1, 1023, 12'345});
}

INSTANTIATE_TEST_SUITE_P(Few, CompressedRanks, testing::Values(1, 2, 3, 4, 5));

TEST(Compressed, TheErrorIsWithinTheBound) {
  constexpr std::size_t kCount = 4099;
  for (const int ranks : {2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& c) {
      for (const DataType type : kTypes) {
        const Bytes mine = input(type, kCount, c.rank(), true);
        Bytes out(mine.size());
        c.run(call_of(mine, out, type, ReduceKind::sum));
        std::vector<std::vector<float>> all;
        for (int r = 0; r < ranks; ++r) all.push_back(widened(type, input(type, kCount, r, true)));
        expect_close_to_sum(type, widened(type, out), all, [&](double inputs, float found) {
          // docs/low-precision.md: the inputs, then their sum, which is no larger than they are.
          const double bound =
              inputs / 127 + inputs * (1 + 1.0 / 127) / 127 + std::ldexp(1.0 + ranks, -127);
          // What storing it in the type rounds, and what float32 does.
          const double rounding =
              std::fabs(found) * std::ldexp(1.0, type == DataType::float32 ? -23 : -8) +
              (type == DataType::float16 ? std::ldexp(1.0, -24) : 0);
          return bound + rounding;
        });
      }
    });
  }
}

TEST(Compressed, StartedCallsAndGroupsHaveTheSameBits) {
  constexpr std::size_t kCount = 5000;
  run_thread_ranks(3, [&](Communicator& c) {
    std::vector<Bytes> inputs;
    for (int r = 0; r < 3; ++r) inputs.push_back(input(DataType::bfloat16, kCount, r, false));
    const Bytes wanted = expected(DataType::bfloat16, inputs, ReduceKind::sum);
    const Bytes& mine = inputs[static_cast<std::size_t>(c.rank())];
    Bytes started(mine.size()), grouped(mine.size()), plain(mine.size());
    const Call call = call_of(mine, started, DataType::bfloat16, {});
    EXPECT_GT(c.predict(call).count(), 0);
    Future f = c.start(call);
    group([&] {
      c.run(call_of(mine, grouped, DataType::bfloat16, {}));
      c.all_reduce(mine.data(), plain.data(), kCount, DataType::bfloat16);
    });
    f.wait();
    expect_same(DataType::bfloat16, started, wanted, "started");
    expect_same(DataType::bfloat16, grouped, wanted, "in a group");
    EXPECT_NE(plain, wanted) << "an ordinary call is not compressed";
  });
}

/// What an all-reduce of these inputs loses when it compresses the sums, in each element.
std::vector<float> lost(DataType type, const std::vector<Bytes>& inputs, ReduceKind kind) {
  std::vector<float> sum(inputs[0].size() / size_of(type));
  for (const Bytes& input : inputs) {
    Bytes packed(compressed_bytes(type, sum.size())), sent(input.size());
    compress(type, input.data(), packed.data(), sum.size());
    decompress(type, packed.data(), sent.data(), sum.size());
    const std::vector<float> values = widened(type, sent);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  const std::vector<float> result = widened(type, expected(type, inputs, kind));
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (kind == ReduceKind::avg) sum[i] /= static_cast<float>(inputs.size());
    sum[i] = std::isfinite(sum[i] - result[i]) ? sum[i] - result[i] : 0;
  }
  return sum;
}

TEST(Compressed, WhatSumsLoseIsNotedOnOneRankEach) {
  Options options;
  options.slots = 4;
  options.slot_bytes = 1024;
  for (const int ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, options, [&](Communicator& c) {
      for (const DataType type : kTypes) {
        for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::avg}) {
          for (const std::size_t count : {std::size_t{1}, std::size_t{97}, std::size_t{12'345}}) {
            std::vector<Bytes> inputs;
            for (int r = 0; r < ranks; ++r) inputs.push_back(input(type, count, r, false));
            Bytes data = inputs[static_cast<std::size_t>(c.rank())];
            // Added to what is there, in each call, blocking or started, in place or not.
            std::vector<float> left_out(count, 0.5F), all(count * static_cast<std::size_t>(ranks));
            Bytes out(data.size());
            Call call = call_of(data, out, type, kind);
            call.left_out = left_out.data();
            call.left_out_times = 4;
            c.run(call);
            c.start(call).wait();
            call.left_out = nullptr;
            c.run(call);
            c.all_gather(left_out.data(), all.data(), count, DataType::float32);
            const std::vector<float> expected_loss =
                ranks > 1 ? lost(type, inputs, kind) : std::vector<float>(count);
            for (std::size_t i = 0; i < count; ++i) {
              int owners = 0;
              for (int r = 0; r < ranks; ++r) {
                const float found = all[static_cast<std::size_t>(r) * count + i];
                if (found == 0.5F) continue;
                ++owners;
                const float times = 4 * expected_loss[i];
                ASSERT_EQ(found, 0.5F + times + times)
                    << name(type) << " " << name(kind) << " x " << count << ", element " << i;
              }
              ASSERT_LE(owners, 1);
              if (0.5F + 4 * expected_loss[i] != 0.5F) {
                ASSERT_EQ(owners, 1) << name(type) << " x " << count << ", element " << i;
              }
            }
          }
        }
      }
    });
  }
}

TEST(Compressed, WhatHasNoCompressedFormIsRefused) {
  run_thread_ranks(2, [](Communicator& c) {
    Bytes in(64), out(64);
    const auto refused = [&](const Call& call, const char* part) {
      const Error e = error_of([&] { c.run(call); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    };
    Call call = call_of(in, out, DataType::float32, {});
    for (const DataType type : {DataType::float64, DataType::int8, DataType::float8_e4m3}) {
      call.type = type;
      call.count = 4;
      refused(call, "float16, bfloat16 and float32 have one");
    }
    call.type = DataType::float32;
    for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min, ReduceKind::prod}) {
      call.op = kind;
      refused(call, "sum, avg and pre_multiplied_sum are");
    }
    call.op = {};
    call.collective = Collective::reduce;
    refused(call, "for all_reduce and reduce_scatter alone");
    call.collective = Collective::all_gather;
    call.count = 1;
    refused(call, "for all_reduce and reduce_scatter alone");
    float left_out = 0;
    for (const bool compressed : {false, true}) {
      call = call_of(in, out, DataType::float32, {});
      call.collective = compressed ? Collective::reduce_scatter : Collective::all_reduce;
      call.count = 1;
      call.compressed = compressed;
      call.left_out = &left_out;
      refused(call, "Call::left_out is for compressed all_reduces alone");
    }
    c.barrier();  // nobody has begun anything
  });
}

TEST(Compressed, SumsThatAreToBeInvariantAreNot) {
  Options invariant, once;
  invariant.invariant = true;
  once.round_once = true;
  for (const Options& options : {invariant, once}) {
    run_thread_ranks(2, options, [](Communicator& c) {
      Bytes in(64), out(64);
      const Error e = error_of([&] { c.run(call_of(in, out, DataType::bfloat16, {})); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << e.what();
      EXPECT_NE(std::string(e.what()).find("Call::compressed"), std::string::npos) << e.what();
    });
  }
}

TEST(Compressed, RanksThatDisagreeGetAMismatchThatNamesBoth) {
  for (const int ranks : {2, 3}) {
    for (const std::size_t count : {std::size_t{8}, std::size_t{100'000}}) {
      run_thread_ranks(ranks, [&](Communicator& c) {
        Bytes in(count * 2), out(count * 2);
        Call call = call_of(in, out, DataType::bfloat16, {});
        call.compressed = c.rank() == c.size() - 1;
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
}

TEST(Compressed, AUsersPlanServesTheCallsThatAskForIt) {
  const std::string text = to_text(generate_plan(
      *find_algorithm(Collective::all_reduce, "two_shot_compressed"), {Collective::all_reduce, 2}));
  run_thread_ranks(2, [&](Communicator& c) {
    std::vector<Bytes> inputs;
    for (int r = 0; r < 2; ++r) inputs.push_back(input(DataType::float16, 300, r, true));
    const Bytes& mine = inputs[static_cast<std::size_t>(c.rank())];
    Bytes before(mine.size()), after(mine.size()), out(mine.size());
    c.all_reduce(mine.data(), before.data(), 300, DataType::float16);
    c.use_plan(text);
    c.run(call_of(mine, out, DataType::float16, {}));
    expect_same(DataType::float16, out, expected(DataType::float16, inputs, ReduceKind::sum), "");
    c.all_reduce(mine.data(), after.data(), 300, DataType::float16);
    EXPECT_EQ(before, after);
  });
}

}  // namespace
}  // namespace tutti
