// Where others meet this rank later: a listener with a rendezvous server behind it, which lives as
// long as this object. Ranks that have each other's handles meet at the first one's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "bootstrap/appointments.h"
#include "bootstrap/handle.h"
#include "bootstrap/rendezvous.h"
#include "core/fork.h"

namespace tutti {

class MeetingPoint {
 public:
  /// Listens at `address` of this host. Throws Error.
  explicit MeetingPoint(const std::string& address);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  /// This rank's, for others. It changes with has_met().
  Handle handle() const;

  /// This rank is called to meet the ranks of `list`, itself among them. All are called with the
  /// same list and the same `number`, which none of them has used before. rendezvous() is the
  /// meeting itself. Throws Error: invalid_argument for what is no list of handles, or has not this
  /// rank's current one; invalid_usage for a number that was used.
  Reunion reunion(std::span<const std::string> list, std::uint64_t number);
  /// The ranks have met with `number`: handles from before are old.
  void has_met(std::uint64_t number) { newest_.store(number); }

 private:
  Handle own_;
  const std::shared_ptr<Appointments> appointments_;
  const std::uint32_t generation_ = process_generation();  // of the process that made it
  std::atomic<std::uint64_t> newest_{0};
};

}  // namespace tutti
