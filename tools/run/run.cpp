// See run.h. The work is in launcher.cpp.
#include "tools/run/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/elastic_message.h"
#include "core/error.h"
#include "core/number.h"
#include "tools/command_line/number_in.h"
#include "tools/launcher_option.h"
#include "tools/run/job_hosts.h"
#include "tools/run/launcher.h"

namespace tutti {
namespace {

struct RunArguments {
  int ranks = 0;
  std::string hosts, host_file;
  LauncherOption launcher;
  std::vector<std::string> variables;
  int fan_out = 16;
  bool tag = false;
  bool keep_going = false;
  std::string elastic;
  int restarts = 100;
  double timeout = 0;
  std::string bind = "none";
  bool windows = false;
  std::vector<std::string> program;  // as CLI11 passes it on
  std::vector<std::string> seen;     // as it was written
};

constexpr const char* kFooter =
    "Each rank finds TUTTI_RANK, TUTTI_SIZE and TUTTI_UNIQUE_ID in its environment, and its "
    "number\n"
    "among the ranks of its host and how many those are in TUTTI_LOCAL_RANK and TUTTI_LOCAL_SIZE.\n"
    "RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are there as\n"
    "torchrun sets them, unless -x does or the job is elastic.\n"
    "Standard input goes to rank 0, signals go to all ranks. When a rank fails, tutti run ends "
    "the\n"
    "others 2 s later. With --keep-going they go on: tutti run reports each failure at once, and\n"
    "the failed ranks at the end.\n"
    "With --elastic MIN:MAX it starts MAX ranks, and a new process for each that fails; the job "
    "goes\n"
    "on while MIN are there, until a rank ends with 0, after which none is started again. The "
    "program\n"
    "has to be made for that (docs/elastic.md). Processes that end before they have joined are "
    "not\n"
    "started again after the third in a row, nor at once if they ended within a second. The ranks "
    "of\n"
    "a host that is lost start on other hosts with room (-H node1:4,node2:4 has room for 8).\n"
    "On several hosts: tutti run starts itself there by ssh, which must ask for no password, and\n"
    "takes the working directory, the TUTTI_ variables and those of -x along. Without -n, -H and\n"
    "--hostfile, a Slurm or PBS job's hosts count. docs/hosts.md says more.\n"
    "Exit status: that of the rank that failed first (128 + n for signal n), 124 after --timeout,\n"
    "125 where a host cannot be reached or is lost, 130 after Ctrl-C, 126 or 127 where the "
    "program\n"
    "cannot run, 1 where all ranks end well, but what tutti run passes on of their output (--tag,\n"
    "other hosts) cannot be written: a full disk.\n"
    "With --keep-going a rank that a signal has killed, or whose host is lost, does "
    "not\n"
    "count, as long as another rank ends with 0: status 0 says that all remaining ranks have "
    "ended\n"
    "with 0.\n"
    "Examples:\n"
    "  tutti run -n 4 build/examples/hello\n"
    "  tutti run -H node1:4,node2:4 -x OMP_NUM_THREADS=1 build/examples/hello\n"
    "  tutti run -H box1,box2 --launcher 'docker exec -i' hello\n"
    "  tutti run -n 2 --bind core --tag build/bin/all_reduce_perf -b 8 -e 64M -f 4\n"
    "  tutti run -n 4 --keep-going build/examples/survive\n"
    "  tutti run --elastic 2:4 build/examples/elastic\n"
    "  tutti run --elastic 4:8 -H node1:4,node2:4,node3:4 build/examples/elastic";

/// What the other hosts shall not get from this one: it is each host's or rank's own.
constexpr std::array<std::string_view, 8> kOwnVariables{
    "TUTTI_RANK",      "TUTTI_SIZE",    "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE",
    "TUTTI_UNIQUE_ID", "TUTTI_ADDRESS", "TUTTI_HOST_ID",    "TUTTI_ELASTIC"};

/// What -x cannot set, as each rank gets its own.
constexpr auto kOfEachRank = {"TUTTI_RANK",       "TUTTI_SIZE",      "TUTTI_LOCAL_RANK",
                              "TUTTI_LOCAL_SIZE", "TUTTI_UNIQUE_ID", "TUTTI_ELASTIC"};

/// "NAME=value": those that -x names, then TUTTI_*. (The first of one name counts.)
std::vector<std::string> variables_from(const std::vector<std::string>& chosen) {
  std::vector<std::string> result;
  for (const std::string& variable : chosen) {
    const std::string name = variable.substr(0, variable.find('='));
    if (name.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("-x '{}': it takes NAME or NAME=VALUE", variable));
    }
    if (std::ranges::find(kOfEachRank, name) != std::end(kOfEachRank)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("-x {}: tutti run itself sets this one, for each rank", name));
    }
    if (variable.find('=') != std::string::npos) {
      result.push_back(variable);
    } else if (const char* const value = std::getenv(variable.c_str())) {
      result.push_back(variable + "=" + value);
    } else {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("-x {0}: it is not set here; set it, or say -x {0}=VALUE", variable));
    }
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("TUTTI_")) continue;
    if (std::ranges::find(kOwnVariables, name) == kOwnVariables.end()) result.emplace_back(text);
  }
  return result;
}

/// What -H, --hostfile or a batch system says; nothing: none of them does.
std::vector<JobHost> named_hosts(const RunArguments& arguments) {
  if (!arguments.hosts.empty()) return hosts_in_list(arguments.hosts);
  if (!arguments.host_file.empty()) return hosts_in_file(arguments.host_file);
  return arguments.ranks > 0 ? std::vector<JobHost>() : hosts_of_allocation();
}

/// `most`: the ranks of an elastic job at a time; its hosts may have room for more. 0: the job is
/// not elastic.
std::vector<HostShare> hosts_from(const RunArguments& arguments, int most) {
  const std::vector<JobHost> hosts = named_hosts(arguments);
  if (hosts.empty()) {
    const int ranks = std::max(arguments.ranks, most);
    if (ranks > 0) return {{"localhost", 0, 0, ranks}};
    throw Error(ErrorCode::invalid_argument,
                "run: how many ranks (-n N), or on which hosts (-H node1:4,node2:4, --hostfile "
                "FILE)? This is no Slurm or PBS job, which would say so");
  }
  if (most == 0) return share_ranks(hosts, arguments.ranks);
  const bool has_slots =
      std::ranges::any_of(hosts, [](const JobHost& host) { return host.slots > 0; });
  const std::vector<HostShare> shares = share_ranks(hosts, has_slots ? 0 : most);
  const int room = shares.back().first_rank + shares.back().ranks;
  if (room < most) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--elastic: {} ranks at most, but the hosts have room for {}; name "
                            "more hosts, or give them more ranks (HOST:RANKS)",
                            most, room));
  }
  return shares;
}

/// The path by which the user knows this folder; other hosts may know no other.
std::string working_folder() {
  std::error_code none;
  const std::filesystem::path here = std::filesystem::current_path(none);
  const char* const known = std::getenv("PWD");
  if (known != nullptr && *known == '/' && std::filesystem::equivalent(here, known, none)) {
    return known;
  }
  return here;
}

/// "2:4", or "4" for 4:4, into `options`.
void read_elastic(const std::string& text, ElasticLimits& limits) {
  const auto number = [](std::string_view part) { return parse_number<int>(part).value_or(0); };
  const std::size_t colon = text.find(':');
  const std::string_view all = text;
  const int most = number(all.substr(colon == text.npos ? 0 : colon + 1));
  limits.least = number(all.substr(0, colon));
  limits.most = most;
  if (limits.least < 1 || most < limits.least || most > kMostElasticRanks) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--elastic {}: it takes MIN:MAX, two numbers of ranks from 1 to {}, "
                            "such as 2:4",
                            text, kMostElasticRanks));
  }
}

JobOptions job_from(const RunArguments& arguments, std::size_t unwanted) {
  JobOptions options;
  options.timeout = std::chrono::nanoseconds(std::llround(arguments.timeout * 1e9));
  options.keep_going = arguments.keep_going;
  JobDescription& job = options.job;
  job.tag = arguments.tag;
  job.bind_cores = arguments.bind == "core";
  job.windows = arguments.windows;
  job.program = arguments.seen;
  job.program.resize(job.program.size() - unwanted);
  options.elastic.restarts = arguments.restarts;
  job.elastic = !arguments.elastic.empty();
  if (job.elastic) read_elastic(arguments.elastic, options.elastic);
  job.hosts = hosts_from(arguments, options.elastic.most);
  job.variables = variables_from(arguments.variables);
  job.folder = working_folder();
  job.connect = arguments.launcher.connect();
  job.tutti = arguments.launcher.tutti();
  job.fan_out = arguments.fan_out;
  return options;
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("run", "Start the ranks of a program, on this host or on several");
  const auto arguments = std::make_shared<RunArguments>();
  command
      ->add_option("-n,--ranks", arguments->ranks,
                   "How many ranks [with -H or --hostfile: as many as the hosts take]")
      ->type_name("N")
      ->check(CLI::Validator(  // the parser takes -np for -n p
          [](const std::string& text) {
            return text.starts_with('p') ? "it is -n here, not -np: tutti run -n 4 program" : "";
          },
          ""))
      ->check(CLI::Range(1, 100'000).description(""));
  auto* hosts =
      command
          ->add_option(
              "-H,--host", arguments->hosts,
              "Hosts and the ranks that each takes, as node1:4,node2:4 [1, or its share of -n]")
          ->type_name("LIST");
  command
      ->add_option("--hostfile", arguments->host_file,
                   "The same from a file: lines 'HOST', 'HOST:RANKS' or 'HOST slots=RANKS'")
      ->type_name("FILE")
      ->excludes(hosts);
  command
      ->add_option("-x", arguments->variables,
                   "A variable for the ranks of all hosts, beside the TUTTI_ ones")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  arguments->launcher.add_to(*command);
  command
      ->add_option("--fan-out", arguments->fan_out,
                   "With more hosts than that, hosts start further hosts [16]")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000).description(""));
  command->add_flag("--tag", arguments->tag, "Begin every line of output with its rank, as '[3] '");
  command->add_option("--timeout", arguments->timeout, "End all ranks after so long [never]")
      ->type_name("SECONDS")
      ->check(number_in(0.001, 1e9, "seconds"));
  auto* keep_going = command->add_flag("--keep-going", arguments->keep_going,
                                       "A rank that fails does not end the others");
  auto* elastic =
      command
          ->add_option("--elastic", arguments->elastic,
                       "Starts MAX ranks, and a new process for each that fails; goes on while MIN "
                       "are there")
          ->type_name("MIN:MAX")
          ->excludes("--ranks")
          ->excludes(keep_going);
  command
      ->add_option("--restarts", arguments->restarts,
                   "With --elastic, how many processes are started again in all [100]")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->needs(elastic);
  command
      ->add_option("--bind", arguments->bind,
                   "core (a core for each rank, where there are enough) or none [none]")
      ->type_name("KIND")
      ->check(CLI::IsMember({"none", "core"}).description(""));
  command->add_flag("--windows", arguments->windows,
                    "The ranks' large allocations lie in memory that other ranks can map: their "
                    "collectives need no copies (docs/memory.md)");
  auto* program =
      command->add_option("PROGRAM", arguments->program, "The program and its arguments")
          ->required()
          ->type_name("");
  // From the first word of the program on, everything is the program's. CLI11 takes a word such as
  // [1,2] apart when it stores it, so the words are noted when it asks whether they are valid. It
  // asks again, at the end, about those that it has stored.
  command->positionals_at_end();
  command->validate_positionals();
  program->check(CLI::Validator(
      [arguments](std::string& word) {
        arguments->seen.push_back(word);
        return std::string();
      },
      ""));
  command->footer(kFooter);
  command->callback([arguments, program] {
    const int status = run_job(job_from(*arguments, program->count()));
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace tutti
