// `tutti topo`: the machine, or one that a file describes, as a tree, a matrix, a picture, JSON, or
// XML for NCCL; and why a GPU uses which port.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

/// Adds the subcommand; it runs while the command line is parsed.
void add_topo_command(CLI::App& app);

}  // namespace tutti
