// All-gathers and broadcasts over a CodedAxis: the same bits as without, in fewer bytes, whatever
// the data are, and in the order in which they were started.
#include "parallel/coded_axis.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "parallel/axis.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::error_of;
using test::run_thread_ranks;

enum class Data : unsigned char { normal, random, mixed };

/// Normal numbers, as weights of a layer.
const std::vector<float>& normal_numbers() {
  static const std::vector<float> numbers = [] {
    std::vector<float> values(1 << 14);
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02f);
    for (float& v : values) v = normal(random);
    return values;
  }();
  return numbers;
}

/// Of rank `rank`; all differ, also from call to call.
std::vector<std::byte> data_of(int rank, DataType type, std::size_t count, Data data,
                               std::uint64_t seed) {
  const std::vector<float>& normal = normal_numbers();
  const bool codes = data == Data::normal || (data == Data::mixed && rank % 2 == 0);
  std::minstd_rand random(static_cast<unsigned>(seed * 1000) + static_cast<unsigned>(rank) + 1);
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::size_t i = 0; i < bytes.size(); i += size_of(type)) {
    const auto number = static_cast<std::uint32_t>(random());
    const std::uint32_t bits =
        codes ? std::bit_cast<std::uint32_t>(normal[number >> 4 & 0x3fff]) : number << 1;
    // The upper half is a bfloat16.
    const std::uint32_t value = size_of(type) == 2 ? bits >> 16 : bits;
    std::memcpy(bytes.data() + i, &value, size_of(type));
  }
  return bytes;
}

CodedAxis::Choice always(std::size_t least = 1000) {
  return {.when = CodedAxis::When::always, .least_bytes = least};
}

TEST(CodedAxis, GathersAndBroadcastsTheSameBits) {
  for (const int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CodedAxis axis(comm, {}, always());
      const auto rank = static_cast<std::size_t>(axis.rank());
      std::uint64_t seed = 0;
      for (const DataType type : {DataType::bfloat16, DataType::float32}) {
        // Less than a piece, some pieces, some and a part of one.
        for (const std::size_t count : {5000UL, (1UL << 20) / size_of(type), 900'003UL}) {
          for (const Data data : {Data::normal, Data::random, Data::mixed}) {
            ++seed;
            const auto own = data_of(axis.rank(), type, count, data, seed);
            std::vector<std::byte> right;
            for (int r = 0; r < ranks; ++r) {
              const auto its = data_of(r, type, count, data, seed);
              right.insert(right.end(), its.begin(), its.end());
            }
            std::vector<std::byte> got(right.size());
            if (seed % 2 == 0) {
              axis.all_gather(own.data(), got.data(), count, type).wait();
            } else {  // in place
              std::byte* const mine = got.data() + rank * own.size();
              std::memcpy(mine, own.data(), own.size());
              axis.run(call_of(Collective::all_gather, mine, got.data(), count, type));
            }
            ASSERT_EQ(got, right) << ranks << " ranks, seed " << seed;
            const int root = static_cast<int>(seed) % ranks;
            std::vector<std::byte> sent = own;
            axis.broadcast(sent.data(), sent.data(), count, type, root).wait();
            ASSERT_EQ(sent, data_of(root, type, count, data, seed)) << "seed " << seed;
          }
        }
      }
      EXPECT_EQ(axis.coded().plain == 0, ranks == 1);
    });
  }
}

TEST(CodedAxis, SendsFewerBytesWhereThatPays) {
  constexpr std::size_t kCount = 3'000'000;
  run_thread_ranks(2, [&](Communicator& comm) {
    for (const auto& [data, least, most] :
         {std::tuple(Data::normal, 0.60, 0.70), std::tuple(Data::random, 1.0, 1.001)}) {
      CodedAxis axis(comm, {}, always());
      const auto own = data_of(axis.rank(), DataType::bfloat16, kCount, data, 1);
      std::vector<std::byte> got(2 * own.size());
      axis.all_gather(own.data(), got.data(), kCount, DataType::bfloat16).wait();
      EXPECT_EQ(axis.coded().plain, own.size());
      const double part =
          static_cast<double>(axis.coded().coded) / static_cast<double>(axis.coded().plain);
      EXPECT_GE(part, least);
      EXPECT_LE(part, most);
    }
  });
}

// Collectives keep their order behind a coded one, and messages wait for none.
TEST(CodedAxis, OtherCallsKeepTheirOrder) {
  constexpr std::size_t kCount = 400'000;
  run_thread_ranks(2, [&](Communicator& comm) {
    CodedAxis axis(comm, {}, always());
    const int peer = 1 - axis.rank();
    const auto own = data_of(axis.rank(), DataType::bfloat16, kCount, Data::normal, 1);
    std::vector<std::byte> gathered[2];
    for (auto& g : gathered) g.resize(2 * own.size());
    int sum = 1 + axis.rank(), token = 0;
    if (axis.rank() == 0) {
      // Rank 1 begins only when it has this message, which is started behind the gather.
      Pending first = axis.all_gather(own.data(), gathered[0].data(), kCount, DataType::bfloat16);
      Pending reduced = axis.all_reduce(&sum, &sum, 1, DataType::int32);
      token = 77;
      axis.send(&token, 1, DataType::int32, peer).wait();
      Pending second = axis.all_gather(own.data(), gathered[1].data(), kCount, DataType::bfloat16);
      second.wait();
      reduced.wait();
      first.wait();
    } else {
      axis.recv(&token, 1, DataType::int32, peer).wait();
      axis.all_gather(own.data(), gathered[0].data(), kCount, DataType::bfloat16).wait();
      axis.all_reduce(&sum, &sum, 1, DataType::int32).wait();
      axis.all_gather(own.data(), gathered[1].data(), kCount, DataType::bfloat16).wait();
    }
    EXPECT_EQ(token, 77);
    EXPECT_EQ(sum, 3);
    const auto its = data_of(peer, DataType::bfloat16, kCount, Data::normal, 1);
    for (const auto& g : gathered) {
      EXPECT_EQ(std::memcmp(g.data() + static_cast<std::size_t>(peer) * its.size(), its.data(),
                            its.size()),
                0);
    }
  });
}

// In memory coding takes longer than the copy.
TEST(CodedAxis, LeavesAFastLinkAsItIs) {
  run_thread_ranks(2, [](Communicator& comm) {
    CodedAxis measured(comm);
    EXPECT_FALSE(measured.codes());
    EXPECT_TRUE(CodedAxis(comm, {}, always()).codes());
    EXPECT_FALSE(CodedAxis(comm, {}, {.when = CodedAxis::When::never}).codes());
  });
}

TEST(CodedAxis, AnAbortEndsACodedCall) {
  run_thread_ranks(2, [](Communicator& comm) {
    CodedAxis axis(comm, {}, always());
    std::vector<std::byte> own(1 << 20), got(2 << 20);
    if (axis.rank() == 1) return axis.abort("the test ends");
    const Error e = error_of([&] {
      axis.all_gather(own.data(), got.data(), own.size() / 2, DataType::bfloat16).wait();
    });
    EXPECT_EQ(e.code(), ErrorCode::aborted);
    EXPECT_CONTAINS(e, "the test ends");
    EXPECT_THROW(axis.check_failure(), Error);
  });
}

}  // namespace
}  // namespace tutti::parallel
