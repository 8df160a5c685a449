// `tutti doctor`: what this machine offers to ranks, and what to do about what is missing.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_doctor_command(CLI::App& app);

}  // namespace tutti
