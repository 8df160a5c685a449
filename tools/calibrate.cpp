#include "tools/calibrate.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "collectives/model/machine.h"
#include "core/error.h"
#include "tools/measure_machine.h"

namespace tutti {
namespace {

struct Arguments {
  std::string output;
  int rounds = 7;
};

/// The median of each constant: what else runs on a machine comes and goes in seconds, and a round
/// takes about one.
Machine median_of(const std::vector<Machine>& rounds) {
  Machine m;
  for (const MachineConstant& c : machine_constants()) {
    std::vector<double> values;
    for (const Machine& round : rounds) values.push_back(round.*c.value);
    std::ranges::sort(values);
    m.*c.value = values[values.size() / 2];
  }
  return m;
}

void calibrate(const Arguments& a) {
  const std::string path = a.output.empty() ? machine_path() : a.output;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "there is no home folder for the result; name a file with --output");
  }
  const Machine defaults = default_machine();
  std::vector<Machine> rounds;
  for (int i = 0; i < a.rounds; ++i) rounds.push_back(measure_machine(defaults));
  const Machine m = median_of(rounds);

  fmt::print("{}\n\n  {:<17} {:>10} {:>10} {:>21}  {:<9}\n", machine_name(), "CONSTANT", "MEASURED",
             "DEFAULT", "FROM ... TO", "UNIT");
  for (const MachineConstant& c : machine_constants()) {
    const auto [low, high] =
        std::ranges::minmax(rounds, {}, [&](const Machine& round) { return round.*c.value; });
    fmt::print("  {:<17} {:>10} {:>10} {:>10} {:>10}  {:<9} {}\n", c.name,
               constant_text(m.*c.value), constant_text(defaults.*c.value),
               constant_text(low.*c.value), constant_text(high.*c.value), c.unit, c.meaning);
  }
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  write_machine(path, {m, machine_name(), fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(now))});
  fmt::print("\nwritten to {}\n", path);
}

}  // namespace

void add_calibrate_command(CLI::App& app) {
  auto* command = app.add_subcommand(
      "calibrate", "Measure what things cost on this machine, for the choice of algorithms");
  const auto a = std::make_shared<Arguments>();
  command
      ->add_option("-o,--output", a->output, "Write the constants to this file [where Tutti looks]")
      ->type_name("FILE");
  command->add_option("--rounds", a->rounds, "Measure so often, and take the medians [7]")
      ->type_name("N")
      ->check(CLI::Range(1, 100));
  command->footer(
      "Takes a few seconds, and starts ranks of its own on all cores: run it on a machine that is\n"
      "idle. `tutti explain` shows what follows from the result (docs/cost-model.md).");
  command->callback([a] { calibrate(*a); });
}

}  // namespace tutti
