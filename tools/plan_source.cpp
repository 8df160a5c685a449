#include "tools/plan_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "collectives/draw/draw.h"
#include "collectives/text/text.h"
#include "core/error.h"
#include "core/nearest.h"
#include "tools/text_file.h"
#include "topology/source.h"

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

/// Chunks that go from rank to rank. That many take about a minute, and some gigabytes.
constexpr std::uint64_t kMostProved = std::uint64_t{1} << 27;
/// As many as a plan's text may have.
constexpr int kMostRanksProved = 65536;

std::vector<std::string_view> known_algorithms(Collective c) {
  std::vector<std::string_view> names;
  for (const Algorithm& a : algorithms()) {
    if (a.collective == c) names.push_back(a.name);
  }
  return names;
}

std::vector<std::string_view> known_collectives() {
  std::vector<std::string_view> names;
  for (const Algorithm& a : algorithms()) {
    if (names.empty() || name(a.collective) != names.back()) names.push_back(name(a.collective));
  }
  return names;
}

}  // namespace

Collective collective_named(const std::string& name) {
  const auto collective = parse_collective(name);
  if (collective) return *collective;
  refuse(fmt::format("there is no collective '{}'{}; there are {}", topology::printable(name),
                     did_you_mean(name, known_collectives()),
                     fmt::join(known_collectives(), ", ")));
}

void PlanSource::add_options(CLI::App& command) {
  const auto add = [&](const char* option, auto& value, const char* help, const char* type) {
    CLI::Option* added = command.add_option(option, value, help)->type_name(type);
    of_an_algorithm_.push_back(added);
    return added;
  };
  add("collective", collective_, "all_reduce, ... (see `tutti plan list`)", "COLLECTIVE");
  add("-a,--algorithm", algorithm_, "The algorithm (see `tutti plan list`)", "NAME");
  add("-n,--ranks", ranks_, "How many ranks", "N")->check(CLI::Range(1, 1'000'000));
  hosts_.add_to(command);
  add("--root", root_, "The root of broadcast, reduce, gather or scatter [0]", "RANK")
      ->check(CLI::Range(0, 100'000'000));
  add("--lanes", lanes_, "Lanes that share the work, where the algorithm can [1]", "L")
      ->check(CLI::Range(1u, TextLimits::lanes));
  add("--group", group_, "Ranks per group of a hierarchical algorithm [near the root of N]", "G")
      ->check(CLI::Range(1, 100'000'000));
  command.add_flag("--invariant", invariant_,
                   "The plan whose bits depend on the inputs and the order of the ranks alone, as "
                   "with\nTUTTI_INVARIANT=1; to verify it is to prove that, too");
  command.add_option("-f,--file", file_, "Instead of these: read the plan from a file (-: stdin)")
      ->type_name("FILE");
}

const Algorithm& PlanSource::algorithm() const {
  if (collective_.empty()) {
    refuse(
        "name a collective or a file, as in 'tutti plan show all_reduce --algorithm ring "
        "--ranks 4'");
  }
  const Collective collective = collective_named(collective_);
  if (algorithm_.empty()) {
    refuse(fmt::format("--algorithm is missing; for {} there are: {}", collective_,
                       fmt::join(known_algorithms(collective), ", ")));
  }
  const Algorithm* found = find_algorithm(collective, algorithm_);
  if (found == nullptr) {
    const auto names = known_algorithms(collective);
    refuse(fmt::format("{} has no algorithm '{}'{}; it has: {}", collective_, algorithm_,
                       did_you_mean(algorithm_, names), fmt::join(names, ", ")));
  }
  if (lanes_ > 1 && !found->lanes) {
    refuse(fmt::format("{} {} does not divide its work among lanes; leave --lanes out", collective_,
                       algorithm_));
  }
  return *found;
}

PlanRequest PlanSource::request() const {
  const Collective collective = algorithm().collective;
  const int ranks = hosts_.is_given() ? static_cast<int>(hosts_.of_ranks(ranks_).size()) : ranks_;
  if (ranks == 0) refuse("--ranks is missing: how many ranks is the plan for?");
  if (root_ != 0 && !is_rooted(collective)) {
    refuse(fmt::format("{} has no root; leave --root out", collective_));
  }
  if (root_ >= ranks) {
    refuse(fmt::format("--root {} is not one of the ranks 0 to {}", root_, ranks - 1));
  }
  PlanRequest r{collective, ranks, root_, lanes_, group_};
  r.in_order = invariant_ && algorithm().invariant;
  return r;
}

Domains PlanSource::layout(int ranks) const {
  const Domains given = hosts(ranks);
  return invariant_ && algorithm().invariant ? Domains::subtrees(given) : given;
}

Plan PlanSource::load_file() const {
  for (const CLI::Option* option : of_an_algorithm_) {
    if (option->count() == 0) continue;
    refuse(fmt::format("{} does not go with --file, whose plan is complete", option->get_name()));
  }
  return parse_text_of(file_, read_text(file_, "plan"),
                       [](const std::string& text) { return plan_from_text(text); });
}

PlanParts PlanSource::parts() const {
  if (!is_file()) {
    const PlanRequest r = request();
    const Algorithm& a = algorithm();
    const Domains layout = this->layout(r.ranks);
    return {generate(a, r, 0, layout).header,
            [&a, r, layout](int rank) { return generate(a, r, rank, layout); }};
  }
  const auto plan = std::make_shared<const Plan>(load_file());
  return {plan->header, [plan](int rank) { return plan->ranks[static_cast<std::size_t>(rank)]; }};
}

Plan PlanSource::load_for_drawing() const {
  const PlanParts all = parts();
  Plan plan;
  plan.header = all.header;
  std::uint64_t steps = 0;
  std::uint64_t operands = 0;
  for (int rank = 0; rank < all.header.ranks; ++rank) {
    plan.ranks.push_back(all.part(rank));
    for (const auto& lane : plan.ranks.back().lanes) steps += lane.size();
    operands += plan.ranks.back().operands.size();
    if (operands <= DrawLimits::operands) continue;
    refuse(
        fmt::format("{} {} on {} ranks has too many steps for a picture: ranks 0 to {} alone "
                    "have {} with {} operands, and a plan with at most {} operands is drawn; "
                    "draw one for fewer ranks",
                    name(all.header.collective), all.header.algorithm, all.header.ranks, rank,
                    steps, operands, DrawLimits::operands));
  }
  return plan;
}

void PlanSource::check_provable() const {
  if (is_file()) return;
  const PlanRequest r = request();
  if (r.ranks > kMostRanksProved) {
    refuse(
        fmt::format("{} {} on {} ranks has too many ranks to follow what each knows of the "
                    "others; a plan for at most {} ranks can be proved: ask for fewer",
                    collective_, algorithm_, r.ranks, kMostRanksProved));
  }
  const Domains layout = this->layout(r.ranks);
  Traffic all;
  for (int rank = 0; rank < r.ranks; ++rank) {
    const Traffic t = tutti::textbook(algorithm(), r, rank, layout);
    all.sent += t.sent;
    all.received += t.received;
  }
  const std::uint64_t moved = std::max(all.sent, all.received);
  if (moved <= kMostProved) return;
  refuse(
      fmt::format("{} {} on {} ranks moves {} chunks from rank to rank, too many to follow each "
                  "one; a plan that "
                  "moves at most {} can be proved: ask for fewer ranks",
                  collective_, algorithm_, r.ranks, moved, kMostProved));
}

std::function<Traffic(int rank)> PlanSource::textbook() const {
  const PlanRequest r = request();
  const Algorithm& a = algorithm();
  return
      [&a, r, layout = layout(r.ranks)](int rank) { return tutti::textbook(a, r, rank, layout); };
}

}  // namespace tutti
