// `tutti plan`: lists the algorithms, and shows, proves and draws their plans or one from a file.
// An unproved plan ends with exit status 1, after the steps that go wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "collectives/draw/draw.h"
#include "collectives/model/hosts.h"
#include "collectives/needs.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "collectives/verify.h"
#include "core/counted.h"
#include "core/error.h"
#include "device/team.h"
#include "execute/cuda/executor.h"
#include "tools/command_line/command.h"
#include "tools/plan_source.h"
#include "tools/terminal.h"
#include "tools/text_file.h"

namespace tutti {
namespace {

/// Of all ranks, of a group's, or of none; or tmp alone.
std::string_view windows_of(const Algorithm& a, const PlanRequest& request) {
  if (!a.windows) return "-";
  if (a.tmp_alone) return "tmp";
  return use_of(a, request, {}, {}).path.link_data ? "inside" : "all";
}

void list() {
  constexpr int kRanks = 16;
  constexpr auto kRow = "{:<17} {:<22} {:<8} {:<6} {:<8} {:<10} ";
  print_wrapped(
      fmt::format(kRow, "COLLECTIVE", "ALGORITHM", "WINDOWS", "LANES", "ROUNDED", "INVARIANT"),
      "WHAT IT DOES");
  for (const Algorithm& a : algorithms()) {
    PlanRequest request;
    request.ranks = kRanks;
    request.collective = a.collective;
    const std::string rounded = is_reduction(a.collective)
                                    ? fmt::format("{}", verify(generate_plan(a, request)).roundings)
                                    : "-";
    print_wrapped(fmt::format(kRow, name(a.collective), a.name, windows_of(a, request),
                              a.lanes ? "yes" : "-", rounded, a.invariant ? "yes" : "-"),
                  a.summary);
  }
  fmt::print("\n");
  print_wrapped("WINDOWS: ",
                "addresses memory of all ranks, or inside of a group (a host) alone; or, of that, "
                "Tutti's own alone (tmp).");
  print_wrapped("ROUNDED: ",
                fmt::format("how often a sum of 16- or 8-bit floats is rounded on its way, with {} "
                            "ranks (see TUTTI_ROUND_ONCE).",
                            kRanks));
  print_wrapped("INVARIANT: ",
                "the bits of its sums depend on the inputs and the order of the ranks alone (see "
                "TUTTI_INVARIANT), in the plan that `tutti plan show ... --invariant` has.");
}

void print(std::string_view text) { write_text_file("", text); }

void show(const PlanSource& source, int rank) {
  const PlanParts plan = source.parts();
  if (rank < 0) return write_text(plan, print);
  if (rank >= plan.header.ranks) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("--rank {} is not one of the ranks 0 to {}", rank, plan.header.ranks - 1));
  }
  print(to_text(plan.part(rank)));
}

void draw(const PlanSource& source, const std::string& path) {
  write_text_file(path, draw_svg(source.load_for_drawing()));
}

/// Runs the proof, says how it went, and returns whether it succeeded.
bool prove(const PlanParts& plan, bool in_place, Invariance invariant, Verdict& verdict) {
  const auto start = std::chrono::steady_clock::now();
  verdict = verify(plan, {.in_place = in_place, .invariant = invariant});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  const std::string_view how = in_place ? "in place" : "out of place";
  if (verdict.proved) {
    fmt::print("  {:<13} proved in {:.2f} ms\n", how, took.count());
    return true;
  }
  fmt::print("  {:<13} NOT PROVED\n", how);
  std::fflush(stdout);
  fmt::print(stderr, "tutti: {} {} on {} is not proved {}: {}\n", name(plan.header.collective),
             plan.header.algorithm, counted(plan.header.ranks, "rank"), how, verdict.story);
  return false;
}

/// A row for each run of ranks that move the same. Returns whether all move what the textbook says.
bool print_traffic(const PlanSource& source, const PlanHeader& header, const Verdict& verdict) {
  fmt::print("  each rank's traffic in chunks (a block has {}):\n",
             counted(header.pieces, "chunk"));
  fmt::print("    {:<16}{:>10}", "", "sent");
  if (!source.is_file()) fmt::print("{:>10}", "textbook");
  fmt::print("{:>10}", "received");
  if (!source.is_file()) fmt::print("{:>10}", "textbook");
  fmt::print("\n");

  bool agrees = true;
  const auto moves = source.is_file() ? nullptr : source.textbook();
  const auto textbook = [&](std::size_t rank) {
    return moves ? moves(static_cast<int>(rank)) : Traffic{};
  };
  std::size_t rows = 0;
  for (std::size_t first = 0, next = 0; first < verdict.traffic.size(); first = next) {
    const Traffic moved = verdict.traffic[first];
    const Traffic expected = textbook(first);
    for (next = first + 1; next < verdict.traffic.size(); ++next) {
      if (verdict.traffic[next] != moved || textbook(next) != expected) break;
    }
    agrees = agrees && (source.is_file() || moved == expected);
    constexpr std::size_t kMostRows = 40;
    if (++rows > kMostRows) continue;
    if (rows == kMostRows) {
      fmt::print("    ...\n");
      continue;
    }
    fmt::print("    {:<16}", next == first + 1 ? fmt::format("rank {}", first)
                                               : fmt::format("ranks {}-{}", first, next - 1));
    if (source.is_file()) {
      fmt::print("{:>10}{:>10}\n", moved.sent, moved.received);
    } else {
      fmt::print("{:>10}{:>10}{:>10}{:>10}{}\n", moved.sent, expected.sent, moved.received,
                 expected.received, moved == expected ? "" : "  differs");
    }
  }
  return agrees;
}

/// What the ranks of each host send to others. Returns whether the plan can run on these hosts.
bool print_across(const PlanParts& plan, const Domains& hosts) {
  if (hosts.count() == 1) return true;
  if (const std::string why = unreachable(plan, hosts); !why.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "tutti: the plan is right, but does not run on these hosts: {}\n", why);
    return false;
  }
  const std::vector<Traffic> by_host = chunks_across(plan, hosts);
  fmt::print("  between hosts, in chunks:\n    {:<16}{:>10}{:>10}\n", "", "sent", "received");
  constexpr std::size_t kMostRows = 40;
  for (std::size_t h = 0; h < std::min(by_host.size(), kMostRows); ++h) {
    fmt::print("    {:<16}{:>10}{:>10}\n", fmt::format("host {}", h), by_host[h].sent,
               by_host[h].received);
  }
  if (by_host.size() > kMostRows) fmt::print("    ...\n");
  fmt::print("    {:<16}{:>10}{:>10}\n", "all", sent(by_host), sent(by_host));
  return true;
}

/// What a communicator must have to run a proved plan, as Communicator::use_plan asks. Returns
/// whether any can.
bool print_needs(Plan plan) {
  if (const std::string why = unfit_to_run(plan); !why.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "tutti: the plan is right, but no communicator runs it: {}\n", why);
    return false;
  }
  tighten(plan);
  const PlanHeader& h = plan.header;
  const PlanNeeds needs = needs_of(plan);
  fmt::print("  {:<13} {} from a rank to another, of {} of {} bytes or more\n", "needs",
             counted(needs.channels, "link"), counted(h.slots, "slot"), h.widest * kCacheLine);
  const std::string why = device::unfit(h, needs, device_segment(h.ranks));
  if (!why.empty()) fmt::print("  {:<13} does not run: {}\n", "on a GPU", why);
  return true;
}

void prove_all(const PlanSource& source, bool only_in_place) {
  const PlanParts plan = source.parts();
  source.check_provable();
  const PlanHeader& h = plan.header;
  if (only_in_place && !has_in_place(h.collective)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} has no in-place form; leave --in-place out", name(h.collective)));
  }
  if (source.is_invariant() && !is_reduction(h.collective)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} reduces nothing: its bits are those of its inputs; leave "
                            "--invariant out",
                            name(h.collective)));
  }
  fmt::print("{} {} on {}, {} a rank, {} a link\n", name(h.collective), h.algorithm,
             counted(h.ranks, "rank"), counted(h.lanes, "lane"), counted(h.slots, "slot"));
  // Verdict::roundings says whether it is so for all types.
  const Invariance invariant = source.is_invariant() ? Invariance::float32_up : Invariance::none;
  Verdict verdict;
  bool proved = true;
  if (!only_in_place) proved = prove(plan, false, invariant, verdict);
  if (proved && has_in_place(h.collective)) proved = prove(plan, true, invariant, verdict);
  if (!proved) throw CLI::RuntimeError(1);
  fmt::print("  {:<13} {}\n", "in all", counted(verdict.steps, "step"));
  if (source.is_file() && !print_needs(source.load_file())) throw CLI::RuntimeError(1);
  if (is_reduction(h.collective)) {
    fmt::print("  {:<13} {}, where it is of 16- or 8-bit floats\n", "a sum rounded",
               counted(verdict.roundings, "time"));
  }
  if (source.is_invariant()) {
    fmt::print("  {:<13} each result is the canonical expression of its inputs{}\n", "invariant",
               verdict.roundings > 1 ? ", for float32 and float64" : "");
  }
  const Domains hosts = source.hosts(h.ranks);
  if (!print_traffic(source, h, verdict)) {
    std::fflush(stdout);
    fmt::print(stderr,
               "tutti: the plan is right, but ranks marked 'differs' move another number of chunks "
               "than the textbook says\n");
    throw CLI::RuntimeError(1);
  }
  if (!print_across(plan, hosts)) throw CLI::RuntimeError(1);
}

/// What one subcommand's options are stored in. CLI11 keeps references to them.
struct Arguments {
  PlanSource source;
  int rank = -1;
  std::string output;
  bool in_place = false;
};

/// The options, and the work.
void define(CLI::App& plan) {
  plan.require_subcommand(1);
  plan.footer(
      "A plan says what every rank of a collective does, step by step. Examples:\n"
      "  tutti plan list\n"
      "  tutti plan show all_reduce --algorithm ring --ranks 4 > ring.txt\n"
      "  tutti plan verify --file ring.txt\n"
      "  tutti plan draw all_reduce --algorithm ring --ranks 8 -o ring.svg");

  plan.add_subcommand("list", "The algorithms of each collective")->footer("")->callback(list);

  const auto add = [&plan](const char* name, const char* help, auto more_options, auto action) {
    auto* command = plan.add_subcommand(name, help);
    const auto arguments = std::make_shared<Arguments>();
    arguments->source.add_options(*command);
    more_options(*command, *arguments);
    command->callback([arguments, action] { action(*arguments); });
  };
  add(
      "show", "Print a plan as text, one step a line (docs/plans.md says how to read it)",
      [](CLI::App& command, Arguments& a) {
        command.add_option("--rank", a.rank, "Only this rank's part")
            ->type_name("R")
            ->check(CLI::Range(0, 100'000'000));
        command.footer(
            "Examples:\n"
            "  tutti plan show all_reduce --algorithm ring --ranks 4\n"
            "  tutti plan show all_reduce --algorithm ring --ranks 1024 --rank 7");
      },
      [](const Arguments& a) { show(a.source, a.rank); });
  add(
      "verify", "Prove a plan: right result, no deadlock, no data race, equal bits",
      [](CLI::App& command, Arguments& a) {
        command.add_flag("--in-place", a.in_place,
                         "Only in place (else: out of place, then in place if that exists)");
        command.footer(
            "Exit status: 0 proved; 1 not proved, or no plan for a communicator, and stderr "
            "says why; 2 bad usage.\n"
            "Examples:\n"
            "  tutti plan verify reduce --algorithm tree --ranks 12 --root 3\n"
            "  tutti plan verify all_reduce --algorithm hierarchical_direct --hosts 2x4\n"
            "  tutti plan verify all_reduce --algorithm two_shot --ranks 7 --invariant\n"
            "  tutti plan verify all_reduce -a hierarchical_direct --hosts 2x4 --invariant\n"
            "  tutti plan verify --file my_plan.txt");
      },
      [](const Arguments& a) { prove_all(a.source, a.in_place); });
  add(
      "draw", "Draw a plan as a space-time picture (SVG)",
      [](CLI::App& command, Arguments& a) {
        command.add_option("-o,--output", a.output, "Write the picture to this file [stdout]")
            ->type_name("FILE");
        command.footer(
            "Example:\n"
            "  tutti plan draw all_reduce --algorithm ring --ranks 8 -o ring.svg");
      },
      [](const Arguments& a) { draw(a.source, a.output); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("plan", tutti::define, argc, argv); }
