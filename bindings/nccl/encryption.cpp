#include "bindings/nccl/encryption.h"

#include <fmt/format.h>

#include <mutex>
#include <span>
#include <string>

#include "bindings/nccl/export.h"
#include "bindings/nccl/result.h"
#include "bootstrap/rendezvous_protocol.h"

namespace tutti::nccl {
namespace {

struct PresharedKey {
  std::mutex mutex;
  std::string text;  // "": none
};

PresharedKey& key() {
  static auto* const instance = new PresharedKey;  // threads may start communicators during exit
  return *instance;
}

std::string key_text() {
  const std::lock_guard lock(key().mutex);
  return key().text;
}

}  // namespace

bool encrypts() { return !key_text().empty(); }

UniqueId with_key(const UniqueId& id) {
  const std::string text = key_text();
  if (text.empty()) return id;
  protocol::Ticket ticket = protocol::decode(id);
  // Another one for each place, and so for each secret.
  const protocol::Endpoint place = protocol::endpoint_of(ticket.address);
  const protocol::Bytes32 mask =
      protocol::hash({}, "NCCL PSK", {std::as_bytes(std::span(text)), protocol::bytes_of(place)});
  for (std::size_t i = 0; i < mask.size(); ++i) ticket.secret[i] ^= mask[i];
  return protocol::encode(ticket);
}

}  // namespace tutti::nccl

NCCL_API(ncclResult_t, ncclSetEncryption, (const ncclEncryptionConfig_t* config)) {
  using namespace tutti::nccl;
  return guarded("ncclSetEncryption", [&] {
    require(config, "config");
    if (config->magic != NCCL_API_MAGIC || config->size < sizeof *config) {
      refuse_argument(
          "the ncclEncryptionConfig_t was not initialised with NCCL_ENCRYPTION_CONFIG_INITIALIZER");
    }
    std::string text;
    if (config->mode == NCCL_ENCRYPTION_MODE_PSK) {
      require(config->psk, "config->psk");
      text = config->psk;
      if (text.empty()) refuse_argument("the key in config->psk is empty");
    } else if (config->mode != NCCL_ENCRYPTION_MODE_NONE) {
      refuse_argument(fmt::format("mode is {} (ncclEncryptionMode_t)", config->mode));
    }
    const std::lock_guard lock(key().mutex);
    key().text = text;
    return ncclSuccess;
  });
}
