// `tutti schedule`: lists the pipeline schedules, and shows, proves, simulates and draws them or
// one from a file. An unproved schedule ends with exit status 1, after the actions that go wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/counted.h"
#include "core/error.h"
#include "core/nearest.h"
#include "parallel/pipeline/draw.h"
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/text.h"
#include "parallel/pipeline/verify.h"
#include "tools/command_line/command.h"
#include "tools/command_line/number_in.h"
#include "tools/text_file.h"

namespace tutti {
namespace {

namespace pipeline = parallel::pipeline;
using pipeline::Schedule;

/// What one subcommand's options are stored in. CLI11 keeps references to them.
struct Arguments {
  std::string source;
  pipeline::Request request{.ranks = 0, .micro_batches = 0, .chunks = 0};
  int stages = 0;
  double forward = 1, backward = 2, weights = -1, link = 0;
  std::string output;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

std::vector<std::string_view> known_schedules() {
  std::vector<std::string_view> names;
  for (const pipeline::Generator& g : pipeline::generators()) names.push_back(g.name);
  return names;
}

Schedule generated(const pipeline::Generator& generator, const Arguments& a) {
  pipeline::Request request = a.request;
  if (request.chunks == 0) request.chunks = generator.chunks;
  if (a.stages != 0) {
    if (a.stages % request.chunks != 0) {
      refuse(fmt::format("--stages {} cannot be dealt out to ranks with {} each", a.stages,
                         request.chunks));
    }
    request.ranks = a.stages / request.chunks;
  }
  if (request.ranks == 0) refuse("--ranks is missing: how many ranks is the schedule for?");
  if (request.micro_batches == 0) refuse("--micro-batches is missing: how many are there?");
  return pipeline::generate(generator, request);
}

Schedule load(const Arguments& a) {
  if (const pipeline::Generator* g = pipeline::find_generator(a.source)) return generated(*g, a);
  const bool path = a.source == "-" || a.source.find_first_of("./") != std::string::npos;
  std::string text;
  try {
    text = read_text(a.source, "schedule");
  } catch (const Error& e) {
    if (path) throw;
    refuse(fmt::format("there is no schedule '{}', and no such file{}; there are {}", a.source,
                       did_you_mean(a.source, known_schedules()),
                       fmt::join(known_schedules(), ", ")));
  }
  if (a.request.ranks + a.request.micro_batches + a.request.chunks + a.stages != 0) {
    refuse(fmt::format("{} is complete; leave --ranks, --stages, --micro-batches and --virtual out",
                       a.source));
  }
  return parse_text_of(a.source, text,
                       [](const std::string& all) { return pipeline::schedule_from_text(all); });
}

/// The command line says what all of a rank's stages take together.
pipeline::Costs costs_of(const Arguments& a, const Schedule& s) {
  const double weights = a.weights < 0 ? a.backward / 2 : a.weights;
  if (weights > a.backward) {
    refuse(fmt::format("--weights {} is a part of --backward {}, and cannot take longer", weights,
                       a.backward));
  }
  const double part = static_cast<double>(s.ranks()) / s.stages();
  return {a.forward * part, (a.backward - weights) * part, weights * part, a.link};
}

void print_head(const Schedule& s) {
  fmt::print("{} on {}, {}, {}, {} at each end of a link\n", s.name, counted(s.ranks(), "rank"),
             counted(s.stages(), "stage"), counted(s.micro_batches, "micro-batch"),
             counted(s.buffers, "buffer"));
}

/// Ends the command for a schedule that is not proved.
pipeline::Verdict prove(const Schedule& s) {
  pipeline::Verdict verdict = pipeline::verify(s);
  if (verdict.proved) return verdict;
  std::fflush(stdout);
  fmt::print(stderr, "tutti: the schedule {} is not proved: {}\n", s.name, verdict.story);
  throw CLI::RuntimeError(1);
}

constexpr int kMostRows = 64;

void list() {
  constexpr auto kRow = "{:<12} {:<8} {:<22} {:<10} {}\n";
  fmt::print(kRow, "SCHEDULE", "VIRTUAL", "BUBBLE", "LIVE", "WHAT IT DOES");
  for (const pipeline::Generator& g : pipeline::generators()) {
    fmt::print(kRow, g.name,
               g.any_chunks ? fmt::format("[{}]", g.chunks) : fmt::format("{}", g.chunks), g.bubble,
               g.live, g.summary);
  }
  fmt::print(
      "\nVIRTUAL: stages of each rank; [2]: any number, 2 if nothing is said.\n"
      "BUBBLE: what a rank waits at most, for p ranks with v stages each, if a micro-batch takes "
      "F, "
      "B = I + W\n(inputs, weights) in a rank's share of the model, and there are enough of them. "
      "p|m: where m is a\nmultiple of p; otherwise the last round is not full, and ranks wait "
      "longer.\n"
      "LIVE: activations of such a share that a rank keeps at most, of m micro-batches.\n");
}

void show(const Arguments& a) { write_text_file("", pipeline::to_text(load(a))); }

void verify(const Arguments& a) {
  const Schedule s = load(a);
  print_head(s);
  const pipeline::Verdict verdict = prove(s);
  const int most = *std::max_element(verdict.live.begin(), verdict.live.end());
  fmt::print("  proved: {}, {} between ranks; no deadlock\n", counted(verdict.actions, "action"),
             counted(verdict.messages, "message"));
  fmt::print("  live activations: {} at most, {} declared\n", most, s.live);
  for (int r = 0; r < std::min(s.ranks(), kMostRows); ++r) {
    fmt::print("    rank {:<6} {}\n", r, verdict.live[static_cast<std::size_t>(r)]);
  }
  if (s.ranks() > kMostRows) fmt::print("    ...\n");
}

void simulate(const Arguments& a) {
  const Schedule s = load(a);
  print_head(s);
  const pipeline::Verdict verdict = prove(s);
  const pipeline::Costs costs = costs_of(a, s);
  const pipeline::Simulation result = pipeline::simulate(s, costs);
  const double whole = std::max(result.makespan, 1e-300);
  fmt::print("  of a stage: forward {:g}, backward {:g} + {:g} (inputs, weights); a message {:g}\n",
             costs.forward, costs.backward_inputs, costs.backward_weights, costs.link);
  fmt::print("  makespan    {:.6g}\n", result.makespan);
  fmt::print(
      "  bubble      {:.6g} ({:.1f} %): what a rank waits between its first and last action, "
      "at most\n",
      result.bubble, 100 * result.bubble / whole);
  fmt::print("    {:<9} {:>11} {:>11} {:>11} {:>9} {:>7}\n", "", "from", "to", "bubble", "busy",
             "live");
  for (int r = 0; r < std::min(s.ranks(), kMostRows); ++r) {
    const auto& rank = result.ranks[static_cast<std::size_t>(r)];
    fmt::print("    {:<9} {:>11.6g} {:>11.6g} {:>11.6g} {:>7.1f} % {:>7}\n",
               fmt::format("rank {}", r), rank.first, rank.last, rank.bubble,
               100 * rank.busy / whole, verdict.live[static_cast<std::size_t>(r)]);
  }
  if (s.ranks() > kMostRows) fmt::print("    ...\n");
}

void draw(const Arguments& a) {
  const Schedule s = load(a);
  write_text_file(a.output, pipeline::draw_svg(s, costs_of(a, s)));
}

void add_source(CLI::App& command, Arguments& a) {
  command
      .add_option("schedule", a.source, "A name (see `tutti schedule list`), or a file (-: stdin)")
      ->type_name("NAME_OR_FILE")
      ->required();
  auto* ranks = command.add_option("-n,--ranks", a.request.ranks, "How many ranks")
                    ->type_name("N")
                    ->check(CLI::Range(1, pipeline::Limits::ranks));
  command
      .add_option("--stages", a.stages,
                  "Instead of --ranks: how many stages all ranks have together")
      ->type_name("S")
      ->check(CLI::Range(1, pipeline::Limits::stages))
      ->excludes(ranks);
  command.add_option("-m,--micro-batches", a.request.micro_batches, "How many micro-batches")
      ->type_name("M")
      ->check(CLI::Range(1, pipeline::Limits::micro_batches));
  command
      .add_option("--virtual", a.request.chunks,
                  "Stages of each rank, where the schedule leaves the choice [2]")
      ->type_name("V")
      ->check(CLI::Range(1, pipeline::Limits::stages));
}

void add_costs(CLI::App& command, Arguments& a) {
  const auto add = [&](const char* option, double& value, const char* help) {
    command.add_option(option, value, help)->type_name("TIME")->check(number_in(0, 1e9));
  };
  add("--forward", a.forward,
      "Time of a micro-batch through all stages of a rank, in any unit [1]");
  add("--backward", a.backward, "The same for the whole backward [2]");
  add("--weights", a.weights, "The weights' part of the backward [half of it]");
  add("--link", a.link, "Time of a message between ranks [0]");
}

/// The options, and the work.
void define(CLI::App& schedule) {
  schedule.require_subcommand(1);
  schedule.footer(
      "A schedule says which rank runs which stage of a model on which micro-batch when "
      "(docs/pipeline.md). Examples:\n"
      "  tutti schedule list\n"
      "  tutti schedule show 1f1b --ranks 4 --micro-batches 8 > mine.txt\n"
      "  tutti schedule verify mine.txt\n"
      "  tutti schedule simulate zb-h1 --ranks 4 --micro-batches 8 --link 0.1\n"
      "  tutti schedule draw interleaved --ranks 4 --micro-batches 8 --virtual 2 -o x.svg");
  schedule.add_subcommand("list", "The schedules, and their costs")->footer("")->callback(list);

  const auto add = [&schedule](const char* name, const char* help, const char* footer, bool costs,
                               auto action) {
    auto* command = schedule.add_subcommand(name, help);
    const auto arguments = std::make_shared<Arguments>();
    add_source(*command, *arguments);
    if (costs) add_costs(*command, *arguments);
    command->footer(footer);
    command->callback([arguments, action] { action(*arguments); });
    return std::pair(command, arguments);
  };
  add("show", "Print a schedule as text (docs/pipeline.md says how to read it)",
      "Example:\n  tutti schedule show 1f1b --ranks 4 --micro-batches 8", false, show);
  add("verify", "Prove a schedule: complete, in order, no deadlock, its memory",
      "Exit status: 0 proved; 1 not proved, and stderr says why; 2 bad usage.\n"
      "Examples:\n"
      "  tutti schedule verify interleaved --ranks 4 --micro-batches 8 --virtual 2\n"
      "  tutti schedule verify my_schedule.txt",
      false, verify);
  add("simulate", "How long a schedule takes, and how long ranks wait",
      "Examples:\n"
      "  tutti schedule simulate 1f1b --ranks 4 --micro-batches 8 --forward 10 --backward 20\n"
      "  tutti schedule simulate my_schedule.txt --link 0.5",
      true, simulate);
  const auto [command, arguments] = add(
      "draw", "Draw a schedule: the actions of all ranks over time (SVG)",
      "Example:\n  tutti schedule draw zb-v --ranks 4 --micro-batches 10 -o zb-v.svg", true, draw);
  command->add_option("-o,--output", arguments->output, "Write the picture to this file [stdout]")
      ->type_name("FILE");
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("schedule", tutti::define, argc, argv); }
