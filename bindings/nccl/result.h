// From Tutti's exceptions to NCCL's results, and the sentence of ncclGetLastError().
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "bindings/nccl/nccl.h"
#include "core/error.h"

namespace tutti::nccl {

/// The result for `error`, seen by rank `rank` (-1: none): a stop by another rank's abort is a
/// remote error, a stop by its own abort is a wrong use.
ncclResult_t result_of(const Error& error, int rank = -1);

/// The last failure on this thread, or else in this process: kept for ncclGetLastError(), logged at
/// NCCL_DEBUG=WARN.
void set_last_error(const std::string& text);
std::string last_error();

/// Records the exception at hand as the last error of `function`. Call it from a catch block.
ncclResult_t caught(std::string_view function, int rank = -1) noexcept;

/// Runs the body of an interface function: nothing is thrown across the C boundary.
template <class Body>
ncclResult_t guarded(std::string_view function, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return caught(function);
  }
}

[[noreturn]] void refuse_argument(const std::string& why);
[[noreturn]] void refuse_usage(const std::string& why);
/// With what functions.h says of `function`.
[[noreturn]] void refuse_function(std::string_view function);
/// The whole of a function that refuses whatever it is asked.
inline ncclResult_t refused(std::string_view function) noexcept {
  return guarded(function, [&]() -> ncclResult_t { refuse_function(function); });
}
/// Refuses a null `pointer`; `name` is its name in nccl.h.
void require(const void* pointer, std::string_view name);

}  // namespace tutti::nccl
