// Names of error codes, and errors of the operating system.
#include "core/error.h"

#include <cerrno>
#include <new>
#include <system_error>

#include "core/as_error.h"
#include "core/file_descriptor.h"

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
  std::string text = what + ": " + std::generic_category().message(error_number);
  if (error_number == EMFILE) text += "; " + out_of_descriptors();
  throw Error(ErrorCode::system, text);
}

Error as_error(const std::exception& thrown) {
  if (const auto* const error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) == nullptr) {
    return {ErrorCode::internal, thrown.what()};
  }
  return {ErrorCode::system,
          "there is no memory left for this process: its limit (`ulimit -v`) or that of its "
          "container is too low, or the host has no more"};
}

}  // namespace tutti
