// `tutti top`: what the ranks of running jobs do, and which ranks hold the others up.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

void add_top_command(CLI::App& app);

}  // namespace tutti
