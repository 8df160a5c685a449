// See run.h. The work is in launcher.cpp.
#include "tools/run.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tools/launcher.h"
#include "tools/number_in.h"

namespace tutti {
namespace {

struct Arguments {
  int ranks = 0;
  bool tag = false;
  bool keep_going = false;
  double timeout = 0;
  std::string bind = "none";
  std::vector<std::string> program;  // as CLI11 passes it on
  std::vector<std::string> seen;     // as it was written
};

constexpr const char* kFooter =
    "Each rank finds TUTTI_RANK, TUTTI_SIZE and TUTTI_UNIQUE_ID in its environment. Standard "
    "input\n"
    "goes to rank 0, signals go to all ranks. When a rank fails, tutti run ends the others 2 s\n"
    "later. With --keep-going they go on: tutti run reports each failure at once, and the failed\n"
    "ranks at the end.\n"
    "Exit status: that of the rank that failed first (128 + n for signal n), 124 after --timeout,\n"
    "130 after Ctrl-C, 126 or 127 where the program cannot run. With --keep-going a rank that a\n"
    "signal has killed does not count, as long as another rank ends with 0: status 0 says that\n"
    "all remaining ranks have ended with 0.\n"
    "Examples:\n"
    "  tutti run -n 4 build/examples/hello\n"
    "  tutti run -n 2 --bind core --tag build/bin/all_reduce_perf -b 8 -e 64M -f 4\n"
    "  tutti run -n 4 --keep-going build/examples/survive";

}  // namespace

void add_run_command(CLI::App& app) {
  auto* command = app.add_subcommand("run", "Start the ranks of a program on this host");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("-n,--ranks", arguments->ranks, "How many ranks")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 100'000));
  command->add_flag("--tag", arguments->tag, "Begin every line of output with its rank, as '[3] '");
  command->add_option("--timeout", arguments->timeout, "End all ranks after so long [never]")
      ->type_name("SECONDS")
      ->check(number_in(0.001, 1e9));
  command->add_flag("--keep-going", arguments->keep_going,
                    "A rank that fails does not end the others");
  command
      ->add_option("--bind", arguments->bind,
                   "core (a core for each rank, where there are enough) or none [none]")
      ->type_name("KIND")
      ->check(CLI::IsMember({"none", "core"}).description(""));
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
    JobOptions job;
    job.ranks = arguments->ranks;
    job.tag = arguments->tag;
    job.timeout = std::chrono::nanoseconds(std::llround(arguments->timeout * 1e9));
    job.keep_going = arguments->keep_going;
    job.bind_cores = arguments->bind == "core";
    job.program = arguments->seen;
    job.program.resize(job.program.size() - program->count());
    const int status = run_job(job);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace tutti
