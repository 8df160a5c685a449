// What the ranks of a campaign do over and over, until something happens to one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace tutti::campaign {

/// One kind of work. Data are distinct by rank, step and position, and every result is checked.
class Work {
 public:
  virtual ~Work() = default;
  /// Throws what the library throws, and std::runtime_error for a wrong result. An Error's rank is
  /// one of the communicator.
  virtual void step() = 0;
  /// After an Error: nobody waits any more for this rank on what the work has made.
  virtual void stop() {}
};

/// `kind`: call, message, group, start, split, shrink, mixed (tests/comm/random_calls.h); large,
/// puts, reconfigure, quiet. `memory`: kept, windows, registered, any. Replaces `comm` when it
/// reconfigures. Throws std::out_of_range for a kind that does not exist.
std::unique_ptr<Work> make_work(const std::string& kind, const std::string& memory,
                                std::uint32_t seed, Communicator& comm);

}  // namespace tutti::campaign
