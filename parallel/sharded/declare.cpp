#include "parallel/sharded/declare.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "core/error.h"

namespace tutti::parallel {
namespace {

/// Throws Error(invalid_argument) for what cannot be.
void check(const std::vector<Unit>& units, const Policy& policy, const ShardedAxes& axes) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  policy.check();
  for (const Unit& unit : units) {
    const Reshard reshard = unit.reshard.value_or(policy.reshard_after_forward);
    if (reshard == Reshard::to_group && axes.group == nullptr) {
      refuse(
          fmt::format("unit '{}' is resharded to a group, and there is no axis for it "
                      "(ShardedAxes::group)",
                      unit.name));
    }
    for (const Parameter& p : unit.parameters) {
      if (p.rows == 0 ? p.count != 0 : p.count % p.rows != 0) {
        refuse(
            fmt::format("parameter '{}' of unit '{}' has {} elements in {} rows, which do not "
                        "divide them",
                        p.name, unit.name, p.count, p.rows));
      }
    }
  }
  if (axes.group != nullptr && axes.shard->size() % axes.group->size() != 0) {
    refuse(fmt::format("a group of {} ranks does not divide the {} that share the parameters",
                       axes.group->size(), axes.shard->size()));
  }
}

std::vector<std::string> describe(const std::vector<Unit>& units, const Policy& policy) {
  std::vector<std::string> texts = {"the policy " + policy.describe()};
  for (const Unit& unit : units) {
    texts.push_back(fmt::format("unit '{}', reshard {}", unit.name,
                                unit.reshard ? static_cast<int>(*unit.reshard) : -1));
    for (const Parameter& p : unit.parameters) {
      texts.push_back(
          fmt::format("parameter '{}' of unit '{}', {} elements in {} rows, weight "
                      "decay {}",
                      p.name, unit.name, p.count, p.rows, p.weight_decay));
    }
  }
  return texts;
}

}  // namespace

Difference first_difference(const std::vector<std::uint64_t>& entries, std::size_t columns) {
  for (std::size_t i = 0; i < columns; ++i) {
    std::vector<std::uint64_t> column;
    for (std::size_t at = i; at < entries.size(); at += columns) column.push_back(entries[at]);
    const int odd = RollCall::odd_one(column);
    if (odd >= 0) return {.entry = i, .rank = odd, .other = odd == 0 ? 1 : 0};
  }
  return {};
}

void agree_on_declarations(RollCall& roll_call, const std::vector<Unit>& units,
                           const Policy& policy, const ShardedAxes& axes) {
  // A rank whose own declaration cannot be does not leave the others waiting.
  std::vector<std::string> texts = describe(units, policy);
  std::string problem;
  try {
    check(units, policy, axes);
  } catch (const Error& e) {
    problem = e.what();
  }
  texts.push_back(problem.empty() ? "the end of the declaration" : problem);
  std::vector<std::uint64_t> hashes;
  for (const std::string& text : texts) {
    hashes.push_back(mix(hashes.empty() ? 0 : hashes.back(), text));
  }
  if (roll_call.same(hashes.back())) {
    if (!problem.empty()) throw Error(ErrorCode::invalid_argument, problem);
    return;
  }
  hashes.resize(roll_call.largest(hashes.size()));  // 0: there is no more
  const Difference first = first_difference(roll_call.all(hashes), hashes.size());
  const std::string mine = first.entry < texts.size() ? texts[first.entry] : "nothing more";
  const std::string its = roll_call.text_of(first.rank, mine);
  const std::string others = roll_call.text_of(first.other, mine);
  throw Error(ErrorCode::mismatch,
              fmt::format("ranks have declared different models: {} has {}; {} has {}",
                          roll_call.name(first.rank), its, roll_call.name(first.other), others),
              first.rank);
}

}  // namespace tutti::parallel
