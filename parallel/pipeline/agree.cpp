#include "parallel/pipeline/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "core/error.h"
#include "parallel/memory_need.h"
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

/// What is missing in `stages` for such work: "no forward"; "": nothing.
std::string missing(Work work, const Stages& stages) {
  const bool inputs = stages.backward_inputs != nullptr;
  const bool weights = stages.backward_weights != nullptr;
  switch (work) {
    case Work::forward:
      return stages.forward ? "" : "no forward";
    case Work::backward_inputs:
      return inputs ? "" : "no backward_inputs";
    case Work::backward_weights:
      return weights ? "" : "no backward_weights";
    case Work::backward:
      break;
  }
  if (stages.backward || (inputs && weights)) return "";
  if (inputs) return "backward_inputs without backward_weights (and no backward)";
  if (weights) return "backward_weights without backward_inputs (and no backward)";
  return "no backward (nor backward_inputs and backward_weights)";
}

/// Throws Error for what cannot run here.
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
    const std::string what = missing(a.work, stages);
    if (what.empty()) continue;
    refuse(fmt::format("for {} rank {} has {}", to_string(a), axis.world_rank(axis.rank()), what));
  }
}

}  // namespace

void agree(Axis& axis, const Schedule& s, const std::vector<std::size_t>& bytes,
           const Stages& stages, const std::function<std::uint64_t()>& lay_out,
           const std::function<void()>& allocate) {
  /// What a rank says of itself.
  struct Said {
    std::uint64_t fingerprint = 0;  // 0: it refuses
    MemoryNeed need;
  };
  constexpr std::size_t kWords = sizeof(Said) / sizeof(std::uint64_t);
  const std::string what = fmt::format("the pipeline schedule {}", s.name);
  const auto no_memory = [&](std::string_view why) {
    const int rank = axis.world_rank(axis.rank());
    return std::make_exception_ptr(
        Error(ErrorCode::system,
              fmt::format("there is no memory for {} on rank {}: {}", what, rank, why), rank));
  };
  std::exception_ptr refusal;
  Said own;
  try {
    check(axis, s, bytes, stages);
    own.need = MemoryNeed::now(lay_out());
    if (own.need.bytes <= own.need.available) allocate();
    own.fingerprint = fingerprint(s, bytes);
  } catch (const std::bad_alloc&) {
    refusal = no_memory("the program's memory is at an end");
  } catch (const Error& e) {
    refusal = e.code() == ErrorCode::system ? no_memory(e.what()) : std::current_exception();
  } catch (...) {
    refusal = std::current_exception();
  }
  std::vector<Said> all(index(axis.size()));
  axis.all_gather(&own, all.data(), kWords, DataType::uint64).wait();
  std::vector<MemoryNeed> needs;
  for (const Said& said : all) needs.push_back(said.need);
  check_memory(what + " (its buffers)", needs, [&](int r) { return axis.world_rank(r); });
  if (refusal) std::rethrow_exception(refusal);
  for (int r = 0; r < axis.size(); ++r) {
    const std::uint64_t its = all[index(r)].fingerprint;
    if (its == own.fingerprint) continue;
    const int other = axis.world_rank(r);
    throw Error(
        ErrorCode::mismatch,
        fmt::format(
            "{} of rank {} cannot run: rank {} {}", what, axis.world_rank(axis.rank()), other,
            its == 0 ? "refuses to run it; its error says why" : "has another one, or other sizes"),
        other);
  }
}

}  // namespace tutti::parallel::pipeline
