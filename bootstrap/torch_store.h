// The store of torchrun: PyTorch's TCPStore, which torchrun's agent serves at
// MASTER_ADDR:MASTER_PORT. Numbers go in the hosts' byte order, a text as its length (8 bytes) and
// its bytes. Both servers that PyTorch has (libuv's, and the one before) speak so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/launcher_store.h"

namespace tutti {

/// What a client says first: the query "validate" (0), and a number in the hosts' byte order.
extern const std::string_view kTorchGreeting;
/// A client's requests about one key: to wait until it is there, and for its value.
std::string torch_wait_request(const std::string& key);
std::string torch_get_request(const std::string& key);
/// A text as it travels.
std::string torch_text(const std::string& text);

/// The store at host:port. It connects when it is used.
std::shared_ptr<LauncherStore> torch_store(const std::string& host, std::uint16_t port);
/// Rank 0's store at host:port, where torchrun has no agent (torch_server.cpp). Where another
/// server of this program has the port, as PyTorch's own may, it puts the key there.
std::shared_ptr<LauncherStore> torch_server(const std::string& host, std::uint16_t port);

}  // namespace tutti
