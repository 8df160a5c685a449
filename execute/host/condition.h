// A condition: a call that runs no plan waits for it. It may be a signal of another rank, say, or
// that a network has read the call's memory (comm/window.h). An operation that is bound to a
// condition is over when the condition holds; a thread waits for it as for all operations (wait.h).
#pragma once

#include <optional>
#include <string>

#include "core/error.h"

namespace tutti {

/// One thread at a time uses it.
class Condition {
 public:
  virtual ~Condition() = default;
  /// Does what can be done, without waiting, and says whether the condition holds. Once it does, it
  /// does for ever.
  virtual bool holds() = 0;
  /// Why the call has failed although the condition holds; none if it has not.
  virtual std::optional<Error> error() const { return std::nullopt; }
  /// Takes in what has come for it from another host. Does not wait.
  virtual void poll() {}
  /// Nobody waits for it any more: the memory of the call is the user's again.
  virtual void abandon() {}

  // For messages: "rank 2 has been waiting <where> for rank <peer> to <what>".
  virtual int peer() const = 0;
  virtual std::string what() const = 0;
  virtual std::string where() const = 0;
};

}  // namespace tutti
