// ncclSetEncryption: what this process's communicators do from then on. Ranks of different hosts
// encrypt what they send each other (TUTTI_ENCRYPT). And the key hides the secret in a unique id,
// so that a process that has the id, but not the key, cannot join.
#pragma once

#include "bootstrap/unique_id.h"

namespace tutti::nccl {

/// Whether a key is set.
bool encrypts();
/// The id with its secret hidden by the key; and again, as it was. Without a key, the same.
UniqueId with_key(const UniqueId& id);

}  // namespace tutti::nccl
