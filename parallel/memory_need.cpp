#include "parallel/memory_need.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/error.h"
#include "core/host_memory.h"

namespace tutti::parallel {

MemoryNeed MemoryNeed::now(std::uint64_t bytes, const Device& device) {
  const Device::Available memory = device.available();
  return {.bytes = bytes, .available = memory.bytes, .domain = memory.domain};
}

void check_memory(std::string_view what, std::span<const MemoryNeed> of_ranks,
                  const std::function<int(int)>& world_rank) {
  struct Together {
    double bytes = 0;
    std::uint64_t available = HostMemory::kUnknown;
    std::vector<int> ranks;
  };
  std::map<std::uint64_t, Together> domains;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    Together& together = domains[of_ranks[r].domain];
    together.bytes += static_cast<double>(of_ranks[r].bytes);
    together.available = std::min(together.available, of_ranks[r].available);
    if (of_ranks[r].bytes > 0) together.ranks.push_back(world_rank(static_cast<int>(r)));
  }
  for (const auto& [domain, together] : domains) {
    const auto available = static_cast<double>(together.available);
    if (together.bytes <= available) continue;
    const int first = together.ranks.front();
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} needs {} on {}, where {} of memory are available: make it smaller, "
                            "or spread it over more hosts (docs/memory.md, docs/estimate.md)",
                            what, memory_text(together.bytes),
                            together.ranks.size() == 1
                                ? fmt::format("the host of rank {}", first)
                                : fmt::format("the host of ranks {} to {} ({} ranks)", first,
                                              together.ranks.back(), together.ranks.size()),
                            memory_text(available)),
                first);
  }
}

void agree_on_memory(Agreement ranks, std::string_view what, std::uint64_t bytes,
                     const Device& device) {
  const MemoryNeed own = MemoryNeed::now(bytes, device);
  const std::uint64_t words[] = {own.bytes, own.available, own.domain};
  const std::vector<std::uint64_t> all = ranks.all(words);
  std::vector<MemoryNeed> of_ranks;
  for (std::size_t at = 0; at < all.size(); at += 3) {
    of_ranks.push_back({all[at], all[at + 1], all[at + 2]});
  }
  check_memory(what, of_ranks, [&](int r) { return ranks.world_rank(r); });
}

}  // namespace tutti::parallel
