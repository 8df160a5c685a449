// Where an operand of a step lies, for whichever executor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/format.h"

namespace tutti {

/// Where an operand's bytes are, up to what only the call knows: the base addresses.
struct CompiledOperand {
  enum Where : std::uint8_t { in, out, tmp, send, receive, peer_in, peer_out, peer_tmp };
  Where where = Where::tmp;
  bool scaled = false;  // a raw input of a reduction: pre-multiplied or divided as it is read
  Format format = Format::plain;  // how it holds elements, of the call's type
  std::int32_t rank = 0;          // peer_*: the owner; send, receive: index into Action's links
  std::size_t offset = 0;         // from the base, in the first tile; links: within the message
};

}  // namespace tutti
