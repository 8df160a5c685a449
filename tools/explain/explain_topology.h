// `tutti explain --topology FILE`: which rings and trees a machine's links carry, how much goes
// through them, what limits it, and which port each GPU uses.
#pragma once

#include <string>

namespace tutti {

/// `file`: as for `tutti topo --file`; "" is this machine. Prints.
void explain_topology(const std::string& file, bool several_hosts, bool cross_rails);

}  // namespace tutti
