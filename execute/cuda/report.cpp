#include "execute/cuda/report.h"

#include <fmt/format.h>

#include "execute/cuda/memory.h"
#include "execute/signature.h"

namespace tutti::device {
namespace {

/// "operation #3 (lane 0, copy 1, tile 0, step 2) on its GPU".
std::string place_of(const Report& r) {
  const std::string what = r.messages != 0 ? std::string(r.sending != 0 ? "a send" : "a recv")
                                           : fmt::format("operation #{}", r.operation + 1);
  return fmt::format("{} (lane {}, copy {}, tile {}, step {}) on its GPU", what, r.lane, r.copy,
                     r.tile, r.step);
}

/// What is waited for.
const char* wish_of(const Report& r) {
  return r.sending != 0 ? "take a message" : "send a message";
}

}  // namespace

std::optional<Error> failure_in(const Control& control, int rank) {
  const Report& r = control.report;
  // acquire: the rest of the report is there.
  const auto trouble = static_cast<Trouble>(load_acquire(&r.trouble));
  if (trouble == Trouble::none) return std::nullopt;
  const auto peer = static_cast<int>(r.peer);
  const std::string where = place_of(r);
  switch (trouble) {
    case Trouble::timed_out:
      return Error(
          ErrorCode::timed_out,
          fmt::format("rank {} has waited in {} for rank {} to {}: the timeout of {:.1f} s "
                      "has passed (TUTTI_TIMEOUT)",
                      rank, where, peer, wish_of(r),
                      static_cast<double>(control.timeout_ns) * 1e-9),
          peer);
    case Trouble::mismatch:
      if (r.messages != 0) {
        const auto text = [](std::uint64_t header) {
          return point_to_point_text(static_cast<std::uint32_t>(header >> 32));
        };
        return Error(ErrorCode::mismatch,
                     fmt::format("calls do not match: rank {} receives {} from rank {}, which sent "
                                 "{}. The sends and the receives of two ranks must match in order",
                                 rank, text(r.expected), peer, text(r.found)),
                     peer);
      }
      return Error(
          ErrorCode::mismatch,
          fmt::format("calls do not match: in {} rank {} got a message of another operation "
                      "or size from rank {}. All ranks must make the same calls in the same "
                      "order",
                      where, rank, peer),
          peer);
    case Trouble::window:
      return Error(ErrorCode::internal,
                   fmt::format("in {} rank {} was given an address outside of rank {}'s windows",
                               where, rank, peer),
                   peer);
    case Trouble::none:
    case Trouble::late:
      break;
  }
  return Error(ErrorCode::internal, fmt::format("rank {}: a report that makes no sense", rank));
}

std::optional<LateRank> late_in(Control& control, int rank, LateRank& told) {
  Report& r = control.late;
  // acquire: the rest of the report is there.
  if (static_cast<Trouble>(load_acquire(&r.trouble)) == Trouble::none) return std::nullopt;
  const LateRank late{
      static_cast<int>(r.peer),
      fmt::format("rank {} has been waiting in {} for rank {} to {} for {:.1f} s", rank,
                  place_of(r), r.peer, wish_of(r), static_cast<double>(control.late_ns) * 1e-9),
      r.operation};
  // release: the report was read.
  store_release(&r.trouble, static_cast<std::uint64_t>(Trouble::none));
  // All blocks of a kernel wait for one that is late.
  const bool again = late.operation == told.operation && late.rank == told.rank;
  told = late;
  if (again) return std::nullopt;
  return late;
}

}  // namespace tutti::device
