// Ranks in processes of their own, forked from this one, that measure something together.
#pragma once

#include <sched.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"

namespace tutti {

struct ForkedRanks {
  int count = 1;
  std::vector<cpu_set_t> cores;  // rank r runs on cores[r % cores.size()]; empty: anywhere
  std::string algorithm;         // for Options; "": whichever is chosen
};

/// Runs `body` on each rank, with the settings' defaults, whatever the environment says, and
/// without warnings. Each rank's body gets `result` as it is now; rank 0's is kept. Call it while
/// this process has one thread. Throws Error with the failure of a rank.
void run_forked(const ForkedRanks& ranks, std::span<std::byte> result,
                const std::function<void(Communicator&, std::byte* result)>& body);

template <class Result>
requires std::is_trivially_copyable_v<Result>
void run_forked(const ForkedRanks& ranks, Result& result,
                const std::function<void(Communicator&, Result&)>& body) {
  run_forked(
      ranks, std::as_writable_bytes(std::span(&result, 1)),
      [&](Communicator& comm, std::byte* bytes) { body(comm, *reinterpret_cast<Result*>(bytes)); });
}

}  // namespace tutti
