// The meetings to which this rank has been called by handles: each has a number and a list of
// handles, and all ranks in the list are called with the same. The caller's thread and the thread
// of the meeting point (meeting_point.h) share this object: the latter judges what visitors say of
// the same numbers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/handle.h"
#include "core/error.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// What one says of a meeting, on the wire. All zero: the meeting of a unique id.
struct Appointment {
  std::uint64_t number = 0;
  protocol::Bytes32 list{};  // hash of the handles, in order

  /// Names the communicator that the ranks form: known to a rank that never meets the others.
  std::uint64_t communicator() const;

  friend bool operator==(const Appointment&, const Appointment&) = default;
};

class Appointments {
 public:
  /// A call of this rank. Its first rank's server asks those that have not come.
  struct Call {
    Appointment about;
    std::vector<Handle> list;
    int rank = 0;                  // this one's
    FileDescriptor told;           // an eventfd: there is trouble
    std::optional<Error> trouble;  // what a visitor's word has shown
  };

  /// `name`: the rank, for messages.
  explicit Appointments(std::string name);

  // The caller's:
  /// Throws Error(invalid_usage) for a number that was used before.
  std::shared_ptr<Call> begin(Appointment about, std::vector<Handle> list, int rank);
  void end(const Call& call);
  /// This rank will not come where it is called with `number`.
  void refuse(std::uint64_t number);
  std::optional<Error> trouble(const Call& call) const;
  /// This rank takes no more visitors.
  void close();

  // The server's:
  /// Readable when something has changed since read_changes().
  const FileDescriptor& changed() const { return changed_; }
  void read_changes();
  bool is_closed() const;
  std::vector<std::shared_ptr<const Call>> calls() const;
  /// What is wrong with a visitor's word; nothing, as far as this rank knows. Where it contradicts
  /// a call of this rank, that fails as well.
  std::optional<Error> judge(const Appointment& theirs);

 private:
  const std::string name_;
  const FileDescriptor changed_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Call>> calls_;  // by number
  std::set<std::uint64_t> used_;
  bool closed_ = false;
};

}  // namespace tutti
