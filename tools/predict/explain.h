// `tutti explain COLLECTIVE SIZE`: which algorithm would run, and the predicted times of this one
// and of the others.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_explain_command(CLI::App& app);

}  // namespace tutti
