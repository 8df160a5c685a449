#include "parallel/pipeline/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/memory_need.h"
#include "parallel/pipeline/verify.h"

namespace tutti::parallel::pipeline {
namespace {

/// A number that differs where schedules, sizes or kinds of memory do; never 0.
std::uint64_t fingerprint(const Schedule& s, const std::vector<std::size_t>& bytes, bool is_gpu) {
  std::uint64_t hash = 0;
  const auto add = [&](std::uint64_t word) { hash = mix(hash, word); };
  const auto add_all = [&](const auto& numbers) {
    add(numbers.size());
    for (const auto n : numbers) add(static_cast<std::uint64_t>(n));
  };
  add(index(s.micro_batches));
  add(index(s.buffers));
  add(is_gpu ? 1 : 0);
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
  const std::string what = fmt::format("the pipeline schedule {}", s.name);
  const auto no_memory = [&](std::string_view why) {
    const int rank = axis.world_rank(axis.rank());
    return std::make_exception_ptr(
        Error(ErrorCode::system,
              fmt::format("there is no memory for {} on rank {}: {}", what, rank, why), rank));
  };
  std::exception_ptr refusal;
  MemoryNeed need;
  std::uint64_t own = 0;  // 0: it refuses
  try {
    check(axis, s, bytes, stages);
    need = MemoryNeed::now(lay_out(), axis.device());
    if (need.bytes <= need.available) allocate();
    own = fingerprint(s, bytes, axis.device().is_gpu());
  } catch (const std::bad_alloc&) {
    refusal = no_memory("the program's memory is at an end");
  } catch (const Error& e) {
    refusal = e.code() == ErrorCode::system ? no_memory(e.what()) : std::current_exception();
  } catch (...) {
    refusal = std::current_exception();
  }
  constexpr std::size_t kWords = 4;  // that a rank says of itself
  const std::uint64_t words[kWords] = {own, need.bytes, need.available, need.domain};
  const std::vector<std::uint64_t> all = Agreement(axis).all(words);
  std::vector<MemoryNeed> needs;
  for (std::size_t at = 0; at < all.size(); at += kWords) {
    needs.push_back({all[at + 1], all[at + 2], all[at + 3]});
  }
  check_memory(what + " (its buffers)", needs, [&](int r) { return axis.world_rank(r); });
  if (refusal) std::rethrow_exception(refusal);
  for (int r = 0; r < axis.size(); ++r) {
    const std::uint64_t its = all[index(r) * kWords];
    if (its == own) continue;
    const int other = axis.world_rank(r);
    throw Error(
        ErrorCode::mismatch,
        fmt::format("{} of rank {} cannot run: rank {} {}", what, axis.world_rank(axis.rank()),
                    other,
                    its == 0 ? "refuses to run it; its error says why"
                             : "has another one, or other sizes, or memory of another kind"),
        other);
  }
}

}  // namespace tutti::parallel::pipeline
