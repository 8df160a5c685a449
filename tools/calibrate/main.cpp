// `tutti calibrate`: measures the constants of this machine, for the choice of algorithms.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/environment.h"
#include "collectives/model/machine.h"
#include "collectives/model/machine_file.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "tools/calibrate/measure_machine.h"
#include "tools/calibrate/measure_network.h"
#include "tools/calibrate/steadiness.h"
#include "tools/command_line/command.h"
#include "tools/terminal.h"

namespace tutti {
namespace {

// That rank 0 takes for a round, while the others wait for it; on a busy machine.
constexpr auto kARound = std::chrono::seconds(20);

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

/// What the ranks of a job measure together, if it has several: of `rounds`, rank 0's, those of the
/// network.
std::string measure_between_hosts(std::vector<Machine>& rounds, int ranks) {
  if (ranks == 1) return "";
  Options options;
  options.rendezvous_timeout += kARound * static_cast<int>(rounds.size());
  Communicator comm = Communicator::from_environment(options);
  NetworkRates best;
  for (Machine& round : rounds) {
    const NetworkRates rates = measure_network(comm, round);
    best = {std::max(best.one, rates.one), std::max(best.all, rates.all), rates.pairs};
  }
  comm.barrier();
  if (best.pairs == 0) {
    return fmt::format("\nThe {} ranks are all on this host: the network was not measured.\n",
                       ranks);
  }
  return fmt::format(
      "\nBetween hosts ({}): {:.2f} GB/s by a pair of ranks, {:.2f} GB/s by {} at once.\n",
      comm.transports(), best.one, best.all, best.pairs);
}

void calibrate(const Arguments& a) {
  const std::string path = a.output.empty() ? machine_path() : a.output;
  if (path.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "there is no home folder for the result; name a file with --output");
  }
  const Placement placement = placement_from_environment();
  const Machine defaults = default_machine();
  std::vector<Machine> rounds(static_cast<std::size_t>(a.rounds), defaults);
  std::string warning;
  if (placement.rank == 0) {
    const OtherLoad load;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      show_progress(fmt::format("round {} of {}", i + 1, rounds.size()));
      rounds[i] = measure_machine(defaults);
    }
    show_progress("");
    warning = warning_of_load(load.cores(), rounds);
  }
  const std::string network = measure_between_hosts(rounds, placement.size);
  if (placement.rank != 0) return;
  const Machine m = median_of(rounds);

  fmt::print("{}\n\n  {:<17} {:>10} {:>10} {:>21}  {:<9}\n", machine_name(), "CONSTANT", "MEASURED",
             "DEFAULT", "FROM ... TO", "UNIT");
  for (const MachineConstant& c : machine_constants()) {
    const auto [low, high] =
        std::ranges::minmax(rounds, {}, [&](const Machine& round) { return round.*c.value; });
    print_wrapped(fmt::format("  {:<17} {:>10} {:>10} {:>10} {:>10}  {:<9} ", c.name,
                              constant_text(m.*c.value), constant_text(defaults.*c.value),
                              constant_text(low.*c.value), constant_text(high.*c.value), c.unit),
                  c.meaning);
  }
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  write_machine(path, {m, machine_name(), fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(now))});
  fmt::print("{}\nwritten to {}\n", network, path);
  if (!warning.empty()) {
    std::fflush(stdout);
    fmt::print(stderr, "tutti: warning: {}\n", warning);
  }
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  command
      .add_option("-o,--output", a->output, "Write the constants to this file [where Tutti looks]")
      ->type_name("FILE");
  command.add_option("--rounds", a->rounds, "Measure N times, and take the medians [7]")
      ->type_name("N")
      ->check(CLI::Range(1, 100));
  command.footer(
      "Takes a few seconds, and starts ranks of its own on all cores: run it on an idle machine.\n"
      "`tutti explain` shows the predictions that follow from the result (docs/cost-model.md).\n"
      "A launcher may start it on several hosts, with one rank or more on each. Then it also\n"
      "measures the network between rank 0's host and the next, and rank 0 writes the file:\n"
      "  mpirun -H node1:4,node2:4 tutti calibrate");
  command.callback([a] { calibrate(*a); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("calibrate", tutti::define, argc, argv); }
