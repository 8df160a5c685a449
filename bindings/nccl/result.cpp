#include "bindings/nccl/result.h"

#include <fmt/format.h>

#include <mutex>
#include <new>

#include "bindings/nccl/export.h"
#include "bindings/nccl/functions.h"
#include "bindings/nccl/log.h"

namespace tutti::nccl {
namespace {

struct LastError {
  std::mutex mutex;
  std::string text;
};

/// Of this thread: in a program with threads as ranks, another's error would only confuse.
std::string& own_last() {
  thread_local std::string text;
  return text;
}

LastError& last() {
  static auto* instance = new LastError;  // never destroyed: threads may fail during exit
  return *instance;
}

}  // namespace

ncclResult_t result_of(const Error& error, int rank) {
  switch (error.code()) {
    case ErrorCode::invalid_argument:
      return ncclInvalidArgument;
    case ErrorCode::invalid_usage:
    case ErrorCode::mismatch:
    case ErrorCode::unproven_plan:
      return ncclInvalidUsage;
    case ErrorCode::peer_lost:
    case ErrorCode::timed_out:
      return ncclRemoteError;
    case ErrorCode::aborted:
      return error.rank() == rank ? ncclInvalidUsage : ncclRemoteError;
    case ErrorCode::system:
      return ncclSystemError;
    case ErrorCode::internal:
      break;
  }
  return ncclInternalError;
}

void set_last_error(const std::string& text) {
  {
    const std::lock_guard lock(last().mutex);
    last().text = text;
  }
  own_last() = text;
  write_log(LogLevel::warn, text);
}

std::string last_error() {
  if (!own_last().empty()) return own_last();
  const std::lock_guard lock(last().mutex);
  return last().text;
}

ncclResult_t caught(std::string_view function, int rank) noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      set_last_error(fmt::format("{}: {}", function, error.what()));
      return result_of(error, rank);
    } catch (const std::bad_alloc&) {
      set_last_error(fmt::format("{}: out of memory", function));
      return ncclSystemError;
    } catch (const std::exception& error) {
      set_last_error(fmt::format("{}: {}", function, error.what()));
      return ncclInternalError;
    }
  } catch (...) {
    return ncclInternalError;
  }
}

void refuse_argument(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }
void refuse_usage(const std::string& why) { throw Error(ErrorCode::invalid_usage, why); }
void refuse_function(std::string_view function) {
  refuse_usage(std::string(find_function(function)->refusal));
}

void require(const void* pointer, std::string_view name) {
  if (pointer == nullptr) refuse_argument(fmt::format("the argument {} is NULL", name));
}

}  // namespace tutti::nccl

// NCCL's own texts: programs print and compare them.
NCCL_API(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclTimeout:
      return "timeout";
    case ncclNumResults:
      break;
  }
  return "unknown result code";
}
