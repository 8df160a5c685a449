// Links between a rank of this process and one of another host whose data lie in memory of the GPU:
// the network card reads them there, and writes them there. Headers, lengths and credit stay in
// pinned memory of the host, where the thread that moves messages (proxy.h) reads and writes them.
//
//     kernel -> GPU's slots -> network card ~~ network card -> GPU's slots -> kernel
//     kernel -> header      -> thread ~~~~~~~~~~~~~~~~~ thread -> header   -> kernel
//
// A message leaves as a zero-copy send. It arrives in memory that its receiver exposes, at the
// place of its number. The receiver frees it when its kernel has, so there is room at the sender
// exactly where the slot is free.
//
// Each end decides by itself, for what it sends and for what it receives, as each of the four ways
// from the host's or the GPU's memory to either works. But a sender waits until the receiver has
// said where it takes messages: one that looks into its GPU's memory must find all of them there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "execute/cuda/device.h"
#include "execute/cuda/segment.h"
#include "transport/network/wire.h"

namespace tutti {

/// The slots of one direction, of all channels: in memory of a GPU that a network reaches.
class GpuSlots {
 public:
  /// Takes the memory, which stays as long as anybody holds memory(). Throws Error(system): there
  /// is none, or GPU, driver or network card cannot do it.
  GpuSlots(const std::shared_ptr<device::Device>& gpu, const device::SegmentShape& shape,
           Wire& wire);

  /// Bytes from the first one on; the same for all ranks of a communicator.
  static std::size_t offset(const device::SegmentShape& shape, std::uint32_t channel,
                            std::uint32_t slot);
  std::byte* at(std::uint32_t channel, std::uint32_t slot) const {
    return place_.data + offset(shape_, channel, slot);
  }
  /// As Executor::put_data() takes them.
  std::vector<std::byte*> first_slots() const;
  const DeviceMemory& place() const { return place_; }
  const std::shared_ptr<MemoryRegion>& memory() const { return memory_; }

 private:
  device::SegmentShape shape_;
  DeviceMemory place_;
  std::shared_ptr<MemoryRegion> memory_;
};

class GpuLinks {
 public:
  /// The ends between two ranks, as their wire has them. They outlive this.
  struct Ends {
    Wire* wire = nullptr;
    std::uint64_t communicator = 0;         // whose links these are: its id
    std::uint64_t in_key = 0, out_key = 0;  // of the memory that this rank, and the peer, exposes
    std::vector<OutLink*> out;              // by channel
    std::vector<InLink*> in;
  };
  /// `gpu`: this rank's. Says to the peer, and to the log, what it does. Throws Error.
  GpuLinks(std::shared_ptr<device::Device> gpu, const device::SegmentShape& shape, Ends ends,
           int rank, int peer);

  /// Whether kernels put what they send into memory of the GPU, and find there what they receive.
  bool sends() const { return out_.has_value(); }
  bool receives() const { return in_.has_value(); }
  /// The places in the GPU's memory (GpuSlots::first_slots()); none: in the host's segments.
  std::vector<std::byte*> out_slots() const { return places(out_); }
  std::vector<std::byte*> in_slots() const { return places(in_); }

  // By the thread that moves messages:
  /// Whether the peer has said where it takes messages. Nothing is sent before.
  bool is_settled();
  /// Publishes the message in `slot`; there is room. `on_host`: where it lies, unless sends().
  void publish(std::uint32_t channel, std::uint32_t slot, const std::byte* on_host,
               std::uint32_t tag, std::uint32_t bytes);
  /// Whether the slot of the link's message `number`, which sends(), may be written again.
  bool has_sent(std::uint32_t channel, std::uint64_t number) const {
    return ends_.out[channel]->has_sent(number);
  }
  /// Where receives(): the link's message `number` of `bytes`, which has come, is there for kernels
  /// that hear of it from now on. Throws Error(internal) where the peer has not put it there.
  void expect(std::uint32_t channel, std::uint64_t number, std::uint32_t bytes);

 private:
  static std::vector<std::byte*> places(const std::optional<GpuSlots>& slots) {
    return slots ? slots->first_slots() : std::vector<std::byte*>{};
  }

  const std::shared_ptr<device::Device> gpu_;
  const device::SegmentShape shape_;
  const Ends ends_;
  const int rank_, peer_;
  std::optional<GpuSlots> out_, in_;
  bool flushes_ = false;  // RdmaOrder::with_flush
  bool settled_ = false, peer_takes_ = false;
};

}  // namespace tutti
