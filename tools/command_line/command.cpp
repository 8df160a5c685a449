// See command.h.
#include "tools/command_line/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"
#include "tools/command_line/programs.h"
#include "tools/command_line/usage_error.h"

namespace tutti {
namespace {

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
  if (unknown.starts_with('-')) return unknown_option_text(at, unknown);
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

int parse(CLI::App& app, int argc, const char* const* argv) {
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

int run_command_line(CLI::App& app, int argc, const char* const* argv) {
  const int status = parse(app, argc, argv);
  // What was printed may not have arrived: a full disk, a closed pipe.
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (lost && status == 0) {
    std::fputs("tutti: cannot write the output\n", stderr);
    return kFailed;
  }
  return status;
}

int run_tool(std::string_view name, void (*define)(CLI::App& command), int argc, char** argv) {
  // As `tutti name ...` is parsed, so that all texts are about that.
  const std::string word(name);
  std::vector<const char*> words{"tutti", word.c_str()};
  words.insert(words.end(), argv + (argc > 0 ? 1 : 0), argv + argc);
  CLI::App app("", "tutti");
  app.require_subcommand(1);
  define(*app.add_subcommand(word, std::string(find_tool(name)->summary)));
  return run_command_line(app, static_cast<int>(words.size()), words.data());
}

}  // namespace tutti
