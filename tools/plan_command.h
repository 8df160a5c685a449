// `tutti plan`: lists the algorithms, and shows, proves and draws their plans or one from a file.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; its work is done by callbacks while the command line is parsed. An unproved
/// plan ends the parsing with CLI::RuntimeError(1), after printing the steps that go wrong.
void add_plan_command(CLI::App& app);

}  // namespace tutti
