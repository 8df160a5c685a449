// `tutti estimate`: memory, traffic and time of training a model on a cluster, for each way to
// spread it, and which one to use.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

void add_estimate_command(CLI::App& app);

}  // namespace tutti
