#include "device/gpu_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/host_memory.h"
#include "core/log.h"
#include "core/settings.h"
#include "execute/cuda/executor.h"

namespace tutti {
namespace {

// The shortest message with data: a shorter one would travel in its header, through memory of the
// host.
constexpr std::uint32_t kShortest = kCacheLine;
static_assert(kShortest > kInlineBytes);

/// Messages use a part of a slot alone, so several channels share the slots.
std::size_t channels_in_slot(const device::SegmentShape& shape) {
  return shape.simple_bytes / device::host_slot_bytes(shape);
}

std::size_t bytes_of(const device::SegmentShape& shape) {
  const std::size_t shared = channels_in_slot(shape);
  return (shape.data_channels() + shared - 1) / shared * shape.slots * shape.simple_bytes;
}

/// Memory of a GPU, and what a network knows it by.
struct Registered {
  explicit Registered(std::shared_ptr<device::Device> of) : gpu(std::move(of)) {}
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  ~Registered() {
    region.reset();
    gpu->deallocate(memory);
  }

  std::shared_ptr<device::Device> gpu;
  std::byte* memory = nullptr;
  std::shared_ptr<MemoryRegion> region;
};

}  // namespace

GpuSlots::GpuSlots(const std::shared_ptr<device::Device>& gpu, const device::SegmentShape& shape,
                   Wire& wire)
    : shape_(shape) {
  // Whole pages, wherever the allocation begins.
  const std::size_t page = page_bytes();
  place_.bytes = (bytes_of(shape) + page - 1) / page * page;
  const auto registered = std::make_shared<Registered>(gpu);
  registered->memory = gpu->allocate(place_.bytes + page);
  const auto before = reinterpret_cast<std::uintptr_t>(registered->memory) % page;
  place_.data = registered->memory + (before > 0 ? page - before : 0);
  const FileDescriptor dma_buf = gpu->dma_buf(place_.data, place_.bytes);
  place_.dma_buf = dma_buf.fd();
  registered->region = wire.register_device(place_);
  place_.dma_buf = -1;
  memory_ = {registered, registered->region.get()};
}

std::size_t GpuSlots::offset(const device::SegmentShape& shape, std::uint32_t channel,
                             std::uint32_t slot) {
  const std::size_t shared = channels_in_slot(shape);
  return (channel / shared * shape.slots + slot) * shape.simple_bytes +
         channel % shared * device::host_slot_bytes(shape);
}

std::vector<std::byte*> GpuSlots::first_slots() const {
  std::vector<std::byte*> first;
  for (std::uint32_t c = 0; c < shape_.data_channels(); ++c) first.push_back(at(c, 0));
  return first;
}

GpuLinks::GpuLinks(std::shared_ptr<device::Device> gpu, const device::SegmentShape& shape,
                   Ends ends, int rank, int peer)
    : gpu_(std::move(gpu)), shape_(shape), ends_(std::move(ends)), rank_(rank), peer_(peer) {
  const bool wanted = setting_boolean("TUTTI_CUDA_RDMA");
  /// What becomes of it, in words.
  const auto make = [&](std::optional<GpuSlots>& slots) -> std::string {
    if (!wanted) return "the host's (TUTTI_CUDA_RDMA=0)";
    try {
      slots.emplace(gpu_, shape_, *ends_.wire);
      return "the GPU's";
    } catch (const Error& error) {
      if (error.code() != ErrorCode::system) throw;
      return fmt::format("the host's ({})", error.what());
    }
  };
  const std::string out = make(out_);
  const RdmaOrder order = gpu_->rdma_order();
  flushes_ = order == RdmaOrder::with_flush;
  const std::string in =
      wanted && order == RdmaOrder::unknown
          ? "the host's (nobody knows when the GPU sees what a network card has written)"
          : make(in_);
  log().info(
      "data of rank {}'s GPU for rank {}, on another host, leave from memory that is {}; "
      "those from there arrive in memory that is {}",
      rank_, peer_, out, in);
  for (OutLink* const link : ends_.out) {
    if (out_) link->send_out_of(out_->memory());
  }
  for (InLink* const link : ends_.in) {
    if (in_) link->look_in_exposed();
  }
  ends_.wire->expose(ends_.communicator, ends_.in_key, in_ ? in_->place() : DeviceMemory{},
                     in_ ? in_->memory() : nullptr);
}

bool GpuLinks::is_settled() {
  if (settled_) return true;
  const std::optional<bool> takes = ends_.wire->peer_exposes(ends_.out_key);
  settled_ = takes.has_value();
  peer_takes_ = takes.value_or(false);
  return settled_;
}

void GpuLinks::publish(std::uint32_t channel, std::uint32_t slot, const std::byte* on_host,
                       std::uint32_t tag, std::uint32_t bytes) {
  OutLink& link = *ends_.out[channel];
  Sender& sender = link.sender();
  if (bytes == 0) return sender.publish(tag, 0);
  const std::uint32_t length = out_ || peer_takes_ ? std::max(bytes, kShortest) : bytes;
  const std::byte* source = nullptr;
  if (out_) {
    source = out_->at(channel, slot);
  } else {
    std::memcpy(sender.slot(length), on_host, bytes);
  }
  link.publish_into(peer_takes_ ? ends_.out_key : 0, GpuSlots::offset(shape_, channel, slot),
                    source, tag, length);
}

void GpuLinks::expect(std::uint32_t channel, std::uint64_t number, std::uint32_t bytes) {
  if (bytes == 0) return;
  if (bytes < kShortest || !ends_.in[channel]->is_in_place(number)) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} has put a message of {} bytes for rank {} into memory of the "
                            "host, and not of the GPU",
                            peer_, bytes, rank_),
                peer_);
  }
  if (flushes_) gpu_->flush_rdma_writes();
}

}  // namespace tutti
