// The hand-over of a unique id through a file that all ranks' hosts see: rank 0 writes it, the
// others wait for it. The file holds the job's secret, so it is readable by its owner alone, and it
// is gone when the ranks have met.
//
// A launch that was killed leaves its file behind, and its rank 0 may even live on and wait. A rank
// must not take that id for its own launch's:
// - The file of a job whose launcher names it has that name in its own (id_file_of()).
// - A rank takes an id only once the rendezvous at its address has proved that it knows the id's
//   secret: another server may have the port by now.
// - Where the name does not tell launches apart, the file says when rank 0's process started. A
//   rank that started at another time gives a rank 0 of its own launch some time to write its file.
#pragma once

#include <chrono>
#include <string>

#include "bootstrap/unique_id.h"

namespace tutti {

/// What the ranks of one launch know of it.
struct Launch {
  std::string job;      // as the launcher calls it on every host; "": it does not
  bool unique = false;  // no other launch has this name
  std::chrono::system_clock::time_point started{};  // this process
};

/// Where the ranks of `launch` look for the id of their `world`-th communicator: `path`, and after
/// it what tells it from others.
std::string id_file_of(const std::string& path, const Launch& launch, unsigned world);

/// Writes `id` to `path`, in place of what an earlier launch may have left there. Throws
/// Error(system).
void write_id_file(const std::string& path, const UniqueId& id, const Launch& launch);
/// The id in `path`, once there is one of this launch. Throws Error: timed_out, system.
UniqueId read_id_file(const std::string& path, int rank, const Launch& launch,
                      std::chrono::nanoseconds timeout);
/// Removes `path`, if it still holds `id`.
void remove_id_file(const std::string& path, const UniqueId& id);

}  // namespace tutti
