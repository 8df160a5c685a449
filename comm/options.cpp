#include "comm/communicator.h"
#include "core/settings.h"

namespace tutti {

Options::Options()
    : timeout(setting_seconds("TUTTI_TIMEOUT")),
      report_after(setting_seconds("TUTTI_REPORT_AFTER")),
      rendezvous_timeout(setting_seconds("TUTTI_RENDEZVOUS_TIMEOUT")),
      algorithm(setting_text("TUTTI_ALGORITHM")),
      slots(static_cast<std::size_t>(setting_integer("TUTTI_SLOTS"))),
      slot_bytes(setting_bytes("TUTTI_SLOT_BYTES")),
      cuda_protocols(setting_text("TUTTI_CUDA_PROTOCOLS")),
      cuda_blocks(static_cast<std::size_t>(setting_integer("TUTTI_CUDA_BLOCKS"))) {}

}  // namespace tutti
