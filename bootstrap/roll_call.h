// The ranks that have not come to a meeting: the first rank asks at their meeting points whether
// they are there. So all hear at once that a process is gone, or that it was called to something
// else, and do not wait for it. Nothing here waits.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "bootstrap/appointments.h"
#include "bootstrap/frames.h"
#include "core/error.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/socket.h"

namespace tutti {

class RollCall {
 public:
  using Time = std::chrono::steady_clock::time_point;

  RollCall(std::shared_ptr<const Appointments::Call> call, Time now);

  /// Readable when step() has something to do.
  const FileDescriptor& descriptor() const { return epoll_; }
  Time next_wake() const { return next_; }
  /// Asks the ranks that `is_missing`. What is wrong with one of them, if anything, with its rank.
  std::optional<Error> step(const std::function<bool(int)>& is_missing, Time now);

 private:
  /// A rank at its meeting point: asked, it answers only if something is wrong.
  struct Absent {
    Introduction attempt;
    bool asked = false;
    protocol::FrameReader reader;
    int rejections = 0;
    Time again{};
  };

  void call(int rank, Absent& absent, Time now);
  std::optional<Error> go_on(int rank, Absent& absent);
  std::optional<Error> failed(int rank, Absent& absent);
  Error gone(int rank, const std::string& why) const;

  const std::shared_ptr<const Appointments::Call> call_;
  FileDescriptor epoll_;
  Time next_;
  std::map<int, Absent> absent_;  // by rank
};

}  // namespace tutti
