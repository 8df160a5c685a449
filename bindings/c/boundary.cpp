#include "bindings/c/boundary.h"

#include <fmt/format.h>

#include <new>

namespace tutti::c {
namespace {

// The codes are the same numbers.
static_assert(static_cast<int>(ErrorCode::invalid_argument) == TUTTI_INVALID_ARGUMENT);
static_assert(static_cast<int>(ErrorCode::invalid_usage) == TUTTI_INVALID_USAGE);
static_assert(static_cast<int>(ErrorCode::mismatch) == TUTTI_MISMATCH);
static_assert(static_cast<int>(ErrorCode::peer_lost) == TUTTI_PEER_LOST);
static_assert(static_cast<int>(ErrorCode::timed_out) == TUTTI_TIMED_OUT);
static_assert(static_cast<int>(ErrorCode::aborted) == TUTTI_ABORTED);
static_assert(static_cast<int>(ErrorCode::unproven_plan) == TUTTI_UNPROVEN_PLAN);
static_assert(static_cast<int>(ErrorCode::system) == TUTTI_SYSTEM);
static_assert(static_cast<int>(ErrorCode::internal) == TUTTI_INTERNAL);

/// The newest failure of a thread.
struct Failure {
  std::string text;
  int rank = -1;
};

Failure& newest() {
  thread_local Failure failure;
  return failure;
}

tutti_result keep(ErrorCode code, const char* text, int rank) noexcept {
  try {
    newest().rank = rank;
    newest().text = text;
  } catch (...) {  // no memory for the text
    newest().text.clear();
  }
  return static_cast<tutti_result>(code);
}

}  // namespace

tutti_result failed(const Error& error) noexcept {
  return keep(error.code(), error.what(), error.rank());
}

tutti_result caught() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return failed(error);
  } catch (const std::bad_alloc&) {
    return keep(ErrorCode::system, "out of memory", -1);
  } catch (const std::exception& error) {
    return keep(ErrorCode::internal, error.what(), -1);
  } catch (...) {
    return keep(ErrorCode::internal, "an exception of an unknown type", -1);
  }
}

void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

void refuse_null(const char* function, const char* name) {
  refuse(fmt::format("{}: the argument {} is NULL", function, name));
}

void write_text(std::string_view from, char* text, std::size_t size, std::size_t* length,
                const char* function) {
  if (text == nullptr && size > 0) refuse_null(function, "text");
  if (length != nullptr) *length = from.size();
  if (size > 0) {
    const std::size_t part = std::min(from.size(), size - 1);
    std::memcpy(text, from.data(), part);
    text[part] = '\0';
  } else if (length == nullptr) {
    refuse_null(function, "length");
  }
  if (size > 0 && from.size() >= size) {
    refuse(fmt::format("{}: size is {}, but the text and the zero at its end need {} bytes",
                       function, size, from.size() + 1));
  }
}

std::chrono::nanoseconds timeout_of(std::int64_t nanoseconds, const char* function) {
  if (nanoseconds < 0) {
    refuse(fmt::format("{}: timeout_ns is {}, but must not be negative", function, nanoseconds));
  }
  return std::chrono::nanoseconds(nanoseconds);
}

DataType type_of(int type, const char* function) {
  if (type < 0 || type >= kDataTypes) [[unlikely]] {
    refuse(fmt::format("{}: type is {}, but must be from TUTTI_INT8, {}, to TUTTI_FLOAT8_E5M2, {}",
                       function, type, int{TUTTI_INT8}, int{TUTTI_FLOAT8_E5M2}));
  }
  return static_cast<DataType>(type);
}

ReduceOp op_of(int op, const char* function) {
  if (op < 0 || op >= kReduceKinds) [[unlikely]] {
    refuse(
        fmt::format("{}: op is {}, but must be from TUTTI_SUM, {}, to "
                    "TUTTI_PRE_MULTIPLIED_SUM, {}",
                    function, op, int{TUTTI_SUM}, int{TUTTI_PRE_MULTIPLIED_SUM}));
  }
  if (op == TUTTI_PRE_MULTIPLIED_SUM) [[unlikely]] {
    refuse(
        fmt::format("{}: TUTTI_PRE_MULTIPLIED_SUM needs a scalar: fill a tutti_call, and give "
                    "it to tutti_run()",
                    function));
  }
  return static_cast<ReduceKind>(op);
}

}  // namespace tutti::c

using namespace tutti;

const char* tutti_result_name(tutti_result result) {
  if (result == TUTTI_OK) return "ok";
  if (result < TUTTI_INVALID_ARGUMENT || result > TUTTI_INTERNAL) return "unknown";
  return name(static_cast<ErrorCode>(result)).data();
}

const char* tutti_error_message(void) { return c::newest().text.c_str(); }
int tutti_error_rank(void) { return c::newest().rank; }

const char* tutti_version(void) { return TUTTI_VERSION; }
int tutti_version_number(void) { return TUTTI_VERSION_NUMBER; }

size_t tutti_size_of(int type) {
  return type < 0 || type >= kDataTypes ? 0 : size_of(static_cast<DataType>(type));
}
