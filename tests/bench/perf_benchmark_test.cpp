// Sizes, counts, bus factors and buffer images of the *_perf programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/image.h"

namespace tutti::perf {
namespace {

constexpr Collective kPrograms[] = {Collective::all_reduce,     Collective::all_gather,
                                    Collective::reduce_scatter, Collective::broadcast,
                                    Collective::reduce,         Collective::gather,
                                    Collective::scatter,        Collective::all_to_all,
                                    Collective::all_to_all_v,   Collective::send_recv};

void expect_shape(Collective collective, std::size_t bytes, DataType type, int ranks,
                  std::size_t count, std::size_t in, std::size_t out) {
  const Shape shape = shape_of(collective, bytes, type, ranks);
  EXPECT_EQ(shape.count, count) << name(collective);
  EXPECT_EQ(shape.in, in) << name(collective);
  EXPECT_EQ(shape.out, out) << name(collective);
}

TEST(PerfBenchmark, Shapes) {
  const DataType f = DataType::float32;
  expect_shape(Collective::all_reduce, 1027, f, 3, 256, 256, 256);
  expect_shape(Collective::broadcast, 8, DataType::float64, 3, 1, 1, 1);
  expect_shape(Collective::reduce, 7, DataType::float64, 3, 0, 0, 0);
  expect_shape(Collective::send_recv, 5, DataType::int8, 3, 5, 5, 5);
  // 256 elements, 85 each, in multiples of 4 (16 bytes).
  expect_shape(Collective::all_gather, 1024, f, 3, 84, 84, 252);
  expect_shape(Collective::gather, 1024, f, 3, 84, 84, 252);
  expect_shape(Collective::reduce_scatter, 1024, f, 3, 84, 252, 84);
  expect_shape(Collective::scatter, 1024, f, 3, 84, 252, 84);
  expect_shape(Collective::all_to_all, 1024, f, 3, 84, 252, 252);
  expect_shape(Collective::all_gather, 1024, DataType::int8, 3, 336, 336, 1008);
  expect_shape(Collective::all_gather, 8, f, 4, 0, 0, 0);
  // 0, 84 and 168 for distances 0, 1 and 2.
  expect_shape(Collective::all_to_all_v, 1024, f, 3, 84, 252, 252);
  expect_shape(Collective::all_to_all_v, 1024, f, 1, 256, 256, 256);
  // 2^40 elements do not overflow.
  expect_shape(Collective::all_reduce, std::size_t{1} << 43, DataType::int64, 2, 1ul << 40,
               1ul << 40, 1ul << 40);
}

TEST(PerfBenchmark, AllToAllVIsUnequalAndConsistent) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const Shape shape = shape_of(Collective::all_to_all_v, 1 << 20, DataType::float16, ranks);
    EXPECT_LE(shape.in * 2, 1u << 20);
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t in = 0, out = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        in += all_to_all_v_count(rank, peer, shape.count, DataType::float16, ranks);
        out += all_to_all_v_count(peer, rank, shape.count, DataType::float16, ranks);
      }
      EXPECT_EQ(in, shape.in);
      EXPECT_EQ(out, shape.out);
    }
  }
  EXPECT_EQ(all_to_all_v_count(2, 2, 1000, DataType::float32, 4), 0u);
  EXPECT_LT(all_to_all_v_count(2, 3, 1000, DataType::float32, 4),
            all_to_all_v_count(2, 0, 1000, DataType::float32, 4));
}

TEST(PerfBenchmark, BusFactors) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 1), 0);
  for (const Collective c :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all,
        Collective::all_to_all_v, Collective::gather, Collective::scatter}) {
    EXPECT_DOUBLE_EQ(bus_factor(c, 4), 0.75);
  }
  for (const Collective c : {Collective::broadcast, Collective::reduce, Collective::send_recv}) {
    EXPECT_DOUBLE_EQ(bus_factor(c, 4), 1);
  }
}

TEST(PerfBenchmark, ProgramNames) {
  for (const Collective collective : kPrograms)
    EXPECT_TRUE(program_name(collective).ends_with("_perf"));
  EXPECT_EQ(program_name(Collective::all_to_all_v), "alltoallv_perf");
  EXPECT_EQ(program_name(Collective::barrier), "");
}

TEST(PerfBenchmark, InPlaceOffsetsAreNccls) {
  CallSetup setup{Collective::all_gather, {10, 10, 40}, DataType::int32, 4, 2, 0, true};
  EXPECT_EQ(in_place_input(setup), 20u);
  EXPECT_EQ(in_place_output(setup), 0u);
  setup.collective = Collective::reduce_scatter;
  EXPECT_EQ(in_place_input(setup), 0u);
  EXPECT_EQ(in_place_output(setup), 20u);
  setup.collective = Collective::all_reduce;
  EXPECT_EQ(in_place_input(setup), 0u);
  EXPECT_EQ(in_place_output(setup), 0u);
}

// Every byte that a call leaves behind is looked at: guards, inputs, results.
TEST(PerfBenchmark, EveryByteCounts) {
  constexpr std::size_t kGuard = 5;
  const DataType type = DataType::float16;
  for (const Collective collective : kPrograms) {
    for (const bool in_place : {false, true}) {
      if (in_place && !has_in_place(collective)) continue;
      for (int rank = 0; rank < 3; ++rank) {
        const CallSetup setup{collective, shape_of(collective, 96, type, 3), type, 3, rank, 1,
                              in_place};
        const Data data(
            {type, is_reduction(collective) ? std::optional(ReduceKind::sum) : std::nullopt, 3, 1});
        const Expectation expected = expectation(setup, kGuard);
        for (const Image* image : {&expected.send, &expected.receive_after}) {
          std::vector<std::byte> buffer(image->elements * size_of(type));
          paint(data, *image, buffer.data());
          EXPECT_EQ(count_wrong(data, *image, buffer.data()), 0u);
          for (std::byte& byte : buffer) {
            byte ^= std::byte{0x10};
            ASSERT_EQ(count_wrong(data, *image, buffer.data()), 1u);
            byte ^= std::byte{0x10};
          }
        }
        // A call that does nothing is noticed wherever it had something to do.
        std::vector<std::byte> untouched(expected.receive_before.elements * size_of(type));
        paint(data, expected.receive_before, untouched.data());
        const bool idle =
            (rank != 1 && (collective == Collective::reduce || collective == Collective::gather)) ||
            (in_place && rank == 1 &&
             (collective == Collective::broadcast || collective == Collective::scatter));
        EXPECT_EQ(count_wrong(data, expected.receive_after, untouched.data()) == 0, idle)
            << name(collective) << " rank " << rank << " in place " << in_place;
      }
    }
  }
}

// A library that puts chunks where others belong is noticed: for every type and operator, whatever
// the chunks' size and distance.
TEST(PerfBenchmark, SwappedChunksAreWrong) {
  constexpr std::size_t kBytes = 1 << 14;
  const auto expect_noticed = [](Collective collective, DataType type,
                                 std::optional<ReduceKind> op) {
    CallSetup setup;
    setup.collective = collective;
    setup.type = type;
    setup.ranks = 3;
    setup.shape = shape_of(collective, kBytes, type, setup.ranks);
    const Data data({type, op, setup.ranks, 1});
    const Image image = expectation(setup, 0).receive_after;
    std::vector<std::byte> buffer(image.elements * size_of(type));
    paint(data, image, buffer.data());
    for (std::size_t chunk = 64; 2 * chunk <= buffer.size(); chunk *= 2) {
      for (std::size_t other = chunk; other + chunk <= buffer.size(); other *= 2) {
        const auto swap = [&] {
          std::swap_ranges(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(chunk),
                           buffer.begin() + static_cast<std::ptrdiff_t>(other));
        };
        swap();
        EXPECT_GT(count_wrong(data, image, buffer.data()), 0u)
            << name(collective) << " " << name(type) << " " << (op ? name(*op) : "") << ": "
            << chunk << " bytes at 0 and " << other;
        swap();
      }
    }
    EXPECT_EQ(count_wrong(data, image, buffer.data()), 0u);
  };
  for (int t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const Collective collective : kPrograms) {
      if (!is_reduction(collective)) {
        expect_noticed(collective, type, std::nullopt);
        continue;
      }
      for (int k = 0; k < kReduceKinds; ++k) {
        expect_noticed(collective, type, static_cast<ReduceKind>(k));
      }
    }
  }
}

TEST(PerfImage, LaterPatchesCoverEarlierOnesAcrossBlocks) {
  const Data data({DataType::uint32, std::nullopt, 2, 1});
  Image image{10000, {{Content::input, 0, 100, 9000, 7}, {Content::input, 1, 3000, 2000, 0}}};
  std::vector<std::uint32_t> buffer(image.elements);
  paint(data, image, buffer.data());
  const auto input = [&](int rank, std::uint64_t position) {
    std::uint32_t value = 0;
    data.input(rank, position, 1, &value);
    return value;
  };
  EXPECT_EQ(buffer[100], input(0, 7));
  EXPECT_EQ(buffer[2999], input(0, 2906));
  EXPECT_EQ(buffer[3000], input(1, 0));
  EXPECT_EQ(buffer[4999], input(1, 1999));
  EXPECT_EQ(buffer[5000], input(0, 4907));
  EXPECT_EQ(buffer[9099], input(0, 9006));
  EXPECT_EQ(count_wrong(data, image, buffer.data()), 0u);
}

}  // namespace
}  // namespace tutti::perf
