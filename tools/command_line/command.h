// What a program with the command line of `tutti` does with it, and main() of the programs `tutti
// X`.
//
// Exit status: 0 success; 1 the answer is no (a plan is not proved) or something failed; 2 the
// command was used wrongly; or what a command says (CLI::RuntimeError).
#pragma once

#include <string_view>

namespace CLI {
class App;
}

namespace tutti {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

/// Parses the command line, which runs the command. Says on standard error what is wrong. Returns
/// the exit status: also 1 where the output cannot be written.
int run_command_line(CLI::App& app, int argc, const char* const* argv);

/// `tutti name`: `define` gives the command its options and its work. The program's own command
/// line has what follows the name.
int run_tool(std::string_view name, void (*define)(CLI::App& command), int argc, char** argv);

}  // namespace tutti
