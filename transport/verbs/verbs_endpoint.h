// An endpoint over RDMA. Each link's ring is registered memory on both hosts. The sender's device
// writes a message from the sender's ring into the receiver's, to the same place:
//
//     payload of a long message  -- WRITE ----------> its place
//     header, short payload      -- SEND -----------> a receive buffer, and so to the sink
//
// So a message is visible once its header is, as RDMA guarantees (channel.h), and no processor
// copies a long payload. A short message is one request, inline. A long message is one request,
// too, if it has the same tag and length as the last on its link: its header would say nothing new,
// so a notice goes with the payload (WRITE_WITH_IMM).
//
// Users' memory that lies in windows is registered, too (windows.h): the device sends from there,
// and writes to the place at which the peer wants a message, if the peer has named it in time. A
// device cannot be stopped in the middle. So memory is free when the device says that the peer's
// device has all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/network/endpoint.h"
#include "transport/verbs/channel.h"
#include "transport/verbs/windows.h"

namespace tutti {

class VerbsEndpoint final : public Endpoint {
 public:
  /// `peer`: its rank, for errors. Throws Error(system).
  VerbsEndpoint(Sink& sink, std::shared_ptr<VerbsWindows> windows, int peer,
                const VerbsOptions& options = VerbsOptions::from_settings());

  const Abilities& abilities() const override { return abilities_; }
  std::string carrier() const override;
  /// Its queue pair's address.
  std::vector<std::byte> address() override;
  /// The peer may send from here on.
  void connect(std::span<const std::byte> address) override;

  std::shared_ptr<MemoryRegion> register_ring(std::byte* memory, std::size_t bytes) override;
  std::shared_ptr<const MemoryRegion> window_region(const std::byte* memory,
                                                    std::size_t bytes) override;
  std::shared_ptr<MemoryRegion> expose(std::uint64_t key, std::byte* memory,
                                       std::size_t bytes) override {
    return windows_->expose(key, memory, bytes);
  }

  std::shared_ptr<MemoryRegion> register_device(const DeviceMemory& memory) override;

  Room room(std::size_t bytes) override;
  void put(const Put& put) override;
  bool send(const MessageHeader& header, const void* control) override;
  bool submit() override;
  void poll() override;
  std::uint64_t appended() const override { return channel_.appended(); }
  std::uint64_t completed() const override { return channel_.completed(); }
  /// The device takes care of everything that was submitted.
  bool is_flushed() override { return true; }
  /// When it is, the process may end.
  bool is_delivered() override;
  std::array<int, 2> descriptors() const override { return {channel_.fd(), -1}; }
  bool arm() override;
  void drain(bool hard) override;
  void close(bool /*in_peace*/) override { drain(true); }

 private:
  /// Calls the channel; where that throws, the connection is over.
  template <class Call>
  bool attempt(Call&& call);
  void understand(const VerbsEvent& event);
  Heard take_control(std::span<const std::byte> message);
  Heard take_message(std::span<const std::byte> message);

  const std::shared_ptr<VerbsWindows> windows_;
  VerbsChannel channel_;
  Abilities abilities_;
  bool connected_ = false, stopped_ = false;
  /// Memory of links that the device may be about to read, and the last request that does.
  std::deque<std::pair<std::shared_ptr<void>, std::uint64_t>> kept_;
};

/// A rank's endpoints over RDMA: each over one of this host's ports. A port's device is opened when
/// the first endpoint needs it.
class VerbsEndpoints final : public EndpointMaker {
 public:
  explicit VerbsEndpoints(std::vector<VerbsPort> ports) : ports_(std::move(ports)) {}
  std::unique_ptr<Endpoint> make(Endpoint::Sink& sink, int peer, int port) override;

 private:
  const std::vector<VerbsPort> ports_;
  std::map<int, std::shared_ptr<VerbsWindows>> windows_;  // by port
};

}  // namespace tutti
