// The `tutti` command: plans, pipeline schedules, settings, the start of ranks, comparisons, and
// what calls cost, each a subcommand.
//
// Exit status: 0 success; 1 the answer is no (a plan is not proved) or something failed; 2 the
// command was used wrongly. `tutti run` returns the status of the ranks it ran.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/command_line.h"
#include "core/error.h"
#include "core/nearest.h"
#include "core/settings.h"
#include "tools/compare/compare.h"
#include "tools/doctor/doctor.h"
#include "tools/measure/calibrate.h"
#include "tools/plan_command.h"
#include "tools/predict/estimate.h"
#include "tools/predict/explain.h"
#include "tools/predict/predict.h"
#include "tools/run/agent_command.h"
#include "tools/run/run.h"
#include "tools/schedule_command.h"
#include "tools/top/command.h"
#include "tools/topo.h"

namespace tutti {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

void print_settings() {
  for (const Setting& s : settings()) {
    const char* value = std::getenv(std::string(s.name).c_str());
    if (!s.section.empty()) {
      fmt::print("{}--- {}\n", s.name == settings().front().name ? "" : "\n", s.section);
    }
    fmt::print("{} [{}]{}\n    {}\n", s.name, s.default_value,
               value == nullptr ? "" : fmt::format(" = {}", value), s.meaning);
  }
}

void add_settings_command(CLI::App& app) {
  auto* command = app.add_subcommand("settings", "The settings: environment variables, defaults");
  const auto markdown = std::make_shared<bool>(false);
  command->add_flag("--markdown", *markdown, "As a page for docs/settings.md");
  command->callback([markdown] {
    if (!*markdown) return print_settings();
    const std::string page = settings_markdown();
    std::fwrite(page.data(), 1, page.size(), stdout);
  });
  command->footer("Prints NAME [default] = value, with a value only if the environment has one.");
}

/// The command that the command line names, and its words: "tutti plan".
std::pair<const CLI::App*, std::string> named_command(const CLI::App& app) {
  const CLI::App* at = &app;
  std::string words = app.get_name();
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return {at, words};
}

/// A word that stands where a command is missing, and is none; "": there is no such word.
std::string unknown_command(const CLI::App& app) {
  const auto words = app.remaining(true);
  const bool missing = named_command(app).first->get_require_subcommand_min() > 0;
  return missing && !words.empty() ? words.front() : "";
}

/// A word that is no command of `at`; and which one was meant.
std::string unknown_command_text(const CLI::App& at, const std::string& unknown) {
  std::vector<std::string_view> names;
  for (const CLI::App* command : at.get_subcommands([](const CLI::App* command) {
         return !command->get_group().empty();  // those without are hidden
       })) {
    names.push_back(command->get_name());
  }
  return fmt::format("there is no command '{}'{}", unknown, did_you_mean(unknown, names));
}

/// Says what is wrong with the command line, and which command's help says more: "tutti plan show".
/// Where a command is missing, the help itself.
void print_bad_usage(const CLI::App& app, const CLI::ParseError& error) {
  // CLI11 says that a command is missing before it looks at words that are none.
  const std::string unknown = unknown_command(app);
  const auto [at, words] = named_command(app);
  if (unknown.empty() && at->get_require_subcommand_min() > 0 && at->remaining(true).empty()) {
    fmt::print(stderr, "tutti: name a command\n\n{}", app.help());
    return;
  }
  const std::string what =
      unknown.empty() ? usage_error(*at, error) : unknown_command_text(*at, unknown);
  fmt::print(stderr, "tutti: {}\ntutti: see '{} --help'\n", what, words);
}

int run(int argc, char** argv) {
  CLI::App app("Tutti: collective communication whose plans are proved before they run.", "tutti");
  app.require_subcommand(1);
  app.footer("'tutti COMMAND --help' says more about a command.");
  add_plan_command(app);
  add_schedule_command(app);
  add_run_command(app);
  add_agent_command(app);
  add_compare_command(app);
  add_calibrate_command(app);
  add_explain_command(app);
  add_doctor_command(app);
  add_top_command(app);
  add_topo_command(app);
  add_predict_command(app);
  add_estimate_command(app);
  add_settings_command(app);
  const std::string version = fmt::format("tutti {}", TUTTI_VERSION);
  app.set_version_flag("--version", version, "Print the version and exit");
  app.add_subcommand("version", "Print the version")->footer("")->callback([&version] {
    fmt::print("{}\n", version);
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // a command's own status; it has said why
  } catch (const CLI::ParseError& e) {
    // --help: which CLI11 also gives beside a word that is no command.
    if (e.get_exit_code() == 0 && unknown_command(app).empty()) return app.exit(e);
    print_bad_usage(app, e);
    return kBadUsage;
  } catch (const Error& e) {
    fmt::print(stderr, "tutti: {}\n", e.what());
    return e.code() == ErrorCode::invalid_argument ? kBadUsage : kFailed;
  } catch (const std::exception& e) {
    fmt::print(stderr, "tutti: {}\n", e.what());
    return kFailed;
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const int status = tutti::run(argc, argv);
  // What was printed may not have arrived: a full disk, a closed pipe.
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (lost && status == 0) {
    std::fputs("tutti: cannot write the output\n", stderr);
    return tutti::kFailed;
  }
  return status;
}
