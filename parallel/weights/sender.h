// Sender: the side of a job that has new weights every few seconds, a trainer. A job of receivers
// (receiver.h) that was started apart takes them: servers, which come, leave and come back as they
// like.
//
//     Sender sender(comm, layout, folder_place("/shared/run7"));   // all ranks of the trainer
//     for (each step) {
//       ...
//       sender.send(step, sources);                                // by buffer of the layout
//     }
//
// A version goes to all ranks of the receiving job, or counts for none of them. docs/weights.md
// has the whole story, and what it costs.
#pragma once

#include <tutti/comm/communicator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "../reshard/buffers.h"
#include "../reshard/layout.h"
#include "job_side.h"
#include "options.h"
#include "place.h"

namespace tutti::parallel::weights {

/// What became of a version.
struct Sent {
  int receivers = 0;        // that have it now; 0: nobody is there
  std::uint64_t plain = 0;  // bytes of elements that this rank has sent to other hosts in coded
  std::uint64_t coded = 0;  // messages, and what they took on the link; 0: they were not coded
};

/// Functions are collective over the job, and throw tutti::Error. One thread at a time uses a
/// Sender, which has a communicator of its own. Its end leaves the receivers.
class Sender : public JobSide {
 public:
  /// `layout` says what each of the job's ranks has; it passes check(). The receiving job needs
  /// only tensors that the layout has.
  Sender(Communicator& job, reshard::Layout layout, std::shared_ptr<Place> place,
         WeightsOptions options = {});

  /// Sends version `version`, any number but 0, and returns when the receiving job has it. Where
  /// none is there, it returns at once. Waits for a receiving job that is there until that calls
  /// receive(). Throws Error(peer_lost) if a rank of either job dies meanwhile, with its rank in
  /// its job; the message says which job. After a death among the receivers the next send() meets
  /// those that come back. After one in this job, make another Sender.
  Sent send(std::uint64_t version, std::span<const void* const> sources);
  /// Whether a receiving job is there, as far as the newest send() knows.
  bool has_receivers() const { return session_ != nullptr; }

 private:
  std::span<const void* const> on_host(std::span<const void* const> sources);
  std::optional<Error> try_to_send(std::uint64_t version, std::span<const void* const> sources,
                                   Sent& sent);

  std::optional<Meeting> meeting_;  // of which no session has come yet
  reshard::Buffers staged_;         // of sources on a GPU
};

}  // namespace tutti::parallel::weights
