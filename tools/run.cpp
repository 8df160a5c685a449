// See run.h. The work is in launcher.cpp.
#include "tools/run.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tools/launcher.h"

namespace tutti {
namespace {

struct Arguments {
  int ranks = 0;
  bool tag = false;
  double timeout = 0;
  std::string bind = "none";
  std::vector<std::string> program;  // as CLI11 passes it on
  std::vector<std::string> seen;     // as it was written
};

constexpr const char* kFooter =
    "Each rank finds TUTTI_RANK, TUTTI_SIZE and TUTTI_UNIQUE_ID in its environment. Standard input "
    "goes to rank 0. When a rank fails, the others are ended 2 s later, and the exit status is "
    "that "
    "rank's (128 + n for signal n); it is 124 after --timeout, 130 after Ctrl-C, 126 or 127 where "
    "the program cannot be run. Signals are passed on to the ranks.";

}  // namespace

void add_run_command(CLI::App& app) {
  auto* command = app.add_subcommand("run", "Start the ranks of a program on this host");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("-n,--ranks", arguments->ranks, "How many ranks")
      ->required()
      ->check(CLI::Range(1, 100'000));
  command->add_flag("--tag", arguments->tag, "Begin every line of output with its rank, as '[3] '");
  command->add_option("--timeout", arguments->timeout, "End all ranks after so many seconds")
      ->check(CLI::Range(0.001, 1e9));
  command
      ->add_option("--bind", arguments->bind,
                   "'core': every rank to a core of its own, where there are enough; 'none'")
      ->check(CLI::IsMember({"none", "core"}))
      ->capture_default_str();
  auto* program =
      command->add_option("PROGRAM", arguments->program, "The program and its arguments")
          ->required();
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
    job.bind_cores = arguments->bind == "core";
    job.program = arguments->seen;
    job.program.resize(job.program.size() - program->count());
    const int status = run_job(job);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace tutti
