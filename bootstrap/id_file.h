// The hand-over of a unique id through a file that all ranks' hosts see: rank 0 writes it, the
// others wait for it. The file holds the job's secret, so it is readable by its owner alone, and it
// is gone when the ranks have met.
#pragma once

#include <chrono>
#include <string>

#include "bootstrap/unique_id.h"

namespace tutti {

/// Writes `id` to `path`, in place of what an earlier job may have left there. Throws
/// Error(system).
void write_id_file(const std::string& path, const UniqueId& id);
/// The id in `path`, once there is one whose rendezvous can be reached: that of an earlier job,
/// which was killed, may still be there. Throws Error: timed_out, system.
UniqueId read_id_file(const std::string& path, int rank, std::chrono::nanoseconds timeout);
/// Removes `path`, if it still holds `id`.
void remove_id_file(const std::string& path, const UniqueId& id);

}  // namespace tutti
