// An interpreter of plans that knows nothing of the verifier: it makes one run, in small steps and
// in random order, with numbers in the chunks. Where the verifier says that no timing can go wrong,
// no run here may: the tests compare the verifier with it.
//
// A run: ranks start when they like, and their memory holds garbage before; a step waits for its
// links, then reads and writes one chunk after the other, then sends; lanes interleave anywhere in
// between; slots are as few as the plan declares; there are one tile or two; a rank's user reads
// `out` and overwrites everything the moment the call ends there.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/plan.h"

namespace tutti::test {

/// Empty if all went well, else what went wrong. The plan's form must be sound.
std::string interpret(const Plan& plan, bool in_place, std::uint64_t seed);

}  // namespace tutti::test
