// `tutti explain COLLECTIVE SIZE`: which algorithm would run, how long that is predicted to take,
// and what the others would take.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_explain_command(CLI::App& app);

}  // namespace tutti
