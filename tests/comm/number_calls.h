// Calls on vectors of whole numbers, for tests that start them, group them, or make them from
// several threads.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace tutti::test {

using Numbers = std::vector<std::int64_t>;

inline Call all_reduce(Numbers& x) {
  return {Collective::all_reduce, x.data(), x.data(), x.size(), DataType::int64};
}

inline Call broadcast(Numbers& x, int root) {
  return {Collective::broadcast, x.data(), x.data(), x.size(), DataType::int64, {}, root};
}

inline const Call barrier{.collective = Collective::barrier};

inline Call message(Numbers& x, int peer, bool sends) {
  return {.collective = Collective::send_recv,
          .in = sends ? x.data() : nullptr,
          .out = sends ? nullptr : x.data(),
          .count = x.size(),
          .type = DataType::int64,
          .peer = peer,
          .sends = sends};
}
inline Call send(Numbers& x, int peer) { return message(x, peer, true); }
inline Call receive(Numbers& x, int peer) { return message(x, peer, false); }

}  // namespace tutti::test
