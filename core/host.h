// The machine that this process runs on, as hwloc sees it.
#pragma once

#include <cstddef>
#include <string>

namespace tutti {

struct Host {
  std::string cpu;  // its model, as the processor calls itself
  int cores = 1;
  std::size_t l2_bytes = 0;  // of one core
  std::size_t l3_bytes = 0;  // of one last-level cache
};

/// Looked up once. Where hwloc does not know, usual sizes stand in.
const Host& host();

}  // namespace tutti
