#include "transport/verbs/memory_region.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace tutti {
namespace {

// A peer's writes need local ones.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

VerbsMemory::VerbsMemory(std::shared_ptr<VerbsDevice> device, void* memory, std::size_t bytes)
    : device_(std::move(device)), region_(ibv_reg_mr(device_->domain(), memory, bytes, kAccess)) {
  if (region_ == nullptr) {
    throw_verbs_error(device_->port(), fmt::format("registering {} bytes of memory", bytes), errno);
  }
}

VerbsMemory::VerbsMemory(std::shared_ptr<VerbsDevice> device, int fd, std::uint64_t offset,
                         std::uint64_t address, std::size_t bytes)
    : device_(std::move(device)),
      region_(ibv_reg_dmabuf_mr(device_->domain(), offset, bytes, address, fd, kAccess)),
      is_of_device_(true) {
  if (region_ == nullptr) {
    throw_verbs_error(device_->port(),
                      fmt::format("registering {} bytes of a dma-buf (memory of a GPU)", bytes),
                      errno);
  }
}

VerbsMemory::~VerbsMemory() {
  if (device_->is_ours()) ibv_dereg_mr(region_);
}

bool can_register_dmabuf(const VerbsDevice& device) {
  // There is no such descriptor. A driver that can register one looks at it first (EBADF); any
  // other says that it cannot (EOPNOTSUPP).
  ibv_mr* const region = ibv_reg_dmabuf_mr(device.domain(), 0, 4096, 0, -1, kAccess);
  if (region != nullptr) ibv_dereg_mr(region);
  return region != nullptr || errno == EBADF;
}

}  // namespace tutti
