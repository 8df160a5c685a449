// What a communicator is told: read from the settings, and checked.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/algorithms.h"
#include "comm/communicator.h"
#include "core/settings.h"
#include "core/settings_check.h"
#include "execute/cuda/protocol.h"
#include "transport/network/wire_choice.h"

namespace tutti {

Options::Options()
    : timeout(setting_seconds("TUTTI_TIMEOUT")),
      report_after(setting_seconds("TUTTI_REPORT_AFTER")),
      rendezvous_timeout(setting_seconds("TUTTI_RENDEZVOUS_TIMEOUT")),
      algorithm(setting_text("TUTTI_ALGORITHM")),
      quorum(setting_boolean("TUTTI_QUORUM")),
      encrypt(setting_boolean("TUTTI_ENCRYPT")),
      round_once(setting_boolean("TUTTI_ROUND_ONCE")),
      invariant(setting_boolean("TUTTI_INVARIANT")),
      slots(static_cast<std::size_t>(setting_integer("TUTTI_SLOTS"))),
      slot_bytes(setting_bytes("TUTTI_SLOT_BYTES")),
      cuda_protocols(setting_text("TUTTI_CUDA_PROTOCOLS")),
      cuda_blocks(static_cast<std::size_t>(setting_integer("TUTTI_CUDA_BLOCKS"))),
      host_id(setting_text("TUTTI_HOST_ID")),
      interfaces(setting_text("TUTTI_SOCKET_IFNAME")) {
  warn_of_mistyped_settings();
}

void Options::check() const {
  check_setting("TUTTI_TIMEOUT", "Options::timeout", timeout);
  check_setting("TUTTI_REPORT_AFTER", "Options::report_after", report_after);
  check_setting("TUTTI_RENDEZVOUS_TIMEOUT", "Options::rendezvous_timeout", rendezvous_timeout);
  check_setting("TUTTI_SLOTS", "Options::slots", slots);
  check_setting("TUTTI_SLOT_BYTES", "Options::slot_bytes", slot_bytes);
  const auto is_wish = [&](const Algorithm& a) { return a.name == algorithm; };
  if (!algorithm.empty() && std::ranges::none_of(algorithms(), is_wish)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Options::algorithm is \"{}\", which does not exist (TUTTI_ALGORITHM); "
                            "`tutti plan list` shows those there are",
                            algorithm));
  }
  device::protocols_from(cuda_protocols);
  // Also those that nobody reads here: a job that grows to other hosts, or to devices, would fail
  // then.
  if (const auto unreadable = unreadable_settings(); !unreadable.empty()) {
    throw Error(ErrorCode::invalid_argument, unreadable.front());
  }
  if (const std::string asked = setting_text("TUTTI_TRANSPORT"); !asked.empty()) wire_named(asked);
  if (gpu < -1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Options::gpu is {}; expected the number of a GPU, or -1", gpu));
  }
}

}  // namespace tutti
