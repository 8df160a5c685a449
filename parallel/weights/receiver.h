// Receiver: the side of a job that uses weights which another job makes, a server. It takes
// versions of them from a job of senders (sender.h), which was started apart.
//
//     Receiver receiver(comm, layout, folder_place("/shared/run7"));   // all ranks of the server
//     for (;;) {
//       const std::uint64_t version = receiver.receive();              // the next whole version
//       serve(receiver.pointers());                                    // by buffer of the layout
//     }
//
// Each rank has its buffers twice, or once besides memory of the program. A new version is written
// to the set that is not in use, and all ranks turn to it together when each of them has all of it:
// to the other set, or by a copy into the program's memory. So nobody ever sees a part of a
// version, and whoever dies meanwhile, all ranks have the old version or all have the new one.
#pragma once

#include <tutti/comm/communicator.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../reshard/buffers.h"
#include "../reshard/layout.h"
#include "job_side.h"
#include "options.h"
#include "place.h"

namespace tutti::parallel::weights {

/// Functions are collective over the job unless they say otherwise, and throw tutti::Error. One
/// thread at a time uses a Receiver, which has a communicator of its own. Its end leaves the
/// senders.
class Receiver : public JobSide {
 public:
  /// `layout` says what each of the job's ranks wants; it passes check().
  Receiver(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
           WeightsOptions options = {});
  /// The same with the program's memory as one of the two sets, of WeightsOptions::device, which
  /// outlives it: `targets`, by buffer of the layout. receive() and resume() change it when all
  /// ranks have all of the version, and at no other time.
  Receiver(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
           std::span<void* const> targets, WeightsOptions options = {});

  /// Waits for the next version, and returns its number; pointers() are those of it from then on.
  /// Meets a sending job first if there is none yet, or if it has left. Throws Error(peer_lost) if
  /// a rank of either job dies, with its rank in its job; the message says which job.
  /// Error(timed_out) says that nothing came within WeightsOptions::patience. After an error
  /// version() is the old one, or, in the moment in which all had the new one, that. The next
  /// receive() meets the senders anew. After a death in this job, resume() comes before it.
  std::uint64_t receive();
  /// The number of the version that pointers() have; 0: none yet, all bytes are 0. Not collective.
  std::uint64_t version() const { return versions_[current_]; }
  /// This rank's memory, by buffer of the layout. It stays as it is until the next receive()
  /// returns, or resume(). Not collective.
  std::span<void* const> pointers() const {
    return targets_.empty() ? buffers_[current_].pointers() : targets_;
  }

  /// Ranks of this job have died. Collective over `job`, those that are left: they go on with the
  /// newest version that one of them has, which all of them have. Returns its number. If there are
  /// as many ranks as the layout has, receive() may follow; fewer use what they have, and make
  /// another Receiver with a layout of their own.
  std::uint64_t resume(Communicator& job);

 private:
  static constexpr std::chrono::nanoseconds kEver = std::chrono::hours(24 * 365);
  void check_targets() const;
  std::optional<Error> take(std::optional<Meeting> meeting);
  void turn();
  std::uint64_t settle();
  std::size_t other() const { return 1 - current_; }

  std::vector<void*> targets_;  // none: the sets take turns
  std::array<reshard::Buffers, 2> buffers_;
  std::array<std::uint64_t, 2> versions_{};  // of each set; 0: not a whole one
  std::size_t current_ = 0;
  std::uint64_t turns_ = 0;  // of this rank, to another set
  bool undecided_ = false;   // the other set has a newer version; who else has it, is not known
};

}  // namespace tutti::parallel::weights
