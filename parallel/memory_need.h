// Compares the memory that engines need with the available memory, before anything is touched. The
// system promises any size. When it cannot keep its promise it ends processes, and not only those
// that asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "agreement.h"

namespace tutti::parallel {

/// The memory of one rank.
struct MemoryNeed {
  std::uint64_t bytes = 0;
  std::uint64_t available = 0;  // now
  std::uint64_t domain = 0;     // ranks with equal values share the available memory

  static MemoryNeed now(std::uint64_t bytes, const Device& device = host_device());
};

/// Throws Error(invalid_argument), the same on all ranks, if ranks that share memory together need
/// more than is available. `world_rank`: a rank's number, for the error.
void check_memory(std::string_view what, std::span<const MemoryNeed> of_ranks,
                  const std::function<int(int)>& world_rank);

/// Collective over `ranks`: the same, with the need of each of them, of its device.
void agree_on_memory(Agreement ranks, std::string_view what, std::uint64_t bytes,
                     const Device& device = host_device());

}  // namespace tutti::parallel
