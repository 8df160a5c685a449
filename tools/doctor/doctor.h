// `tutti doctor`: what this machine offers to ranks, and how to get what is missing.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_doctor_command(CLI::App& app);

}  // namespace tutti
