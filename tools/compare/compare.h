// `tutti compare`: Tutti, its peers and the machine's limit, measured in turn by the same loop
// (bench/peers/), as a table, JSON and a chart. docs/comparing.md says how it measures.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_compare_command(CLI::App& app);

}  // namespace tutti
