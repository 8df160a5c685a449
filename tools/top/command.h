// `tutti top`: what the ranks of running jobs do, and who holds the others up.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

void add_top_command(CLI::App& app);

}  // namespace tutti
