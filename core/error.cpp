// Names of error codes, and errors of the operating system.
#include "core/error.h"

#include <cerrno>
#include <system_error>

namespace tutti {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::invalid_usage:
      return "invalid_usage";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::peer_lost:
      return "peer_lost";
    case ErrorCode::timed_out:
      return "timed_out";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::unproven_plan:
      return "unproven_plan";
    case ErrorCode::system:
      return "system";
    case ErrorCode::internal:
      return "internal";
  }
  return "?";
}

void throw_system_error(const std::string& what, int error_number) {
  if (error_number == 0) error_number = errno;
  throw Error(ErrorCode::system, what + ": " + std::generic_category().message(error_number));
}

}  // namespace tutti
