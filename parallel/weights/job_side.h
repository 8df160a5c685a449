// What a Sender and a Receiver have in common: a job's side of its sessions (session.h) with the
// other job, whose deaths and leaves all ranks of the job hear of alike.
#pragma once

#include <tutti/comm/communicator.h>
#include <tutti/core/error.h>

#include <memory>
#include <optional>

#include "../reshard/layout.h"
#include "meeting.h"
#include "options.h"
#include "place.h"
#include "session.h"

namespace tutti::parallel::weights {

/// Functions are collective over the job.
class JobSide {
 public:
  /// Lets the other job go on without this one, which may come back later.
  void leave() { end_session(std::nullopt); }
  JobSide(const JobSide&) = delete;
  JobSide& operator=(const JobSide&) = delete;

 protected:
  JobSide(Communicator& job, reshard::Layout layout, reshard::Side side,
          std::shared_ptr<Place> place, WeightsOptions options);
  /// Leaves.
  ~JobSide() { leave(); }

  void end_session(const std::optional<Error>& death);
  /// As agree_on_outcome(); the other job hears of a death in this one.
  std::optional<Error> agree(const std::optional<Error>& mine);
  /// A version is good, and `end` what this rank has heard since of the session's end: then it is
  /// over, and the next call says who has died.
  void after_version(const std::optional<Error>& end);
  /// Throws the death of which no call has told yet.
  void tell_of_death();
  Device& device() const { return options_.device != nullptr ? *options_.device : host_device(); }

  Communicator job_;
  const reshard::Layout layout_;
  const WeightsOptions options_;
  Meetings meetings_;
  std::optional<Error> death_;  // of which no call has told yet
  std::unique_ptr<Session> session_;
  const char* const side_;  // "sending", "receiving"
};

}  // namespace tutti::parallel::weights
