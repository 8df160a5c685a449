// The `tutti` command: starts the ranks of a program (`tutti run`), lists the other commands, and
// hands over to them. Each of those is a program of its own (command_line/programs.h), which takes
// this process's place: its exit status is theirs, and so are the signals.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/command_line/command.h"
#include "tools/command_line/programs.h"
#include "tools/run/remote_agent.h"
#include "tools/run/run.h"

namespace tutti {
namespace {

/// Becomes the program of `words[1]`, with the words that follow. Returns only where it cannot: the
/// exit status.
int hand_over(const std::filesystem::path& program, std::vector<const char*> words) {
  words.erase(words.begin());
  const std::string name = program.filename();
  words.front() = name.c_str();
  words.push_back(nullptr);
  ::execv(program.c_str(), const_cast<char* const*>(words.data()));
  fmt::print(stderr, "tutti: cannot start {}: {}\n", program.string(), std::strerror(errno));
  return kFailed;
}

constexpr std::array<std::string_view, 4> kBuiltIn{"run", "run-agent", "version", "help"};

bool is_built_in(std::string_view name) {
  return std::ranges::find(kBuiltIn, name) != kBuiltIn.end();
}

/// A command for the list, and for those who mistype it. Whoever gets here does not call it.
void list_command(CLI::App& app, std::string_view name, std::string_view summary,
                  const char* group = nullptr) {
  CLI::App* const command = app.add_subcommand(std::string(name), std::string(summary));
  if (group != nullptr) command->group(group);
}

/// Those that are there, and others that somebody has put beside them; then those that are not.
void list_tools(CLI::App& app) {
  for (const ToolProgram& tool : kToolPrograms) {
    if (is_program(tool_path(tool.name))) list_command(app, tool.name, tool.summary);
  }
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(tools_folder(), none)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tutti-") || !is_program(entry.path())) continue;
    const std::string word = name.substr(6);
    if (find_tool(word) != nullptr || is_built_in(word) || !CLI::detail::valid_name_string(word)) {
      continue;
    }
    list_command(app, word, entry.path().string());
  }
  for (const ToolProgram& tool : kToolPrograms) {
    if (is_program(tool_path(tool.name))) continue;
    list_command(app, tool.name, tool.summary, "Not built here (each says what builds it)");
  }
}

/// `name`: the first of the words that follow.
int run_built_in(const std::vector<const char*>& words, std::string_view name) {
  CLI::App app("Tutti: collective communication whose plans are proved before they run.", "tutti");
  app.require_subcommand(1);
  app.footer("'tutti COMMAND --help' or 'tutti help COMMAND' says more about a command.");
  add_run_command(app);
  if (!is_built_in(name) && name != "--version") list_tools(app);
  const std::string version = fmt::format("tutti {}", TUTTI_VERSION);
  app.set_version_flag("--version", version, "Print the version and exit");
  app.add_subcommand("version", "Print the version")->footer("")->callback([&version] {
    fmt::print("{}\n", version);
  });
  return run_command_line(app, static_cast<int>(words.size()), words.data());
}

int run(int argc, char** argv) {
  std::vector<const char*> words(argv, argv + argc);
  // "tutti help plan show" and "tutti --help plan show" are "tutti plan show --help".
  const std::string_view first = words.size() > 1 ? words[1] : "";
  if (first == "help" || (words.size() > 2 && (first == "--help" || first == "-h"))) {
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  const std::string_view name = words.size() > 1 ? words[1] : "";
  if (name == "run-agent") return run_remote_agent();
  const bool is_word = !name.starts_with('-') && name.find('/') == std::string_view::npos;
  if (is_word && !name.empty() && !is_built_in(name)) {
    const std::filesystem::path program = tool_path(name);
    if (is_program(program)) return hand_over(program, std::move(words));
    if (const ToolProgram* tool = find_tool(name)) {
      fmt::print(stderr, "tutti: {}\n", how_to_build(*tool));
      return kFailed;
    }
  }
  return run_built_in(words, name);
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  try {
    return tutti::run(argc, argv);
  } catch (const std::exception& e) {  // where /proc is not mounted, say
    fmt::print(stderr, "tutti: {}\n", e.what());
    return tutti::kFailed;
  }
}
