// `tutti check`: runs a benchmark on the spot, and says whether the machine is as fast as it should
// be.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/number.h"
#include "tools/check/expect.h"
#include "tools/check/measure.h"
#include "tools/check/report.h"
#include "tools/cluster/nccl_log.h"
#include "tools/command_line/command.h"
#include "tools/command_line/programs.h"
#include "tools/plan_source.h"
#include "tools/terminal.h"
#include "tools/text_file.h"

namespace tutti {
namespace {

constexpr const char* kHostMemory = "host memory";  // in a GPU's place, as *_perf prints it
constexpr double kCalibrated = 2, kAssumed = 4;     // bands; docs/check.md says why

struct Arguments {
  std::string collective = "all_reduce", hosts, program, launcher, tutti, min = "8K", max = "16M";
  std::string log, network;
  int ranks = 0, gpus = 0, seconds = 60, iterations = 20;
  double band = 0;
  bool json = false;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

/// Ranks of each host, of "node1:4,node2:4".
std::vector<int> ranks_of_hosts(const Arguments& a) {
  constexpr int kMost = 1'000'000;
  std::vector<int> all;
  for (std::size_t at = 0; !a.hosts.empty() && at <= a.hosts.size();) {
    const auto end = std::min(a.hosts.find(',', at), a.hosts.size());
    const std::string host = a.hosts.substr(at, end - at);
    const auto colon = host.rfind(':');
    const auto n = colon == host.npos ? std::optional<std::int64_t>(1)
                                      : parse_number<std::int64_t>(host.substr(colon + 1));
    if (!n || *n < 1 || *n > kMost || colon == 0 || host.empty()) {
      refuse(fmt::format("--host: '{}' is not HOST or HOST:RANKS", host));
    }
    all.push_back(static_cast<int>(*n));
    at = end + 1;
  }
  if (all.empty()) all.push_back(a.ranks > 0 ? a.ranks : 2);
  return all;
}

std::string program_of(const Arguments& a, Collective collective) {
  if (!a.program.empty()) return a.program;
  const std::string stem =
      collective == Collective::all_to_all ? "alltoall" : std::string(name(collective));
  const auto path = tutti_program().parent_path() / (stem + "_perf");
  if (!is_program(path)) refuse(fmt::format("there is no {}; --program names one", path.string()));
  return path.string();
}

check::MeasureOptions options_of(const Arguments& a, Collective collective) {
  check::MeasureOptions o;
  o.program = program_of(a, collective);
  o.seconds = a.seconds;
  o.words = {"-b", a.min, "-e", a.max, "-f", "2", "-w", "5", "-n", std::to_string(a.iterations)};
  if (a.gpus > 0) {  // one process has them all
    o.words.insert(o.words.end(), {"-g", std::to_string(a.gpus)});
    return o;
  }
  if (a.hosts.empty()) {
    o.launch = {"-n", std::to_string(ranks_of_hosts(a).front())};
  } else {
    o.launch = {"-H", a.hosts};
  }
  if (!a.launcher.empty()) o.launch.insert(o.launch.end(), {"--launcher", a.launcher});
  if (!a.tutti.empty()) o.launch.insert(o.launch.end(), {"--tutti", a.tutti});
  o.launch.emplace_back("--");
  return o;
}

/// GPUs are judged by what is known of their model: `tutti predict --log` has the verdict.
int judge_gpus(const std::string& output, const Arguments& a) {
  const auto predict = tool_path("predict");
  if (!is_program(predict)) refuse(how_to_build(*find_tool("predict")));
  char file[] = "/tmp/tutti-check-XXXXXX";
  const int fd = ::mkstemp(file);
  if (fd < 0) refuse("no file can be made in /tmp for the log");
  ::close(fd);
  write_text_file(file, output);
  check::MeasureOptions o;
  o.program = predict.string();
  o.words = {a.collective, "--log", file};
  if (!a.network.empty()) o.words.insert(o.words.end(), {"--network", a.network});
  if (a.json) o.words.emplace_back("--json");
  o.seconds = a.seconds;
  const check::Measurement said = check::measure(o);
  ::unlink(file);
  fmt::print("{}", said.output);
  return said.status;
}

int run(const Arguments& a) {
  const Collective collective = collective_named(a.collective);
  const std::vector<int> ranks = ranks_of_hosts(a);
  const check::MeasureOptions options = options_of(a, collective);
  show_progress(fmt::format("{} runs", options.program));
  const check::Measurement m = check::measure(options);
  show_progress("");
  if (!a.log.empty()) write_text_file(a.log, m.output);
  const NcclLog log = parse_nccl_log(m.output, options.program, collective);
  if (m.status != 0 || log.rows.empty()) {
    fmt::print(stderr, "{}", m.output);
    fmt::print(stderr, "tutti: no verdict: {} {}\n", options.program,
               m.late          ? fmt::format("took more than {} s (--timeout)", a.seconds)
               : m.status != 0 ? fmt::format("ended with {}", m.status)
                               : "printed no table as nccl-tests does");
    return check::exit_status(check::Speed::none);
  }
  if (!log.gpu.empty() && log.gpu != kHostMemory) return judge_gpus(m.output, a);
  check::Expectation expectation(collective, ranks);
  check::Check c;
  c.collective = a.collective;
  c.origin = expectation.origin();
  c.calibrated = expectation.calibrated();
  c.line_rate = expectation.line_rate();
  c.hosts = static_cast<int>(ranks.size());
  c.ranks = 0;
  for (const int n : ranks) c.ranks += n;
  c.band = a.band > 0 ? a.band : c.calibrated ? kCalibrated : kAssumed;
  c.load = m.load;
  for (const LogRow& row : log.rows) {
    c.sizes.push_back({row.bytes, row.us, expectation.us(row.bytes), row.busbw});
  }
  fmt::print("{}", a.json ? json_of(c) : text_of(c));
  return exit_status(verdict_of(c));
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  command.add_option("collective", a->collective, "all_reduce, all_gather, ...")
      ->type_name("COLLECTIVE")
      ->capture_default_str();
  auto* ranks = command.add_option("-n,--ranks", a->ranks, "Ranks on this host [2]")
                    ->type_name("N")
                    ->check(CLI::Range(1, 1'000'000));
  auto* hosts = command
                    .add_option("-H,--host", a->hosts,
                                "Hosts and the ranks that each takes, as node1:4,node2:4")
                    ->type_name("LIST")
                    ->excludes(ranks);
  command
      .add_option("-g,--gpus", a->gpus,
                  "One process with so many GPUs, as nccl-tests without MPI; judged by `tutti "
                  "predict --log`")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->excludes(ranks)
      ->excludes(hosts);
  command
      .add_option("--program", a->program,
                  "What to run, with the options and the table of nccl-tests [Tutti's own *_perf]")
      ->type_name("PATH");
  command.add_option("-N,--network", a->network, "Between hosts with GPUs, as `tutti predict -N`")
      ->type_name("TEXT");
  command.add_option("--launcher", a->launcher, "As `tutti run --launcher`")->type_name("CMD");
  command.add_option("--tutti", a->tutti, "As `tutti run --tutti`")->type_name("PATH");
  command.add_option("-b,--min", a->min, "The first size")
      ->type_name("BYTES")
      ->capture_default_str();
  command.add_option("-e,--max", a->max, "The last size")
      ->type_name("BYTES")
      ->capture_default_str();
  command.add_option("--iterations", a->iterations, "Calls of each size that are timed")
      ->type_name("N")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command
      .add_option("--band", a->band,
                  "How many times slower than expected is slow [2; 4 without `tutti calibrate`]")
      ->type_name("TIMES")
      ->check(CLI::Range(1.0, 1e6));
  command.add_option("--timeout", a->seconds, "Seconds that the program may take")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--log", a->log, "Also write what the program printed")->type_name("FILE");
  command.add_flag("--json", a->json, "For programs (docs/check.md)");
  command.footer(
      "Exit status: 0 fine, 1 slow, 2 used wrongly, 3 no verdict. Examples:\n"
      "  tutti check -n 4\n"
      "  tutti check all_gather -H node1:4,node2:4 --json\n"
      "  tutti check -g 8 --program /opt/nccl-tests/build/all_reduce_perf -e 1G");
  command.callback([a] {
    if (const int status = run(*a); status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("check", tutti::define, argc, argv); }
