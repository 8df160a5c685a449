// What a call costs in instructions, counted as the kernel's PTX runs: warps' instructions by kind.
// The predictions of docs/gpu-status.md rest on these.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/collectives/cuda/cuda_matrix.h"
#include "tests/ptx/ptx_device.h"

namespace tutti::ptx {
namespace {

using Counts = std::map<std::string, double>;

std::string kind_of(const Op& op, const std::string& text) {
  const bool strong = op.order != Order::weak;
  switch (op.kind) {
    case Kind::barrier:
      return "barriers";
    case Kind::meet:
    case Kind::vote:
      return "meetings of a warp";
    case Kind::exchange:
      return "atomics";
    case Kind::fence:
      return "fences";
    case Kind::load:
      if (op.space == Space::shared) return "loads, shared";
      if (op.space == Space::param) return "loads, parameters";
      if (op.order == Order::acquire) return "loads, acquire";
      return strong ? "loads, relaxed" : "loads, weak";
    case Kind::store:
      if (op.space == Space::shared) return "stores, shared";
      if (op.order == Order::release) return "stores, release";
      return strong ? "stores, relaxed" : "stores, weak";
    default:
      // Of registers, which ptxas renames.
      return text.starts_with("mov.") ? "moves" : "others";
  }
}

/// Of one all_reduce of two ranks with a block each, once it has run before.
Counts count(const char* algorithm, DataType type, device::Protocol protocol, std::size_t bytes) {
  PtxDevice device(1);
  device.machine.memory.weak = false;
  device::SegmentShape shape = test::kSmallSlots;
  shape.ll_bytes = shape.ll128_bytes = shape.simple_bytes = 64 << 10;
  test::DeviceRanks ranks({device}, 2, shape);
  test::DeviceCase c;
  c.algorithm = find_algorithm(Collective::all_reduce, algorithm);
  c.type = type;
  c.kind = ReduceKind::sum;
  c.bytes = bytes;
  c.protocol = protocol;
  c.copies = 1;
  EXPECT_EQ(ranks.run(c), 0U);
  auto& executed = device.machine.executed;
  executed.clear();
  EXPECT_EQ(ranks.run(c), 0U);
  Counts counts;
  for (int kind = 0; kind < device::kKernelKinds; ++kind) {  // one of which has run
    const auto program = kernel_program({type, static_cast<device::KernelKind>(kind)}, 90);
    const auto& times = executed[program.get()];
    for (std::size_t i = 0; i < times.size(); ++i) {
      counts[kind_of(program->ops[i], program->texts[i])] += static_cast<double>(times[i]);
      counts["all"] += static_cast<double>(times[i]);
    }
  }
  return counts;
}

TEST(Counts, OfASmallCallAndOfAKiB) {
  if (kernel_text(DataType::float32, 90).empty()) GTEST_SKIP() << "nvcc is missing: no PTX";
  for (const device::Protocol p : test::kProtocols) {
    fmt::print("8 B, one_shot, protocol {}: of both blocks, 32 warps\n", static_cast<int>(p));
    Counts counts = count("one_shot", DataType::float32, p, 8);
    for (const auto& [kind, n] : counts) fmt::print("  {:22} {:8.0f}\n", kind, n);
    EXPECT_LE(counts["barriers"], 9 * 32);
    if (p == device::Protocol::simple) {
      EXPECT_GT(counts["stores, release"] + counts["fences"], 0);
    } else {
      // No order on the path of a message.
      EXPECT_EQ(counts["stores, release"] + counts["fences"] + counts["atomics"], 0);
    }
  }
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    const std::size_t small = 256 << 10;
    const Counts less = count("two_shot_window", type, device::Protocol::simple, small);
    Counts more = count("two_shot_window", type, device::Protocol::simple, 2 * small);
    // Each rank reads half of both inputs, and writes it to both outputs: 2 KiB of each, for a KiB.
    fmt::print("two_shot_window, {}: instructions of warps for 8 KiB moved\n", name(type));
    for (auto& [kind, n] : more) {
      const auto before = less.find(kind);
      n -= before == less.end() ? 0 : before->second;
      n /= 4.0 * static_cast<double>(small) / 8192;
      fmt::print("  {:22} {:8.1f}\n", kind, n);
    }
    // Accesses of 16 bytes, each byte once.
    EXPECT_NEAR(more["loads, weak"], 8, 0.5);
    EXPECT_NEAR(more["stores, weak"], 8, 0.5);
  }
}

}  // namespace
}  // namespace tutti::ptx
