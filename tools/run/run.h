// `tutti run -n N program ...`, `tutti run -H node1:4,node2:4 program ...`: starts the ranks of a
// program on this host, or on several.
#pragma once

namespace CLI {
class App;
}

namespace tutti {

/// Adds the subcommand. It runs while the command line is parsed, and ends the parsing with
/// CLI::RuntimeError(status) where the job's exit status is not 0.
void add_run_command(CLI::App& app);

}  // namespace tutti
