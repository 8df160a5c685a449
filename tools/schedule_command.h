// `tutti schedule`: lists the pipeline schedules, and shows, proves, simulates and draws them or
// one from a file.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; its work is done by callbacks while the command line is parsed. An unproved
/// schedule ends the parsing with CLI::RuntimeError(1), after printing the actions that go wrong.
void add_schedule_command(CLI::App& app);

}  // namespace tutti
