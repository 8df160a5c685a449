// The machine that this process runs on: as hwloc sees it, and, where each rank of many asks for
// one number alone, as the kernel's files say. To begin hwloc takes 6 ms, most of it to load the
// libraries of its plugins.
#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

/// Cores (hardware threads), as the operating system numbers them.
using CoreSet = std::bitset<1024>;

struct Host {
  std::string cpu;  // the processor's name for its model
  int cores = 1;
  std::size_t l2_bytes = 0;  // of one core
  std::size_t l3_bytes = 0;  // of one last-level cache
  // The cores of each last-level cache, or, if there is none, of each NUMA node.
  std::vector<CoreSet> domains;
};

/// Looked up once. Usual sizes replace those that hwloc does not know.
const Host& host();

/// Host::l3_bytes. Does without hwloc where the kernel says it.
std::size_t l3_bytes();

/// The first line of a file, as the kernel's are; "" if it cannot be read.
std::string first_line(const std::string& file);

/// The cores on which this thread may run; just the first core if that is not known.
CoreSet allowed_cores();

/// The number of the first core of the domain in which all of `cores` lie; -1 if there is none.
/// Processes in containers of their own find the same. Does without hwloc.
int domain_of(const CoreSet& cores);

}  // namespace tutti
