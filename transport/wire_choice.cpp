#include "transport/wire_choice.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/settings.h"

namespace tutti {
namespace {

std::uint32_t bit(WireKind kind) { return static_cast<std::uint32_t>(kind); }

std::string names_of(std::uint32_t kinds) {
  std::string names;
  for (const WireKind kind : {WireKind::tcp, WireKind::verbs, WireKind::ucx}) {
    if ((kinds & bit(kind)) == 0) continue;
    names += names.empty() ? "" : ", ";
    names += name_of(kind);
  }
  return names.empty() ? "none" : names;
}

}  // namespace

std::string_view name_of(WireKind kind) {
  switch (kind) {
    case WireKind::tcp:
      return "tcp";
    case WireKind::verbs:
      return "verbs";
    case WireKind::ucx:
      return "ucx";
  }
  return "?";
}

std::uint32_t usable_wires() {
  const std::string asked = setting_text("TUTTI_TRANSPORT");
  if (asked.empty() || asked == "tcp") return bit(WireKind::tcp);
  if (asked == "ucx") {
    const std::string why = why_no_ucx();
    if (why.empty()) return bit(WireKind::ucx);
    throw Error(ErrorCode::system, fmt::format("TUTTI_TRANSPORT=ucx: {}", why));
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("TUTTI_TRANSPORT={}: it can be tcp, ucx, or empty", asked));
}

WireKind choose_wire(std::uint32_t mine, std::uint32_t theirs, int peer) {
  for (const WireKind kind : {WireKind::verbs, WireKind::ucx, WireKind::tcp}) {
    if ((mine & theirs & bit(kind)) != 0) return kind;
  }
  throw Error(ErrorCode::mismatch,
              fmt::format("this rank can reach other hosts by {} only, rank {} by {}: "
                          "TUTTI_TRANSPORT has to be the same on all ranks",
                          names_of(mine), peer, names_of(theirs)),
              peer);
}

}  // namespace tutti
