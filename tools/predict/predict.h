// `tutti predict`: how long collectives would take on a cluster, from its description, in the table
// of nccl-tests, beside a measured log if there is one.
#pragma once

#include <CLI/CLI.hpp>

namespace tutti {

void add_predict_command(CLI::App& app);

}  // namespace tutti
