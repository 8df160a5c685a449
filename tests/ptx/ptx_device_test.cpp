// The kernels that ship, as PTX, through what the CUDA executor's tests do on every device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <tuple>

#include "tests/collectives/cuda/cuda_cases.h"
#include "tests/ptx/trials.h"

namespace tutti::ptx {
namespace {

using test::DeviceRanks;

/// Where nvcc is missing there is no PTX.
class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kernel_text(DataType::float32, 90).empty()) GTEST_SKIP() << "nvcc is missing: no PTX";
  }
};
template <class Parameter>
class PtxWith : public Ptx, public ::testing::WithParamInterface<Parameter> {};

// --- The default run -----------------------------------------------------------------------------

class PtxRanks : public PtxWith<int> {};

TEST_P(PtxRanks, EveryAlgorithmHasEveryBit) {
  PtxDevice device(7);
  device.short_kernels = GetParam() % 2 == 1;
  DeviceRanks all({device}, GetParam(), test::kSmallSlots);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    if (!test::runs_on_gpus(a)) continue;
    test::DeviceCase c = test::nth(a, ++k, all.size());
    c.bytes = test::kBoundaries[k % std::size(test::kBoundaries)];
    ASSERT_EQ(all.run(c), 0U) << c.text(all.size());
  }
}
INSTANTIATE_TEST_SUITE_P(Few, PtxRanks, ::testing::Values(1, 2, 3, 5));
INSTANTIATE_TEST_SUITE_P(Long, PtxRanks, ::testing::Values(4, 6, 7, 8));

TEST_F(Ptx, EveryTypesKernelSums) {
  for (int t = 0; t < kDataTypes; ++t) {
    for (const int architecture : {80, 90, 100}) {
      if (architecture != 90 && static_cast<DataType>(t) != DataType::float8_e4m3) continue;
      PtxDevice device(static_cast<std::uint64_t>(t), architecture);
      DeviceRanks ranks({device}, 2, test::kSmallSlots);
      test::DeviceCase c;
      c.algorithm = find_algorithm(Collective::all_reduce, "ring");
      c.type = static_cast<DataType>(t);
      c.kind = ReduceKind::sum;
      c.bytes = 1000;
      c.protocol = test::kProtocols[t % 3];
      ASSERT_EQ(ranks.run(c), 0U) << c.text(2) << " compute_" << architecture;
    }
  }
}

TEST_F(Ptx, WhatIsWrongIsFound) {
  for (const Trial& trial : trials()) {
    if (trial.name != "deadline" && trial.name != "mismatch" && trial.name != "abort" &&
        trial.name != "window" && trial.name != "messages" && trial.name != "apart") {
      continue;
    }
    PtxDevice device(11);
    ASSERT_EQ(attempt(trial, device, DataType::int32), "") << trial.name;
  }
}

TEST_F(Ptx, TheCanonicalOrderHasTheBitsOfTheHosts) {
  for (const DataType type : {DataType::bfloat16, DataType::float8_e4m3, DataType::float32}) {
    for (const Trial& trial : trials()) {
      if (trial.name != "canonical") continue;
      PtxDevice device(13);
      ASSERT_EQ(attempt(trial, device, type), "") << name(type);
    }
  }
}

// --- Long ----------------------------------------------------------------------------------------

class PtxTypes : public PtxWith<std::tuple<int, int>> {};

void expect_passes(const KernelName& kernel, int architecture) {
  using enum device::KernelKind;
  PtxDevice device(1, architecture);
  device.canonical = kernel.kind == canonical;
  device.short_kernels = kernel.kind == words || kernel.kind == windows;
  for (const Trial& trial : trials()) {
    ASSERT_EQ(attempt(trial, device, kernel.type), "")
        << trial.name << " " << name(kernel.type) << " compute_" << architecture;
  }
  const auto program = kernel_program(kernel, architecture);
  const auto& executed = device.machine.executed[program.get()];
  std::size_t reached = 0;
  std::string rest;
  std::map<std::string, bool> lines;  // of the source: reached
  for (std::uint32_t i = 0; i < executed.size(); ++i) {
    bool& line = lines[program->module.places[program->ops[i].source]];
    if (executed[i] > 0) {
      ++reached;
      line = true;
    } else {
      rest += program->place(i) + "\n";
    }
  }
  std::size_t lines_reached = 0;
  for (const auto& [line, is_reached] : lines) lines_reached += is_reached ? 1 : 0;
  const auto share = [](std::size_t part, std::size_t all) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(all);
  };
  constexpr const char* kNames[] = {"", ", words", ", windows", ", canonical"};
  fmt::print("{}{} compute_{}: {:.1f} % of {} lines, {:.1f} % of {} instructions\n",
             name(kernel.type), kNames[static_cast<std::size_t>(kernel.kind)], architecture,
             share(lines_reached, lines.size()), lines.size(), share(reached, executed.size()),
             executed.size());
  // No plan of these trials needs the rest. Types of 8 bytes never have a part of a word, which is
  // more of a short kernel, and the canonical order has levels for more sources than the ranks of
  // these trials.
  const bool whole_words = size_of(kernel.type) == 8;
  EXPECT_GE(share(lines_reached, lines.size()), device.short_kernels && whole_words ? 93 : 95)
      << rest;
  const double least = kernel.kind == canonical ? 85
                       : device.short_kernels   ? (whole_words ? 88 : 90)
                       : whole_words            ? 93
                                                : 95;
  EXPECT_GE(share(reached, executed.size()), least) << rest;
  if (std::getenv("TUTTI_PTX_REST") != nullptr) fmt::print("{}", rest);
}

TEST_P(PtxTypes, PassEveryTrial) {
  const auto type = static_cast<DataType>(std::get<0>(GetParam()));
  const int architecture = std::get<1>(GetParam());
  if (kernel_text(type, architecture).empty()) GTEST_SKIP() << "`make test-ptx` makes this PTX";
  using enum device::KernelKind;
  for (const device::KernelKind kind : {any, words, windows}) {
    expect_passes({type, kind}, architecture);
  }
  if (is_float(type)) expect_passes({type, canonical}, architecture);
}
INSTANTIATE_TEST_SUITE_P(Long, PtxTypes,
                         ::testing::Combine(::testing::Range(0, kDataTypes),
                                            ::testing::Values(80, 90, 100)));

void run_schedules(int seeds) {
  const std::clock_t began = std::clock();
  PtxDevice device;
  DeviceRanks ranks({.device = device, .wait = [&device] { device.wait(); }}, 2, test::kSmallSlots);
  for (int seed = 0; seed < seeds; ++seed) {
    device.machine.reseed(static_cast<std::uint64_t>(seed));
    device.machine.longest_turn = seed % 4 == 0 ? 16 : 256;
    device.apart = seed % 5 == 0;
    test::DeviceCase c;
    c.algorithm = find_algorithm(Collective::all_reduce, seed % 2 == 0 ? "ring" : "one_shot");
    c.type = DataType::float32;
    c.kind = ReduceKind::sum;
    c.bytes = static_cast<std::size_t>(seed % 7) * 40 + 8;
    c.protocol = test::kProtocols[seed % 3];
    ASSERT_EQ(ranks.run(c), 0U) << "seed " << seed << ": " << c.text(2);
  }
  const double millions = 1e6 * static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  fmt::print(
      "{} schedules; a second of CPU time: {:.1f} million instructions of warps, {:.0f} of "
      "threads\n",
      seeds, static_cast<double>(device.machine.steps) / millions,
      static_cast<double>(device.machine.thread_steps) / millions);
}

TEST_F(Ptx, ManySchedulesHaveEveryBit) { run_schedules(500); }

// TUTTI_PTX_SEEDS: how many.
TEST_F(Ptx, LongManySchedulesHaveEveryBit) {
  const char* const text = std::getenv("TUTTI_PTX_SEEDS");
  run_schedules(text != nullptr ? std::atoi(text) : 10'000);
}

}  // namespace
}  // namespace tutti::ptx
