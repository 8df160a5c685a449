// The hand-over of a unique id through a file that all ranks' hosts see: rank 0 writes it, the
// others wait for it. The file holds the job's secret, so only its owner can read it, and it is
// gone when the ranks have met.
//
// A killed launch leaves its file behind, and its rank 0 may even live on and wait. A rank must not
// take that id for its own launch's:
// - If the launcher names the job, the file's name contains that name (id_file_of()).
// - A rank takes an id only once the rendezvous at its address has proved that it knows the id's
//   secret: another server may have the port by now.
// - If the name does not distinguish launches, the file says when rank 0's process started. A rank
//   that started at another time gives rank 0 of its own launch some time to write its file.
#pragma once

#include <chrono>
#include <string>

#include "bootstrap/unique_id.h"

namespace tutti {

/// The knowledge that the ranks of one launch share about it.
struct Launch {
  std::string job;      // the launcher's name for it on every host; "": none
  bool unique = false;  // no other launch has this name
  std::chrono::system_clock::time_point started{};  // this process
};

/// Where the ranks of `launch` look for the id of their `world`-th communicator: `path` with a
/// suffix that distinguishes it from others.
std::string id_file_of(const std::string& path, const Launch& launch, unsigned world);

/// Writes `id` to `path`, and replaces a file that an earlier launch may have left there. Throws
/// Error(system).
void write_id_file(const std::string& path, const UniqueId& id, const Launch& launch);
/// The id in `path`, once there is one of this launch. Throws Error: timed_out, system.
UniqueId read_id_file(const std::string& path, int rank, const Launch& launch,
                      std::chrono::nanoseconds timeout);
/// Removes `path` if it still holds `id`.
void remove_id_file(const std::string& path, const UniqueId& id);

}  // namespace tutti
