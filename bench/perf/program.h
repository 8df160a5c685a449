// A *_perf program: options, ranks (processes, threads, or both; on GPUs several of a thread), one
// Runner on every thread.
#pragma once

#include "collectives/collective.h"

namespace tutti::perf {

/// main() of the program for `collective`. Returns 0; 1 if a result was wrong or a rank failed; 2
/// for a wrong command line.
int run_program(Collective collective, int argc, char** argv);

}  // namespace tutti::perf
