// `tutti run -n N program ...`: starts N ranks of a program on this host.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand. It runs while the command line is parsed, and ends the parsing with
/// CLI::RuntimeError(status) where the job's exit status is not 0.
void add_run_command(CLI::App& app);

}  // namespace tutti
