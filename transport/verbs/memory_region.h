// Memory that a device may read and write, and peers through it: registered, which pins its pages.
// Registration takes long (ms for MiB), so it is done once, for memory that is used again and
// again.
//
// No cache by address: memory that is unmapped and mapped anew at the same address would be found
// in it, and the device would go on with the old pages.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/network/endpoint.h"
#include "transport/verbs/device.h"

namespace tutti {

class VerbsMemory final : public MemoryRegion {
 public:
  /// For local use and for writes by peers. Not with relaxed ordering: headers and credits lie
  /// among the data. Throws Error(system).
  VerbsMemory(std::shared_ptr<VerbsDevice> device, void* memory, std::size_t bytes);
  /// Memory of a GPU (or of another device): `bytes` from `offset` on of the dma-buf `fd`, which
  /// peers address from `address` on.
  VerbsMemory(std::shared_ptr<VerbsDevice> device, int fd, std::uint64_t offset,
              std::uint64_t address, std::size_t bytes);
  ~VerbsMemory() override;
  VerbsMemory(const VerbsMemory&) = delete;
  VerbsMemory& operator=(const VerbsMemory&) = delete;

  std::uint32_t local_key() const { return region_->lkey; }
  /// Whether the memory is a GPU's, which no processor reads.
  bool is_of_device() const { return is_of_device_; }
  std::uint32_t remote_key() const override { return region_->rkey; }

 private:
  std::shared_ptr<VerbsDevice> device_;
  ibv_mr* region_;
  bool is_of_device_ = false;
};

/// Whether kernel and device can register dma-bufs at all.
bool can_register_dmabuf(const VerbsDevice& device);

}  // namespace tutti
