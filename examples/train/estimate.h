// What `tutti estimate` would say of this job: what the program prints beside
// what it measures.
#pragma once

#include <string>

#include "options.h"

namespace train {

/// One line, of the first rank: bytes sent in a step, and memory by kind.
/// `options` fits the ranks. Empty for --alone, where nothing is spread.
std::string estimate_line(const Options& options);

}  // namespace train
