#include "parallel/pipeline/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "core/error.h"
#include "parallel/pipeline/verify.h"

namespace tutti::parallel::pipeline {
namespace {

/// A number that differs where schedules or sizes do; never 0.
std::uint64_t fingerprint(const Schedule& s, const std::vector<std::size_t>& bytes) {
  std::uint64_t hash = 0xcbf2'9ce4'8422'2325;  // FNV-1a, word by word
  const auto add = [&](std::uint64_t word) { hash = (hash ^ word) * 0x100'0000'01b3; };
  const auto add_all = [&](const auto& numbers) {
    add(numbers.size());
    for (const auto n : numbers) add(static_cast<std::uint64_t>(n));
  };
  add(index(s.micro_batches));
  add(index(s.buffers));
  add_all(s.placement);
  add_all(bytes);
  for (const auto& actions : s.actions) {
    add(actions.size());
    for (const Action& a : actions) {
      add(index(a.stage) << 34 | index(a.micro_batch) << 2 | static_cast<std::uint64_t>(a.work));
    }
  }
  return std::max<std::uint64_t>(hash, 1);
}

void check(const Axis& axis, const Schedule& s, const std::vector<std::size_t>& bytes,
           const Stages& stages) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the pipeline schedule {} cannot run here: {}", s.name, why),
                axis.world_rank(axis.rank()));
  };
  require_proof(s);
  if (s.ranks() != axis.size()) {
    refuse(fmt::format("it is for {} ranks, and the axis has {}", s.ranks(), axis.size()));
  }
  if (bytes.size() != index(s.stages() - 1)) {
    refuse(fmt::format("there are {} sizes of what goes from a stage to the next, and {} stages",
                       bytes.size(), s.stages()));
  }
  constexpr std::size_t kMostBytes = std::size_t{1} << 44;  // so that those of all are a number
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    if (bytes[b] <= kMostBytes) continue;
    refuse(
        fmt::format("{} bytes go from stage {} to the next: more than there can be", bytes[b], b));
  }
  for (const Action& a : s.actions[index(axis.rank())]) {
    const auto needs = [&](bool has, std::string_view function) {
      if (!has)
        refuse(fmt::format("rank {} has no {} for {}", axis.world_rank(axis.rank()), function,
                           to_string(a)));
    };
    const bool whole = a.work == Work::backward;
    if (a.work == Work::forward) needs(stages.forward != nullptr, "forward");
    if (whole && stages.backward) continue;
    if (whole || a.work == Work::backward_inputs) {
      needs(stages.backward_inputs != nullptr, "backward_inputs");
    }
    if (whole || a.work == Work::backward_weights) {
      needs(stages.backward_weights != nullptr, "backward_weights");
    }
  }
}

}  // namespace

void agree(Axis& axis, const Schedule& s, const std::vector<std::size_t>& bytes,
           const Stages& stages) {
  std::exception_ptr refusal;
  std::uint64_t own = 0;
  try {
    check(axis, s, bytes, stages);
    own = fingerprint(s, bytes);
  } catch (...) {
    refusal = std::current_exception();
  }
  std::vector<std::uint64_t> all(index(axis.size()));
  axis.all_gather(&own, all.data(), 1, DataType::uint64).wait();
  if (refusal) std::rethrow_exception(refusal);
  for (int r = 0; r < axis.size(); ++r) {
    if (all[index(r)] == own) continue;
    const int other = axis.world_rank(r);
    const std::string what =
        all[index(r)] == 0 ? fmt::format("rank {} refuses to run it; its error says why", other)
                           : fmt::format("rank {} has another one, or other sizes", other);
    throw Error(ErrorCode::mismatch,
                fmt::format("the pipeline schedule {} of rank {} cannot run: {}", s.name,
                            axis.world_rank(axis.rank()), what),
                other);
  }
}

}  // namespace tutti::parallel::pipeline
