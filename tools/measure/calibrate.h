// `tutti calibrate`: measures the constants of this machine, for the choice of algorithms.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_calibrate_command(CLI::App& app);

}  // namespace tutti
