// `tutti run-agent`: what `tutti run` starts on the other hosts of a job. Users do not call it.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand, hidden from the help.
void add_agent_command(CLI::App& app);

}  // namespace tutti
