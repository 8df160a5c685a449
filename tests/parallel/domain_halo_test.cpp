// Halos have the cells of their owners, gradients come back to them, with the messages and bytes of
// the formula; messages travel while a rank computes; what is wrong is said on all ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <thread>
#include <tuple>

#include "core/convert.h"
#include "core/error.h"
#include "parallel/domain/halo.h"
#include "parallel/throttled_axis.h"
#include "tests/parallel/domain_shapes.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace test;
using parallel::Axis;
using parallel::call_of;
using parallel::CommunicatorAxis;
using parallel::ThrottledAxis;
using parallel::Traffic;
using parallel::domain::Halo;

using Cell = std::vector<std::int64_t>;

/// Numbers that all types of the test hold, also the sums of some of them.
double value_of(std::int64_t cell, std::size_t outer, std::size_t inner) {
  return static_cast<double>((cell * 7 + static_cast<std::int64_t>(outer * 3 + inner)) % 29 + 1);
}
double gradient_of(int rank, const Cell& cell, std::size_t outer, std::size_t inner) {
  std::int64_t hash = rank * 5 + static_cast<std::int64_t>(outer * 2 + inner);
  for (const std::int64_t at : cell) hash = hash * 3 + at + 100;
  return static_cast<double>(hash % 4);
}

/// Calls use(cell, outer, inner, position) for each element of a block.
template <class Use>
void each_element(const HaloShape& shape, const Box& box, const Use& use) {
  std::size_t position = 0;
  for (std::size_t o = 0; o < shape.outer; ++o) {
    each_cell(box, [&](const Cell& cell) {
      for (std::size_t i = 0; i < shape.inner; ++i) use(cell, o, i, position++);
    });
  }
}

std::vector<std::byte> as(DataType type, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  if (type == DataType::int32) {
    const std::vector<std::int32_t> numbers(values.begin(), values.end());
    std::ranges::copy(std::as_bytes(std::span(numbers)), bytes.begin());
  } else if (!values.empty()) {
    convert(values.data(), DataType::float64, bytes.data(), type, values.size());
  }
  return bytes;
}

void exchanges(Axis& axis, const HaloShape& shape, const std::string& text) {
  Halo halo(axis, shape);
  const auto dimensions = halo.layout().input().dimensions();
  const std::size_t elements = halo.elements(halo.padded());
  std::vector<double> before(elements, -5), after(elements, -5);
  each_element(shape, halo.padded(), [&](const Cell& cell, std::size_t o, std::size_t i, auto at) {
    const std::int64_t number = number_of(dimensions, cell);
    if (contains(halo.own(), cell)) {
      before[at] = after[at] = value_of(number, o, i);
    } else if (number < 0) {
      after[at] = 0;
    } else if (shape.corners || no_corner(halo.own(), cell)) {
      after[at] = value_of(number, o, i);
    }
  });
  std::vector<std::byte> block = as(shape.type, before);
  halo.exchange(block.data());
  EXPECT_EQ(block, as(shape.type, after)) << text;
}

/// The gradients by own cells: those of all ranks that have the cell.
std::vector<double> sums(const Halo& halo, const HaloShape& shape, int rank, int ranks) {
  const HaloLayout& layout = halo.layout();
  const auto dimensions = layout.input().dimensions();
  std::map<std::tuple<std::int64_t, std::size_t, std::size_t>, double> sum;
  for (int r = 0; r < ranks; ++r) {
    each_element(shape, layout.padded(r), [&](const Cell& cell, auto o, auto i, std::size_t) {
      if (!shape.corners && !no_corner(layout.input().box(r), cell)) return;
      const std::int64_t number = number_of(dimensions, cell);
      if (number >= 0) sum[{number, o, i}] += gradient_of(r, cell, o, i);
    });
  }
  std::vector<double> own(halo.elements(halo.own()));
  each_element(shape, layout.input().box(rank), [&](const Cell& cell, auto o, auto i, auto at) {
    own[at] = sum.at({number_of(dimensions, cell), o, i});
  });
  return own;
}

void adds(Axis& axis, const HaloShape& shape, const std::string& text) {
  Halo halo(axis, shape);
  std::vector<double> gradients(halo.elements(halo.padded()));
  each_element(shape, halo.padded(), [&](const Cell& cell, auto o, auto i, auto at) {
    gradients[at] = gradient_of(axis.rank(), cell, o, i);
  });
  std::vector<std::byte> block = as(shape.type, gradients);
  halo.exchange_backward(block.data());
  std::vector<std::byte> own(halo.elements(halo.own()) * size_of(shape.type));
  halo.extract(block.data(), own.data());
  EXPECT_EQ(own, as(shape.type, sums(halo, shape, axis.rank(), axis.size()))) << text;
}

class DomainHalo : public testing::TestWithParam<DataType> {};

TEST_P(DomainHalo, HasTheCellsOfOtherRanks) {
  for (DomainShape s : domain_shapes()) {
    s.shape.type = GetParam();
    run_thread_ranks(s.ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      exchanges(axis, s.shape, s.text());
    });
  }
}

TEST_P(DomainHalo, GivesGradientsBackToTheOwner) {
  for (DomainShape s : domain_shapes()) {
    s.shape.type = GetParam();
    run_thread_ranks(s.ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      adds(axis, s.shape, s.text());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DomainHalo,
                         testing::Values(DataType::float64, DataType::float32, DataType::bfloat16,
                                         DataType::int32),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST(DomainHalo, InsertsAndExtractsTheOwnBlock) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Stencil three{.kernel = 3, .padding = 1};
    const HaloShape shape{"", {{"y", 7, 2}, {"x", 9, 2}}, {three, three}, 2, 3, DataType::int32};
    Halo halo(axis, shape);
    std::vector<std::int32_t> own(halo.elements(halo.own())), back(own.size());
    std::vector<std::int32_t> padded(halo.elements(halo.padded()), -1);
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<std::int32_t>(i);
    halo.insert(own.data(), padded.data());
    std::int32_t next = 0;
    each_element(shape, halo.padded(), [&](const Cell& cell, auto, auto, auto at) {
      EXPECT_EQ(padded[at], contains(halo.own(), cell) ? next++ : -1);
    });
    halo.extract(padded.data(), back.data());
    EXPECT_EQ(back, own);
  });
}

/// Of numbers whose sum depends on the order.
TEST(DomainHalo, AddsTheSameBitsInEachRun) {
  std::vector<std::vector<float>> first(8);
  for (int run = 0; run < 3; ++run) {
    run_thread_ranks(8, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const Stencil five{.kernel = 5, .padding = 2};
      Halo halo(axis,
                {"", {{"y", 5, 4, Edge::periodic}, {"x", 4, 2, Edge::periodic}}, {five, five}, 3});
      std::vector<float> gradients(halo.elements(halo.padded()));
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        gradients[i] = std::sin(static_cast<float>(i * 31 + 7) * static_cast<float>(comm.rank()));
      }
      halo.exchange_backward(gradients.data());
      std::vector<float> own(halo.elements(halo.own()));
      halo.extract(gradients.data(), own.data());
      auto& known = first[static_cast<std::size_t>(comm.rank())];
      if (run == 0) known = own;
      EXPECT_EQ(std::memcmp(own.data(), known.data(), own.size() * 4), 0);
    });
  }
}

// --- Cost ----------------------------------------------------------------------------------------

/// With halos of width w and a plane of A cells of C channels: 2 messages and 2 w A C elements in
/// each dimension, each way, forward and backward; half of it at edges of zeros.
TEST(DomainHalo, CarriesWhatTheFormulaSays) {
  constexpr std::int64_t kWidth = 2, kY = 12, kX = 15, kChannels = 5;
  const Stencil five{.kernel = 2 * kWidth + 1, .padding = kWidth};
  for (const Edge edge : {Edge::zero, Edge::periodic}) {
    for (const bool corners : {true, false}) {
      run_thread_ranks(9, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        Halo halo(axis, {"",
                         {{"y", kY, 3, edge}, {"x", kX, 3, edge}},
                         {five, five},
                         kChannels,
                         1,
                         DataType::float64,
                         corners});
        const int y = comm.rank() / 3, x = comm.rank() % 3;
        const auto sides = [&](int at) { return edge == Edge::zero && at != 1 ? 1 : 2; };
        // The plane of the second dimension has the halo of the first, if there are corners.
        const std::int64_t height = kY / 3 + (corners ? sides(y) * kWidth : 0);
        const auto messages = static_cast<std::uint64_t>(sides(y) + sides(x));
        const auto bytes = static_cast<std::uint64_t>(
            (sides(y) * kWidth * (kX / 3) + sides(x) * kWidth * height) * kChannels * 8);
        std::vector<double> block(halo.elements(halo.padded()));
        for (const bool forward : {true, false}) {
          axis.reset_traffic();
          forward ? halo.exchange(block.data()) : halo.exchange_backward(block.data());
          // A send and a receive each.
          EXPECT_EQ(axis.traffic()[Collective::send_recv],
                    (Traffic::Count{2 * messages, bytes, bytes}));
          EXPECT_EQ(axis.traffic().total(), axis.traffic()[Collective::send_recv]);
        }
        // The messages of both directions, in pieces of 64 bytes; and a sum.
        EXPECT_GE(halo.memory().peak, 2 * bytes);
        EXPECT_LE(halo.memory().peak, 3 * bytes + 8 * 64);
      });
    }
  }
}

/// A link on which the halo takes as long as the interior: the wait all but disappears.
TEST(DomainHalo, TravelsWhileTheInteriorIsComputed) {
  using namespace std::chrono_literals;
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis beneath(comm);
    const Stencil three{.kernel = 3, .padding = 1};
    const HaloShape shape{
        "", {{"y", 64, 2, Edge::periodic}, {"x", 64, 2, Edge::periodic}}, {three, three}};
    for (const bool backward : {false, true}) {
      std::chrono::nanoseconds waited[2]{1h, 1h};
      for (int attempt = 0; attempt < 6; ++attempt) {
        const bool overlaps = attempt % 2 == 1;
        const double bytes = 2 * (32 + 34) * 4;
        ThrottledAxis axis(beneath, {.bytes_per_second = bytes / 0.1});
        Halo halo(axis, shape);
        std::vector<float> block(halo.elements(halo.padded()));
        axis.run(call_of(Collective::barrier, nullptr, nullptr, 0, DataType::uint8));
        axis.reset_traffic();
        backward ? halo.start_backward(block.data()) : halo.start(block.data());
        for (int part = 0; overlaps && part < 12; ++part) {
          std::this_thread::sleep_for(10ms);
          halo.progress();
        }
        halo.finish();
        auto& least = waited[overlaps ? 1 : 0];
        least = std::min(least, axis.traffic().waited);
      }
      EXPECT_GE(waited[0], 75ms);
      EXPECT_LE(waited[1], waited[0] / 2) << backward;  // 0, if the machine has time
    }
  });
}

TEST(DomainHalo, LeavesCollectivesAlone) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Halo halo(axis, {"", {{"x", 9, 3}}, {{.kernel = 3, .padding = 1}}});
    std::vector<float> block(halo.elements(halo.padded()), static_cast<float>(comm.rank()));
    halo.start(block.data());
    float one = 1, sum = 0;
    axis.run(call_of(Collective::all_reduce, &one, &sum, 1, DataType::float32));
    halo.finish();
    EXPECT_EQ(sum, 3);
    EXPECT_EQ(block.front(), static_cast<float>(comm.rank() == 0 ? 0 : comm.rank() - 1));
  });
}

// --- What goes wrong -----------------------------------------------------------------------------

TEST(DomainErrors, AllRanksAreToldOfADifference) {
  const Stencil three{.kernel = 3, .padding = 1};
  const HaloShape right{"conv1", {{"y", 8, 2}, {"x", 8, 2}}, {three, three}, 4};
  struct Wrong {
    HaloShape shape;
    std::string part;
  };
  std::vector<Wrong> wrong(7, {right, ""});
  wrong[0].shape.dimensions[0].ranks = 4, wrong[0].part = "8 cells over 4 ranks";
  wrong[1].shape.dimensions[1].edge = Edge::periodic, wrong[1].part = "periodic edges";
  wrong[2].shape.dimensions[1].blocks = {5, 3}, wrong[2].part = "x: blocks of [5, 3]";
  wrong[3].shape.stencils[0].stride = 2, wrong[3].part = "stride 2";
  wrong[4].shape.outer = 3, wrong[4].part = "'conv1' of 3 x cells";
  wrong[5].shape.type = DataType::float64, wrong[5].part = "float64";
  // A rank whose shape is not possible on its own.
  wrong[6].shape.dimensions[0].ranks = 3, wrong[6].part = "8 cells over 3 ranks";
  for (const Wrong& w : wrong) {
    run_thread_ranks(4, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const Error e = error_of([&] { Halo(axis, comm.rank() == 2 ? w.shape : right); });
      EXPECT_EQ(e.code(), ErrorCode::mismatch);
      EXPECT_EQ(e.rank(), 2);
      EXPECT_CONTAINS(e, "halo 'conv1' differs among the ranks: rank 2 has");
      EXPECT_CONTAINS(e, w.part);
      exchanges(axis, right, "after a refusal");  // the axis is as it was
    });
  }
}

TEST(DomainErrors, WhatIsImpossibleIsSaidOnAllRanks) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Stencil three{.kernel = 3, .padding = 1};
    const Error grid = error_of([&] {
      Halo(axis, {"conv1", {{"y", 8, 2}, {"x", 8, 3}}, {three, three}});
    });
    EXPECT_EQ(grid.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(grid, "halo 'conv1': the mesh y 2 x x 3 of 4 ranks");
    const Error cells = error_of([&] { Halo(axis, {"conv1", {{"x", 3, 4}}, {three}}); });
    EXPECT_EQ(cells.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(cells, "halo 'conv1': dimension x of 3 cells over 4 ranks");
    const Error none = error_of([&] { Halo(axis, {"conv1", {{"x", 8, 4}}, {three}, 0}); });
    EXPECT_CONTAINS(none, "0 x cells x 1 elements");
    // 4 TB of messages.
    const Error memory = error_of([&] {
      Halo(axis, {"conv1",
                  {{"y", 1'000'000, 4}, {"x", 1'000'000}},
                  {{.kernel = 900'001, .padding = 450'000}, {}}});
    });
    EXPECT_EQ(memory.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(memory, "halo 'conv1' needs");
  });
}

TEST(DomainErrors, AnExchangeIsFinishedBeforeTheNext) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const HaloShape shape{"conv1", {{"x", 8, 2}}, {{.kernel = 3, .padding = 1}}};
    Halo halo(axis, shape);
    std::vector<float> block(halo.elements(halo.padded()));
    const Error null = error_of([&] { halo.start(nullptr); });
    EXPECT_EQ(null.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(null, "halo 'conv1': the padded block is null");
    halo.start(block.data());
    const Error twice = error_of([&] { halo.start_backward(block.data()); });
    EXPECT_EQ(twice.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(twice, "halo 'conv1': an exchange is under way");
    halo.finish();
    halo.finish();  // nothing
    EXPECT_TRUE(halo.progress());
    exchanges(axis, shape, "after misuse");
  });
}

/// A rank gives up between two exchanges; the others are told in which halo they missed it.
TEST(DomainErrors, ARankThatGivesUpIsNamed) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm, {"domain", {4, 5, 6}});
    Halo halo(axis, {"conv1", {{"x", 9, 3}}, {{.kernel = 3, .padding = 1}}});
    std::vector<float> block(halo.elements(halo.padded()));
    if (comm.rank() == 2) return axis.abort("out of patience");
    const Error e = error_of([&] {
      for (int i = 0; i < 1000; ++i) halo.exchange(block.data());
    });
    EXPECT_EQ(e.code(), ErrorCode::aborted);
    EXPECT_CONTAINS(e, "halo 'conv1', forward, dimension x, ");
    EXPECT_CONTAINS(e, "on axis domain (ranks 4, 5, 6)");
    EXPECT_CONTAINS(e, "out of patience");
  });
}

}  // namespace
}  // namespace tutti
