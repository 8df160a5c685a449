// What engines ask the memory for, compared with what there is before anything is touched: the
// system promises any size, and ends processes, not only those that asked, when it cannot keep it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "agreement.h"

namespace tutti::parallel {

/// Of one rank.
struct MemoryNeed {
  std::uint64_t bytes = 0;
  std::uint64_t available = 0;  // now
  std::uint64_t domain = 0;     // ranks that have the same share what is available

  static MemoryNeed now(std::uint64_t bytes);
};

/// Throws Error(invalid_argument), the same on all ranks, where ranks that share memory need more
/// together than is available. `world_rank`: a rank's number, for the error.
void check_memory(std::string_view what, std::span<const MemoryNeed> of_ranks,
                  const std::function<int(int)>& world_rank);

/// Collective over `ranks`: the same, of what each of them needs.
void agree_on_memory(Agreement ranks, std::string_view what, std::uint64_t bytes);

}  // namespace tutti::parallel
