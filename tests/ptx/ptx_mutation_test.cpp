// Each order and barrier of a kernel weakened in turn: some trial notices, or the table below says
// why none can.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/ptx/mutations.h"
#include "tests/ptx/trials.h"

namespace tutti::ptx {
namespace {

/// Lines of the PTX that the trials execute.
std::set<std::uint32_t> lines_reached(const std::string& text) {
  const auto program = make_program(text);
  PtxDevice device(1);
  device.programs[DataType::int32] = program;
  for (const Trial& trial : trials()) EXPECT_EQ(attempt(trial, device, DataType::int32), "");
  const auto& executed = device.machine.executed[program.get()];
  std::set<std::uint32_t> lines;
  for (std::size_t i = 0; i < executed.size(); ++i) {
    if (executed[i] > 0) lines.insert(program->ops[i].line);
  }
  return lines;
}

TEST(LongMutations, EachIsNoticed) {
  const char* const which = std::getenv("TUTTI_PTX_MUTATION");  // a line: that one alone, and told
  const std::string text = kernel_text(DataType::int32, 90);
  if (text.empty()) GTEST_SKIP() << "nvcc is missing: no PTX";
  const std::set<std::uint32_t> reached = lines_reached(text);
  int noticed = 0;
  int beyond = 0;
  std::map<std::string, int> unnoticed;
  for (const Mutation& m : mutations_of(text)) {
    if (which != nullptr && m.line != static_cast<std::uint32_t>(std::atoi(which))) continue;
    if (!reached.contains(m.line)) {
      ++beyond;
      continue;
    }
    std::string what;
    for (const Trial& trial : trials()) {
      PtxDevice device(m.line);
      device.machine.most_steps = 30'000'000;
      device.programs[DataType::int32] = make_program(mutated(text, m));
      what = attempt(trial, device, DataType::int32);
      if (!what.empty()) break;
    }
    if (which != nullptr) fmt::print("{} -> {}: {}\n", m.from, m.to, what);
    if (what.empty()) {
      fmt::print("not noticed: PTX line {} ({}): {} -> {}\n", m.line, m.source, m.from, m.to);
      std::fflush(stdout);
      ++unnoticed[fmt::format("{} {} -> {}", m.source, m.from, m.to)];
    } else {
      ++noticed;
    }
  }
  fmt::print("{} mutations were noticed; {} are of lines that no trial reaches\n", noticed, beyond);
  for (const auto& [mutation, times] : unnoticed)
    fmt::print("not noticed: {} x {}\n", times, mutation);
}

}  // namespace
}  // namespace tutti::ptx
