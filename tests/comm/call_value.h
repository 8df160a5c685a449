// What a rank puts at a place of a call's data: it differs by rank, place and call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::test {

inline std::int32_t call_value(int rank, std::size_t i, int call) {
  return static_cast<std::int32_t>(1'000'003 * (rank + 1) + 13 * static_cast<int>(i) + 101 * call);
}

}  // namespace tutti::test
