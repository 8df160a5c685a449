// Each order and barrier of a kernel weakened in turn: some trial notices, or it is one of those
// that the table below has with a reason.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/ptx/mutations.h"
#include "tests/ptx/trials.h"

namespace tutti::ptx {
namespace {

using enum device::KernelKind;

/// Lines of the PTX that the trials execute.
std::set<std::uint32_t> lines_reached(DataType type, const std::string& text) {
  PtxDevice device(1);
  device.short_kernels = false;  // their orders are those of the kernel that can do all
  for (const device::KernelKind kind : {any, canonical}) {
    if (kind == canonical && !is_float(type)) continue;
    device.programs[{type, kind}] = kernel_program(text, {type, kind});
  }
  for (const Trial& trial : trials()) EXPECT_EQ(attempt(trial, device, type), "");
  std::set<std::uint32_t> lines;
  for (const auto& [name, program] : device.programs) {
    if (name.kind == canonical) continue;  // its orders are those of the other kernel
    const auto& executed = device.machine.executed[program.get()];
    for (std::size_t i = 0; i < executed.size(); ++i) {
      if (executed[i] > 0) lines.insert(program->ops[i].line);
    }
  }
  return lines;
}

/// How many of these nobody notices, at most.
const std::map<std::string, int> kUnnoticed = {
    // What was there before the launch (the number of the operation, whether the rank has failed,
    // limits), a peer's scalar that the block has noted, and what judge() asks of its rank's state.
    {"ld.relaxed.sys.u64 -> ld.relaxed.cta.u64", 7},
    {"ld.relaxed.sys.u64 -> ld.u64", 6},
    // The first credit of a launch; the meeting of a copy's lanes; a report that the host has read.
    {"ld.acquire.sys.u64 -> ld.acquire.cta.u64", 1},
    {"ld.acquire.sys.u64 -> ld.relaxed.sys.u64", 3},
    // That meeting, and the end of a lane; what judge() has reported.
    {"st.release.sys.u64 -> st.relaxed.sys.u64", 4},
    {"st.release.sys.u64 -> st.release.cta.u64", 2},
    // The count of a rank's blocks that have ended: the last one only writes counters.
    {"atom.global.add.acq_rel.gpu.u64 -> atom.global.add.relaxed.gpu.u64", 1},
    // Which block reports: what it writes then depends on the claim.
    {"atom.global.cas.acquire.gpu.b64 -> atom.global.cas.acquire.cta.b64", 1},
    {"atom.global.cas.acquire.gpu.b64 -> atom.global.cas.relaxed.gpu.b64", 1},
    // Counters for the next launch, and reports for the host, which the claim and the release at
    // their end put in order.
    {"st.relaxed.sys.u64 -> st.relaxed.cta.u64", 12},
    {"st.relaxed.sys.u64 -> st.u64", 12},
    // A slot that is cleaned: the same thread block fills it after a barrier.
    {"st.relaxed.sys.v2.u64 -> st.relaxed.cta.v2.u64", 2},
    {"st.relaxed.sys.v2.u64 -> st.v2.u64", 2},
    // Threads come together here without it, mostly; that they do is for one access to a line.
    {"bar.warp.sync -> ", 3},
    // The end of the meeting of a copy's lanes.
    {"bar.red.and.pred -> mov.pred", 1},
};

/// Every mutation of a type's kernel with a number that `every` divides.
void expect_noticed(DataType type, std::size_t every) {
  const char* const which = std::getenv("TUTTI_PTX_MUTATION");  // a line: that one alone, and told
  const std::string text = kernel_text(type, 90);
  if (text.empty()) GTEST_SKIP() << "nvcc is missing: no PTX";
  const std::set<std::uint32_t> reached = lines_reached(type, text);
  int noticed = 0;
  int beyond = 0;
  std::size_t number = 0;
  std::map<std::string, int> unnoticed;
  for (const Mutation& m : mutations_of(text)) {
    if (which != nullptr && m.line != static_cast<std::uint32_t>(std::atoi(which))) continue;
    if (!reached.contains(m.line)) {
      ++beyond;
      continue;
    }
    // Spread, as mutations of one instruction follow each other.
    if (which == nullptr && (number++ * 0x9e3779b97f4a7c15ULL >> 32) % every != 0) continue;
    std::string what;
    for (const Trial& trial : trials()) {
      PtxDevice device(m.line);
      device.machine.most_steps = 30'000'000;
      const std::string mutant = mutated(text, m);
      device.short_kernels = false;
      for (const device::KernelKind kind : {any, canonical}) {
        if (kind == canonical && !is_float(type)) continue;
        device.programs[{type, kind}] = kernel_program(mutant, {type, kind});
      }
      what = attempt(trial, device, type);
      if (!what.empty()) break;
    }
    if (which != nullptr) fmt::print("{} -> {}: {}\n", m.from, m.to, what);
    if (what.empty()) {
      fmt::print("not noticed: PTX line {} ({}): {} -> {}\n", m.line, m.source, m.from, m.to);
      std::fflush(stdout);
      ++unnoticed[fmt::format("{} -> {}", m.from, m.to)];
    } else {
      ++noticed;
    }
  }
  int all = noticed;
  for (const auto& [mutation, times] : unnoticed) all += times;
  fmt::print(
      "{}: {} of {} mutations were noticed; {:.0f} % of all that the trials reach; {} are of "
      "lines that no trial reaches\n",
      name(type), noticed, all, 100.0 * all / std::max<double>(1, static_cast<double>(number)),
      beyond);
  if (which != nullptr) return;
  EXPECT_GE(noticed, all / 2);
  for (const auto& [mutation, times] : unnoticed) {
    const auto known = kUnnoticed.find(mutation);
    EXPECT_LE(times, known == kUnnoticed.end() ? 0 : known->second) << mutation;
  }
}

TEST(LongMutations, EachOfInt32) { expect_noticed(DataType::int32, 1); }
// The code that moves data differs from type to type, but few of its orders do: a sample.
TEST(LongMutations, SomeOfFloat32) { expect_noticed(DataType::float32, 4); }
TEST(LongMutations, SomeOfBfloat16) { expect_noticed(DataType::bfloat16, 4); }
TEST(LongMutations, SomeOfFloat8) { expect_noticed(DataType::float8_e4m3, 6); }

}  // namespace
}  // namespace tutti::ptx
