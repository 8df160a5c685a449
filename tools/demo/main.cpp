// `tutti demo`: what a first minute shows: all_reduce by ranks of this host, checked and timed,
// beside the libraries that this machine's Python has.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/model/machine.h"
#include "tools/command_line/command.h"
#include "tools/demo/measure.h"
#include "tools/demo/peers.h"
#include "tools/size_text.h"
#include "tools/spawn.h"
#include "tools/terminal.h"

namespace tutti {
namespace {

struct Arguments {
  int ranks = 0;
  std::string python = "python3";
  bool no_peers = false;
};

/// Three digits.
std::string time_text(double us) {
  return us < 10    ? fmt::format("{:.2f}", us)
         : us < 100 ? fmt::format("{:.1f}", us)
                    : fmt::format("{:.0f}", us);
}

void print_row(const std::string& name, const DemoTimes& times) {
  fmt::print("  {:<34}", name);
  for (const double time : times) fmt::print("{:>10}", time_text(time));
  fmt::print("\n");
}

int usable_processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void demo(const Arguments& a) {
  const int processors = usable_processors();
  const int ranks = a.ranks != 0 ? a.ranks : std::clamp(processors, 2, 8);
  show_progress("measuring Tutti");
  const DemoMeasurement own = measure_all_reduce(ranks);
  std::vector<DemoPeer> peers;
  if (!a.no_peers) {
    show_progress("measuring what else is there: up to a minute");
    peers = measure_peers(a.python, ranks);
  }
  show_progress("");

  fmt::print("all_reduce of float32 by {} ranks, processes of this machine: {}.\n", ranks,
             machine_name());
  fmt::print("Microseconds of a call, out of place; the sums were checked.\n\n  {:<34}", "");
  for (const std::size_t size : kDemoSizes) fmt::print("{:>10}", size_text(size));
  fmt::print("\n");
  print_row("Tutti, tutti::Allocator", own.windows);
  print_row("Tutti, malloc()", own.malloc);
  bool from_python = false;
  for (const DemoPeer& peer : peers) {
    if (!peer.times) continue;
    print_row(peer.name, *peer.times);
    from_python = true;
  }
  fmt::print("\n");
  if (from_python) {
    fmt::print(
        "Libraries that are called from Python have a microsecond or two of Python's in each "
        "call.\n");
  }
  for (const DemoPeer& peer : peers) {
    if (!peer.times) print_wrapped(fmt::format("Not measured: {}: ", peer.name), peer.why_not);
  }
  if (ranks > processors) {
    fmt::print("{} ranks share {} processors: times depend on how the system shares them out.\n",
               ranks, processors);
  }
  fmt::print(
      "Next: `tutti run -n {} PROGRAM` starts your own ranks, `tutti help` lists the rest.\n",
      ranks);
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  command.add_option("-n,--ranks", a->ranks, "Ranks [one for each processor, from 2 to 8]")
      ->type_name("N")
      ->check(CLI::Range(1, 64));
  command
      .add_option(
          "--python", a->python,
          "The Python whose libraries are measured too, if it has them: PyTorch's Gloo, and "
          "mpi4py with an mpiexec [python3]")
      ->type_name("PROGRAM");
  command.add_flag("--no-peers", a->no_peers, "Measure Tutti alone");
  command.footer(
      "Takes seconds, and up to a minute where Gloo and an MPI are there. A glimpse: the *_perf "
      "programs "
      "measure with\nall options (docs/benchmarks.md), `tutti compare` beside other libraries in "
      "turn "
      "(docs/comparing.md).");
  command.callback([a] { demo(*a); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("demo", tutti::define, argc, argv); }
