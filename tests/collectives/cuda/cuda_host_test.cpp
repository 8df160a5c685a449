// The CUDA executor without a GPU: its step logic, compiled for the host, with a thread (or
// several) for each thread block.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/needs.h"
#include "device/team.h"
#include "execute/cuda/device_plan.h"
#include "tests/collectives/cuda/cuda_canonical.h"
#include "tests/collectives/cuda/cuda_cases.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace tutti::test {
namespace {

class CudaHost : public ::testing::TestWithParam<int> {};

TEST_P(CudaHost, EveryAlgorithmEveryBoundary) {
  HostDevice device;
  DeviceRanks all({device}, GetParam(), kSmallSlots);
  test_every_algorithm(all, kBoundaries);
}

TEST_P(CudaHost, EveryTypeAndOperator) {
  HostDevice device;
  DeviceRanks all({device}, GetParam(), kSmallSlots);
  test_every_type_and_operator(all, 700);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaHost, ::testing::Values(1, 2, 3, 4, 5, 8));

// Everything by every protocol, in ctest entries of its own (label `long`).
class CudaHostMatrix : public ::testing::TestWithParam<std::tuple<device::Protocol, int>> {};

TEST_P(CudaHostMatrix, EveryAlgorithmEveryBoundary) {
  const auto [protocol, ranks] = GetParam();
  HostDevice device;
  DeviceRanks all({device}, ranks, kSmallSlots);
  test_every_algorithm(all, kBoundaries, protocol);
}

INSTANTIATE_TEST_SUITE_P(Simple, CudaHostMatrix,
                         ::testing::Combine(::testing::Values(device::Protocol::simple),
                                            ::testing::Range(2, 9)));
INSTANTIATE_TEST_SUITE_P(Ll, CudaHostMatrix,
                         ::testing::Combine(::testing::Values(device::Protocol::ll),
                                            ::testing::Range(2, 9)));
INSTANTIATE_TEST_SUITE_P(Ll128, CudaHostMatrix,
                         ::testing::Combine(::testing::Values(device::Protocol::ll128),
                                            ::testing::Range(2, 9)));

// The data of messages outside of the segments, as where network cards reach the GPU's memory.
TEST(CudaHostApart, EveryAlgorithm) {
  for (const int ranks : {2, 3, 5}) {
    for (const auto data : {DeviceRanks::Data::apart, DeviceRanks::Data::in_segments}) {
      HostDevice device;
      DeviceRanks all({device}, ranks, kSmallSlots, data);
      std::size_t k = 0;
      for (const Algorithm& a : algorithms()) {
        if (!runs_on_gpus(a) || a.windows) continue;
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{513}, std::size_t{2049}}) {
          DeviceCase c = nth(a, ++k, ranks);
          c.protocol = device::Protocol::simple;
          c.bytes = bytes;
          ASSERT_EQ(all.run(c), 0U) << c.text(ranks);
        }
      }
      EXPECT_EQ(all.count_written() > 0, data == DeviceRanks::Data::in_segments);
    }
  }
}

// Several threads in a block: barriers stand where they must (ThreadSanitizer sees if not).
TEST(CudaHostBlocks, OfSeveralThreads) {
  HostDevice device({64, 32});
  DeviceRanks all({device}, 3, kSmallSlots);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    if (!runs_on_gpus(a)) continue;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1500}}) {
      for (const device::Protocol p : kProtocols) {
        DeviceCase c = nth(a, ++k, 3);
        c.protocol = p;
        c.bytes = bytes;
        ASSERT_EQ(all.run(c), 0U) << c.text(3);
      }
    }
  }
}

TEST(CudaHostBlocks, ShareTheTilesOfPlansThroughWindows) {
  HostDevice device;
  DeviceRanks all({device}, 2, kSmallSlots);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    if (!runs_on_gpus(a) || !a.windows) continue;
    DeviceCase c = nth(a, ++k, 2);
    c.copies = k % 4 == 0 ? 1 : 2;
    c.misalign = 0;
    c.bytes = (std::size_t{2} << 20) + 24;  // eight turns of 64 KiB for each of two pieces
    ASSERT_EQ(all.run(c), 0U) << c.text(2);
  }
}

/// Kernels run no wide plan of 16- and 8-bit floats, so such an algorithm serves wider types alone.
bool adds_partial_sums(const Algorithm& a, int ranks) {
  PlanRequest request;
  request.collective = a.collective;
  request.ranks = ranks;
  request.in_order = true;
  return a.generate(request, 0).header.format == Format::wide;
}

// The canonical order, by every plan that has it, each type, operator and protocol in turn.
TEST(CudaHostCanonical, HasTheBitsOfTheHosts) {
  constexpr DataType kFloats[] = {DataType::float16, DataType::bfloat16,    DataType::float32,
                                  DataType::float64, DataType::float8_e4m3, DataType::float8_e5m2};
  constexpr ReduceKind kKinds[] = {ReduceKind::sum, ReduceKind::avg, ReduceKind::pre_multiplied_sum,
                                   ReduceKind::prod};
  std::size_t k = 0;
  std::size_t told = 0;
  for (int ranks = 2; ranks <= 17; ++ranks) {
    HostDevice device;
    DeviceRanks all({device}, ranks, kSmallSlots);
    for (const Algorithm& a : algorithms()) {
      if (!a.invariant || a.groups != Algorithm::Groups::none || !runs_on_gpus(a) ||
          a.collective == Collective::reduce_scatter_v) {
        continue;
      }
      for (int i = 0; i < (ranks < 10 ? 3 : 1); ++i, ++k) {
        DeviceCase c = nth(a, k, ranks);
        c.canonical = true;
        c.type = kFloats[k % 6];
        if (size_of(c.type) < 4 && adds_partial_sums(a, ranks)) c.type = kFloats[2 + k % 2];
        c.kind = kKinds[k / 6 % 4];
        c.bytes = kBoundaries[k % std::size(kBoundaries)] / (ranks < 10 ? 1 : 4) + 8;
        std::size_t in_turn = 0;
        ASSERT_EQ(run_canonical(all, c, &in_turn), 0U) << c.text(ranks);
        if (in_turn > 0) ++told;
      }
    }
  }
  EXPECT_GT(told, k / 3) << "the order cannot be told";
}

TEST(CudaProtocols, AreReadFromText) {
  using device::protocols_from;
  const auto text = [](std::string_view list) {
    const device::Protocols p = protocols_from(list);
    return std::string(p.simple ? "s" : "") + (p.ll ? "l" : "") + (p.ll128 ? "L" : "");
  };
  EXPECT_EQ(text(""), "slL");
  EXPECT_EQ(text("LL"), "l");
  EXPECT_EQ(text("Simple,ll128"), "sL");
  EXPECT_EQ(text("^LL128"), "sl");
  EXPECT_EQ(text("^ll,simple"), "L");
  for (const char* bad : {"^", ",", "ll,", "ll ", "ll:2", "LL64", "^ll,ll128,simple"}) {
    EXPECT_THROW(protocols_from(bad), Error) << bad;
  }
}

TEST(CudaProtocols, AreChosenOfThoseAllowed) {
  PlanHeader plan;
  plan.ranks = 2;
  device::Traits t;
  t.most_blocks = 8;
  const auto chosen = [&](std::size_t bytes, std::string_view allowed, bool whole_lines = true) {
    t.bytes = t.block = bytes;
    t.allowed = device::protocols_from(allowed);
    t.whole_lines = whole_lines;
    return device::choose(plan, t, kSmallSlots).protocol;
  };
  using enum device::Protocol;
  EXPECT_EQ(chosen(8, ""), ll);
  EXPECT_EQ(chosen(8, "^ll"), ll128);
  EXPECT_EQ(chosen(8, "^ll", false), simple);
  constexpr std::size_t kBetween = 256 << 10;
  EXPECT_EQ(chosen(kBetween, ""), ll128);
  EXPECT_EQ(chosen(kBetween, "^ll128"), simple);
  EXPECT_EQ(chosen(kBetween, "", false), simple);
  EXPECT_EQ(chosen(1 << 20, ""), simple);
  EXPECT_EQ(chosen(1 << 30, ""), simple);
  EXPECT_EQ(chosen(1 << 30, "ll"), ll);
  EXPECT_EQ(chosen(1 << 30, "ll,ll128"), ll128);
  EXPECT_EQ(chosen(8, "ll128", false), simple) << "which every link can do";
  t.sums = false;
  EXPECT_EQ(chosen(kBetween, ""), simple) << "LL128 reduces by sums alone";
}

// An H200 has 132 multiprocessors; four stay free. From 16 MiB on all others are used, whatever the
// number of ranks, and no copy has more tiles than another.
TEST(CudaBlocks, FillAGpuEvenly) {
  PlanHeader plan;
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    plan.ranks = ranks;
    plan.pieces = ranks;
    device::SegmentShape shape = device_segment(static_cast<int>(ranks));
    device::Traits t;
    t.element_bytes = 4;
    t.most_blocks = 128 / ranks;
    t.windows = true;
    t.link_data = false;
    for (std::size_t mib = 16; mib <= 4096; mib *= 2) {
      t.bytes = mib << 20;
      t.block = t.bytes / t.element_bytes;
      const device::Choice c = device::choose(plan, t, shape);
      EXPECT_GE(ranks * c.copies, 120U) << ranks << " ranks, " << mib << " MiB";
      EXPECT_EQ(c.tiling.tiles % c.copies, 0U) << ranks << " ranks, " << mib << " MiB";
      t.from_inputs = true;
      EXPECT_EQ(device::choose(plan, t, shape).shares_tiles, mib >= 64)
          << ranks << " ranks, " << mib << " MiB";
      t.from_inputs = false;
    }
    // Through slots: as many as there are connections with data.
    t.windows = false;
    t.link_data = true;
    for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{3} << 20}) {
      t.bytes = bytes;
      t.block = bytes / t.element_bytes;
      const device::Choice c = device::choose(plan, t, shape);
      EXPECT_EQ(c.tiling.tiles % c.copies, 0U) << ranks << " ranks, " << bytes << " bytes";
    }
  }
}

// --- Exchanges -----------------------------------------------------------------------------------

/// The first action of rank 0, and its last move.
struct First {
  device::DeviceAction action;
  device::DeviceMove move;
};
First first_of(Collective collective, const char* algorithm, device::Protocol protocol,
               bool scales) {
  PlanRequest request;
  request.collective = collective;
  request.ranks = 2;
  const Plan plan = generate_plan(*find_algorithm(collective, algorithm), request);
  device::DeviceCall call;
  call.plan = &plan.ranks[0];
  call.type = DataType::float32;
  call.in.count = call.out.count = 64;
  call.choice.protocol = protocol;
  call.choice.tiling = Tiling::of(64, 4, plan.header.pieces, 256);
  call.windows = needs_of(plan).path.windows;
  call.scales = scales;
  const std::vector<std::byte> block = device::build_plan_block(call);
  device::PlanBlock header;
  std::memcpy(&header, block.data(), sizeof header);
  First first;
  std::memcpy(&first.action, block.data() + header.action, sizeof first.action);
  const std::size_t last = first.action.first_move + first.action.moves - 1;
  if (first.action.moves > 0) {
    std::memcpy(&first.move, block.data() + header.move + last * sizeof first.move,
                sizeof first.move);
  }
  return first;
}

TEST(CudaExchanges, AreOneActionWhereNobodyWaitsBeforeItHasSent) {
  using enum device::Protocol;
  const First words = first_of(Collective::all_reduce, "one_shot", ll, false);
  EXPECT_EQ(words.action.steps, 2U);
  EXPECT_EQ(words.action.receives, 1U);
  EXPECT_EQ(words.action.sends, 1U);
  EXPECT_EQ(words.action.moves, 2U);
  EXPECT_EQ(words.action.completes, 1U);
  EXPECT_EQ(words.move.looked_up, 0U) << "with those of the first";
  EXPECT_EQ(words.move.first_target, 2U) << "a slot and the input: nothing is kept in the output";
  EXPECT_EQ(words.move.plain, 1U);
  // A message that waits for its header waits before it is moved; results are divided, and no
  // message.
  EXPECT_EQ(first_of(Collective::all_reduce, "one_shot", simple, false).action.steps, 1U);
  EXPECT_EQ(first_of(Collective::all_reduce, "one_shot", ll128, false).action.steps, 1U);
  EXPECT_EQ(first_of(Collective::all_reduce, "one_shot", ll, true).action.steps, 1U);
  // In place an input lies elsewhere in the output.
  EXPECT_EQ(first_of(Collective::all_gather, "direct", ll, false).action.steps, 1U);
  const First signals = first_of(Collective::all_reduce, "two_shot_window", simple, false);
  EXPECT_EQ(signals.action.steps, 2U);
  EXPECT_EQ(signals.action.moves, 0U);
}

}  // namespace
}  // namespace tutti::test
