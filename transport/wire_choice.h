// Which wire leads from one host to another. Every rank says which ones it can use (in its
// NetworkAddress); two ranks use the best that both can.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/wire.h"

namespace tutti {

/// What links to another host run over; a set of them is a sum.
enum class WireKind : std::uint32_t { tcp = 1, verbs = 2, ucx = 4 };
std::string_view name_of(WireKind kind);

/// Makes the wires of one rank, where they have something in common.
class WireMaker {
 public:
  virtual ~WireMaker() = default;
  virtual std::unique_ptr<Wire> make(Wire::Owner& owner) = 0;
  /// Readable when something comes; -1: something has come already.
  virtual int prepare_to_sleep() = 0;
  /// No thread but the caller's touches the wires from now on.
  virtual void stop() = 0;
};

/// Those that this rank may use (TUTTI_TRANSPORT). Throws Error where it asks for one that cannot
/// be used here.
std::uint32_t usable_wires();
/// The one that ranks with these use. Throws Error(mismatch).
WireKind choose_wire(std::uint32_t mine, std::uint32_t theirs, int peer);

/// Why UCX cannot be used here; empty: it can.
std::string why_no_ucx();
std::shared_ptr<WireMaker> make_ucx_wires();

}  // namespace tutti
