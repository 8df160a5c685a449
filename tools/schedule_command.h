// `tutti schedule`: lists the pipeline schedules, and shows, proves, simulates and draws them or
// one from a file.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; its work is done by callbacks while the command line is parsed. A schedule
/// that is not proved ends the parsing with CLI::RuntimeError(1), after its story was printed.
void add_schedule_command(CLI::App& app);

}  // namespace tutti
