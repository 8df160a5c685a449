// Calls with typed buffers: each gives what the one with pointers gives, from any container, and
// says which size does not fit.
#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/named_calls.h"
#include "core/memory.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

struct MyHalf {
  std::uint16_t bits;
};
template <>
struct tutti::DataTypeOf<MyHalf> {
  static constexpr DataType value = DataType::float16;
};

namespace tutti {
namespace {

using test::error_of;
using test::run_thread_ranks;

static_assert(DataTypeOf<std::int8_t>::value == DataType::int8);
static_assert(DataTypeOf<unsigned char>::value == DataType::uint8);
static_assert(DataTypeOf<std::byte>::value == DataType::uint8);
static_assert(DataTypeOf<int>::value == DataType::int32);
static_assert(DataTypeOf<unsigned>::value == DataType::uint32);
static_assert(DataTypeOf<long long>::value == DataType::int64);
static_assert(DataTypeOf<std::size_t>::value == DataType::uint64);
static_assert(InputBuffer<const std::vector<MyHalf>>);
static_assert(!InputBuffer<std::vector<bool>>);
static_assert(!InputBuffer<std::vector<std::int16_t>>);
static_assert(!InputBuffer<std::vector<std::string>>);
static_assert(!InputBuffer<float*>);
static_assert(OutputBuffer<std::vector<float>&>);
static_assert(OutputBuffer<std::span<float>>);
static_assert(!OutputBuffer<std::vector<float>>);  // a temporary
static_assert(!OutputBuffer<const std::vector<float>&>);
static_assert(!OutputBuffer<std::span<const float>>);
static_assert(!OutputBuffer<std::vector<float>&, double>);

template <class In, class Out>
concept CanReduce = requires(Communicator& c, In in, Out out) {
  c.all_reduce(in, out);
};
static_assert(CanReduce<std::span<const float>, std::span<float>>);
static_assert(!CanReduce<std::span<const float>, std::span<double>>);

constexpr int kRanks = 3;

TEST(Typed, EveryCollective) {
  run_thread_ranks(kRanks, [](Communicator& c) {
    const int r = c.rank();
    const std::vector<int> in = {10 * r, 10 * r + 1};
    std::vector<int, Allocator<int>> two(2);
    std::array<int, 2 * kRanks> six{};

    c.all_reduce(in, two);
    EXPECT_EQ(two[1], 33);
    c.all_reduce(std::span<const int>(in), std::span(two), ReduceKind::max);
    EXPECT_EQ(two[1], 21);
    two = {r, -r};
    c.all_reduce(two);
    EXPECT_EQ(two[0], 3);
    EXPECT_EQ(two[1], -3);
    two = {r, -r};
    c.all_reduce(std::span(two).first(1), ReduceKind::max);
    EXPECT_EQ(two[0], 2);
    EXPECT_EQ(two[1], -r);

    c.all_gather(in, six);
    EXPECT_EQ(six, (std::array{0, 1, 10, 11, 20, 21}));
    std::iota(six.begin(), six.end(), 100 * r);
    c.reduce_scatter(six, two);
    EXPECT_EQ(two[0], 300 + 3 * (2 * r));
    EXPECT_EQ(two[1], 300 + 3 * (2 * r + 1));

    const std::span<const int> nothing;
    c.broadcast(r == 1 ? std::span<const int>(in) : nothing, two, 1);
    EXPECT_EQ(two[1], 11);
    two = {r, r + 5};
    c.broadcast(two, 2);
    EXPECT_EQ(two[1], 7);
    std::vector<int> root_only(r == 2 ? 2 : 0);
    c.reduce(in, root_only, 2);
    if (r == 2) {
      EXPECT_EQ(root_only[1], 33);
    }
    c.reduce(in, root_only, ReduceKind::min, 2);
    if (r == 2) {
      EXPECT_EQ(root_only[1], 1);
    }
    root_only.resize(r == 0 ? 2 * kRanks : 0);
    c.gather(in, root_only, 0);
    if (r == 0) {
      EXPECT_EQ(root_only, (std::vector{0, 1, 10, 11, 20, 21}));
    }
    c.scatter(root_only, two, 0);
    EXPECT_EQ(two[0], 10 * r);
    std::array<int, kRanks> to{}, from{};
    std::iota(to.begin(), to.end(), 10 * r);
    c.all_to_all(to, from);
    EXPECT_EQ(from, (std::array{r, 10 + r, 20 + r}));
  });
}

// Each named function has the same arguments in each of its forms.
TEST(Typed, EachFunctionIsStartedToo) {
  run_thread_ranks(kRanks, [](Communicator& c) {
    const int r = c.rank();
    const auto own = static_cast<std::size_t>(r);
    const std::array<int, 2> in = {r, 10 * r};
    std::array<int, 2> sum{}, block{}, root{}, high{}, word = in;
    std::array<int, 2 * kRanks> all{}, gathered{}, swapped{}, to{};
    std::iota(to.begin(), to.end(), 100 * r);
    std::array<int, 2> scattered{};
    const std::vector<std::size_t> counts(kRanks, 2), offsets = {4, 2, 0};
    std::array<int, 2 * kRanks> turned{}, exchanged{};
    std::array<int, 2> from_end{};
    std::vector<Future> futures;
    futures.push_back(c.start().all_reduce(in, sum));
    futures.push_back(c.start().all_gather(in, all));
    futures.push_back(c.start().reduce_scatter(to, block));
    futures.push_back(c.start().broadcast(word, 1));
    futures.push_back(c.start().reduce(in, root, 0));
    futures.push_back(
        c.start().reduce(in.data(), high.data(), 2, DataType::int32, ReduceKind::max, 0));
    futures.push_back(c.start().gather(in, gathered, 0));
    futures.push_back(c.start().scatter(to, scattered, 2));
    futures.push_back(c.start().all_to_all(to, swapped));
    futures.push_back(c.start().all_gather_v(in, turned, counts, offsets));
    futures.push_back(c.start().reduce_scatter_v(to, counts, offsets, from_end));
    futures.push_back(c.start().all_to_all_v(to, counts, exchanged, counts));
    futures.push_back(c.start().barrier());
    std::array<int, 1> token{r == 0 ? 77 : 0};
    if (r == 0) futures.push_back(c.start().send(token, 1));
    if (r == 1) futures.push_back(c.start().recv(token, 0));
    for (Future& future : futures) future.wait();
    EXPECT_EQ(sum, (std::array{3, 30}));
    EXPECT_EQ(all, (std::array{0, 0, 1, 10, 2, 20}));
    EXPECT_EQ(block, (std::array{300 + 6 * r, 303 + 6 * r}));
    EXPECT_EQ(word, (std::array{1, 10}));
    if (r == 0) {
      EXPECT_EQ(root, sum);
      EXPECT_EQ(high, (std::array{2, 20}));
      EXPECT_EQ(gathered, all);
    }
    EXPECT_EQ(scattered, (std::array{200 + 2 * r, 201 + 2 * r}));
    for (std::size_t p = 0; p < kRanks; ++p) {
      EXPECT_EQ(swapped[2 * p], 100 * static_cast<int>(p) + 2 * r);
    }
    EXPECT_EQ(turned, (std::array{2, 20, 1, 10, 0, 0}));
    EXPECT_EQ(from_end[0], 300 + 3 * static_cast<int>(offsets[own]));
    EXPECT_EQ(exchanged, swapped);
    if (r < 2) {
      EXPECT_EQ(token[0], 77);
    }
  });
}

TEST(Typed, CallsOnAStreamAreForMemoryOfAGpu) {
  auto comms = Communicator::create_local(1);
  std::vector<float> x(4);
  const Error e = error_of([&] { comms[0].on(nullptr).all_reduce(x); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
  EXPECT_NE(std::string(e.what()).find("the input is host memory"), std::string::npos) << e.what();
}

// Arguments in an order that a function has had do not compile where that would change the meaning.
template <class C>
concept TakesFormerOrders = requires(C& c, std::vector<float>& x, std::vector<std::size_t>& n,
                                     const void* in, void* out) {
  c.reduce(x, x, 0, ReduceKind::min);
}
|| requires(C& c, std::vector<float>& x, std::vector<std::size_t>& n) {
  c.reduce_scatter_v(x, x, n);
}
|| requires(C& c, std::vector<std::size_t>& n) { c.reduce_scatter_v(n, n, n); }
|| requires(C& c, std::vector<std::size_t>& n) { c.reduce_scatter_v(n, n, n, ReduceKind::min); }
|| requires(C& c, std::vector<std::size_t>& n, const void* in, void* out) {
  c.reduce_scatter_v(in, out, n, DataType::float32);
};
static_assert(!TakesFormerOrders<Communicator> && !TakesFormerOrders<Form<Future>>);

TEST(Typed, UnevenBlocksAndMessages) {
  run_thread_ranks(kRanks, [](Communicator& c) {
    const int r = c.rank();
    const auto own = static_cast<std::size_t>(r);
    const std::vector<std::size_t> counts = {1, 2, 3}, offsets = {5, 3, 0};
    const std::vector<double> mine(counts[own], r + 0.5);
    std::vector<double> all(6);
    c.all_gather_v(mine, all, counts);
    EXPECT_EQ(all, (std::vector{0.5, 1.5, 1.5, 2.5, 2.5, 2.5}));
    c.all_gather_v(mine, all, counts, offsets);
    EXPECT_EQ(all, (std::vector{2.5, 2.5, 2.5, 1.5, 1.5, 0.5}));
    std::iota(all.begin(), all.end(), r);
    std::vector<double> part(counts[own]);
    c.reduce_scatter_v(all, counts, {}, part);
    const double first[] = {0, 1, 3};
    for (std::size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], 3 * (first[own] + static_cast<double>(i)) + 3);
    }
    c.reduce_scatter_v(all, counts, offsets, part, ReduceKind::max);
    for (std::size_t i = 0; i < part.size(); ++i) {
      EXPECT_EQ(part[i], static_cast<double>(offsets[own] + i) + 2);
    }
    // Rank r sends counts[p] elements to rank p, which gets counts[p] from everybody.
    const std::vector<std::size_t> get(kRanks, counts[own]);
    std::vector<double> got(kRanks * counts[own]);
    std::iota(all.begin(), all.end(), 100 * r);
    c.all_to_all_v(all, counts, got, get);
    for (std::size_t p = 0; p < kRanks; ++p) {
      EXPECT_EQ(got[p * counts[own]], 100 * static_cast<double>(p) + first[own]);
    }
    c.all_to_all_v(all, counts, {}, got, get, {});
    EXPECT_EQ(got[0], first[own]);
    if (r == 0) {
      c.send(std::vector<float>{1, 2, 3}, 1);
    } else if (r == 1) {
      std::array<float, 3> three{};
      c.recv(three, 0);
      EXPECT_EQ(three, (std::array<float, 3>{1, 2, 3}));
    }
    std::vector<MyHalf> halves(2, MyHalf{0x3c00});  // 1
    c.all_reduce(halves);
    EXPECT_EQ(halves[1].bits, 0x4200);  // 3
  });
}

TEST(Typed, AFactorOfAnotherTypeThanTheDataIsRefused) {
  run_thread_ranks(kRanks, [](Communicator& c) {
    std::vector<float> x(4, 1.0f);
    const auto factor = [&](DataType type) {
      return ReduceOp::pre_multiplied_sum(type, 2 + c.rank());
    };
    // Also after the same call with the right type, which is not checked again.
    for (int turn = 0; turn < 2; ++turn) {
      const Error other = error_of([&] { c.all_reduce(x, factor(DataType::float64)); });
      EXPECT_EQ(other.code(), ErrorCode::invalid_argument);
      EXPECT_CONTAINS(other.what(),
                      "pre_multiplied_sum has a factor of type float64, and the data are float32; "
                      "make the operator with ReduceOp::pre_multiplied_sum(DataType::float32, "
                      "factor)");
      EXPECT_CONTAINS(error_of([&] { c.all_reduce(x, ReduceKind::pre_multiplied_sum); }).what(),
                      "pre_multiplied_sum has no factor; make the operator with ");
      c.all_reduce(x, factor(DataType::float32));
      EXPECT_EQ(x[0], turn == 0 ? 9 : 81);  // 2 + 3 + 4
    }
  });
}

TEST(Typed, SizesThatDoNotFitAreNamed) {
  run_thread_ranks(kRanks, [](Communicator& c) {
    std::vector<float> a(4), b(5), c12(12);
    const std::vector<std::size_t> counts = {4, 4, 4};
    const auto refused = [](auto&& call, const char* why) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_STREQ(e.what(), why);
    };
    refused([&] { c.all_reduce(a, b); }, "all_reduce: the output has 5 elements, but needs 4");
    refused([&] { c.all_gather(a, b); },
            "all_gather: the output has 5 elements, but needs 12 (4 for each of 3 ranks)");
    refused([&] { c.reduce_scatter(b, a); },
            "reduce_scatter: the input has 5 elements, but needs 12 (4 for each of 3 ranks)");
    refused([&] { c.all_to_all(b, a); }, "all_to_all: the output has 4 elements, but needs 5");
    refused([&] { c.all_to_all(a, std::span(b).first(4)); },
            "all_to_all: the input has 4 elements, but needs 3 (1 for each of 3 ranks)");
    refused([&] { c.broadcast(a, b, c.rank()); },
            "broadcast: the input has 4 elements, but needs 5");
    refused([&] { c.reduce(a, b, c.rank()); }, "reduce: the output has 5 elements, but needs 4");
    refused([&] { c.gather(a, b, c.rank()); },
            "gather: the output has 5 elements, but needs 12 (4 for each of 3 ranks)");
    refused([&] { c.scatter(b, a, c.rank()); },
            "scatter: the input has 5 elements, but needs 12 (4 for each of 3 ranks)");
    refused([&] { c.all_gather_v(b, c12, counts); },
            "all_gather_v: the input has 5 elements, but needs 4");
    refused([&] { c.all_gather_v(a, b, counts); },
            "all_gather_v: the output has 5 elements, but needs 12");
    refused([&] { c.reduce_scatter_v(b, counts, {}, a); },
            "reduce_scatter_v: the input has 5 elements, but needs 12");
    refused([&] { c.reduce_scatter_v(c12, counts, {}, b); },
            "reduce_scatter_v: the output has 5 elements, but needs 4");
    refused([&] { c.all_to_all_v(c12, counts, b, counts); },
            "all_to_all_v: the output has 5 elements, but needs 12");
    const std::vector<std::size_t> two = {4, 4};
    EXPECT_EQ(error_of([&] { c.all_gather_v(a, c12, two); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { c.broadcast(a, a, 7); }).code(), ErrorCode::invalid_argument);
    c.barrier();  // nothing has begun
  });
  EXPECT_EQ(error_of([] {
              Communicator none;
              std::vector<float> x(1);
              none.all_reduce(x);
            }).code(),
            ErrorCode::invalid_usage);
}

}  // namespace
}  // namespace tutti
