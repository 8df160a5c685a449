// The one exception type of the library. what() is a sentence for the user: what happened, on which
// rank, where, and what to do about it. code() is for programs; rank() is the culprit, if it is
// known.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti {

enum class ErrorCode : std::uint8_t {
  invalid_argument = 1,  // this call's arguments are wrong; nothing was started
  invalid_usage,  // right arguments at the wrong time (a destroyed communicator, an open group)
  mismatch,       // ranks called different operations, counts, types, roots or orders
  peer_lost,      // another rank died or left
  timed_out,      // the deadline that the user set has passed
  aborted,        // abort() was called, here or on another rank
  unproven_plan,  // a plan from a user that the verifier does not accept
  system,         // the operating system refused something
  internal,       // a bug in Tutti
};

std::string_view name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int rank = -1)
      : std::runtime_error(message), code_(code), rank_(rank) {}

  ErrorCode code() const noexcept { return code_; }
  /// The rank that caused the error; -1 if there is none or it is not known. Of a `mismatch`: the
  /// rank whose call fewer ranks have made; if that is not known, the other rank, which may be the
  /// one that is right.
  int rank() const noexcept { return rank_; }

 private:
  ErrorCode code_;
  int rank_;
};

/// Throws Error(system) with `what` and the text of `error_number` (default: errno).
[[noreturn]] void throw_system_error(const std::string& what, int error_number = 0);

}  // namespace tutti
