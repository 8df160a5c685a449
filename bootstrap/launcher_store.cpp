// See launcher_store.h.
#include "bootstrap/launcher_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/id_check.h"
#include "core/background.h"
#include "core/error.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kToProve = 1s;
constexpr auto kToLookAgain = 100ms;

constexpr const char* kInstead =
    "TUTTI_ID_FILE, set on all ranks to a path on a file system that all hosts share, does without "
    "the launcher's store";

}  // namespace

void put_id(LauncherStore& store, const std::string& key, const UniqueId& id, int size,
            std::chrono::nanoseconds timeout, const std::string& program) {
  try {
    store.put(key, to_string(id).append(program), deadline_after(timeout));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::aborted) throw;
    throw Error(error.code(),
                fmt::format("rank 0 of {} could not leave the unique id for the others in {}: {}. "
                            "{}",
                            size, store.name(), error.what(), kInstead));
  }
}

UniqueId get_id(LauncherStore& store, const std::string& key, int rank, int size,
                std::chrono::nanoseconds timeout, const WhyNotProgram& why_not) {
  const Deadline deadline = deadline_after(timeout);
  std::string why;
  ErrorCode code = ErrorCode::timed_out;
  try {
    for (;;) {
      const std::string value = store.get(key, deadline);
      const std::size_t end = std::min(value.size(), 2 * UniqueId().bytes.size());
      const UniqueId id = unique_id_from_string(std::string_view(value).substr(0, end));
      const auto another_program = [&] {
        return why_not && end < value.size() ? why_not(std::string_view(value).substr(end)) : "";
      };
      if (!store.outlives_ranks()) {
        // There is no other one to come.
        why = another_program();
        if (why.empty()) return id;
        code = ErrorCode::invalid_usage;
        break;
      }
      // The id may be one of ranks that have ended.
      why = why_not_there(id, std::min(deadline, Clock::now() + kToProve));
      if (why.empty()) why = another_program();
      if (why.empty()) return id;
      if (Clock::now() >= deadline) break;
      pause_for(kToLookAgain);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::aborted) throw;
    if (error.code() != ErrorCode::timed_out) code = ErrorCode::system;
    if (why.empty() || code == ErrorCode::system) why = error.what();
  }
  throw Error(code,
              fmt::format("rank {} of {} did not get rank 0's unique id by {}: {}. Is rank 0 "
                          "running, and does it create its communicator? {}",
                          rank, size, store.name(), why, kInstead),
              0);
}

}  // namespace tutti
