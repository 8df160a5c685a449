// The store where torchrun has no agent: a program, or its starter, has set RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT by itself. As in PyTorch, rank 0 is the server then. It serves the
// one key that it puts, to clients of PyTorch's TCPStore (torch_store.h), until all have met.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bootstrap/launcher_store.h"

namespace tutti {

/// Rank 0's store at host:port. Where another server of this program has the port, as PyTorch's own
/// may, it puts the key there.
std::shared_ptr<LauncherStore> torch_server(const std::string& host, std::uint16_t port);

}  // namespace tutti
