// What stands in the place of a rank's kernels at the end of a ProxyLink, in tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "device/proxy.h"
#include "execute/cuda/memory.h"

namespace tutti::test {

inline constexpr std::size_t kSlotBytes = 4096;
inline constexpr std::uint32_t kChannels = 2;

/// `simple_bytes`: more than messages have.
inline device::SegmentShape test_shape(std::uint32_t simple_bytes = 8192) {
  device::SegmentShape shape;
  shape.ranks = 2;
  shape.channels = 1;
  shape.message_channels = 1;
  shape.slots = 4;
  shape.ll_bytes = shape.ll128_bytes = 256;
  shape.simple_bytes = simple_bytes;
  return shape;
}
inline constexpr ConnectionShape kConnection{3, kSlotBytes};

/// Memory that begins on a line.
struct Memory {
  struct alignas(device::kLine) Line {
    std::byte bytes[device::kLine] = {};
  };
  explicit Memory(std::size_t bytes) : lines(bytes / sizeof(Line) + 1) {}
  std::byte* data() { return lines.data()->bytes; }
  std::vector<Line> lines;
};

using Bytes = std::vector<std::byte>;

/// What the kernels of a rank do with it: LaneLinks, for one message at a time.
class Rank {
 public:
  /// Where a slot's data are, as kernels address them; null: in the segments.
  using DataOf = std::function<std::byte*(std::uint32_t channel, std::uint32_t slot)>;

  Rank(int rank, LinkEnds ends) : Rank(test_shape(), rank, std::move(ends), nullptr, {}, {}) {}
  Rank(const device::SegmentShape& shape, int rank, LinkEnds ends, std::shared_ptr<GpuLinks> gpu,
       DataOf out, DataOf in)
      : shape_(shape),
        near_(shape_.bytes()),
        far_(shape_.bytes()),
        rank_(static_cast<std::uint32_t>(rank)),
        peer_(1 - rank_),
        out_(std::move(out)),
        in_(std::move(in)),
        link(std::make_shared<ProxyLink>(shape_, kSlotBytes,
                                         ProxyLink::Ends{rank, 1 - rank, near_.data(), far_.data(),
                                                         std::move(ends), std::move(gpu)})) {}

  bool can_send(std::uint32_t channel) {
    return sent[channel] + 1 - device::load_acquire(word(near_, shape_.credit(peer_, channel))) <=
           shape_.slots;
  }
  /// `says`: the length, if it is not that of the data.
  void send(std::uint32_t channel, std::uint32_t check, const Bytes& data,
            std::optional<std::uint64_t> says = {}) {
    const std::uint64_t number = ++sent[channel];
    const std::size_t at = shape_.connection(rank_, channel);
    std::copy(data.begin(), data.end(),
              out_ ? out_(channel, slot(number)) : far_.data() + at + shape_.simple(slot(number)));
    *word(far_, at + shape_.length(slot(number))) = says.value_or(data.size());
    device::store_release(word(far_, at + shape_.header(slot(number))),
                          std::uint64_t{check} << 32 | static_cast<std::uint32_t>(number));
  }
  bool can_receive(std::uint32_t channel, std::uint32_t check) {
    const std::uint64_t number = received[channel] + 1;
    const std::uint64_t header = device::load_acquire(
        word(near_, shape_.connection(peer_, channel) + shape_.header(slot(number))));
    return header == (std::uint64_t{check} << 32 | static_cast<std::uint32_t>(number));
  }
  Bytes receive(std::uint32_t channel, std::size_t bytes) {
    const std::uint64_t number = ++received[channel];
    const std::byte* const from =
        in_ ? in_(channel, slot(number))
            : near_.data() + shape_.connection(peer_, channel) + shape_.simple(slot(number));
    Bytes data(from, from + bytes);
    device::store_release(word(far_, shape_.credit(rank_, channel)), number);
    return data;
  }

 private:
  static std::uint64_t* word(Memory& memory, std::size_t at) {
    return reinterpret_cast<std::uint64_t*>(memory.data() + at);
  }
  std::uint32_t slot(std::uint64_t number) const {
    return static_cast<std::uint32_t>(number % shape_.slots);
  }

  device::SegmentShape shape_;
  Memory near_, far_;
  std::uint32_t rank_, peer_;
  DataOf out_, in_;

 public:
  std::uint64_t sent[kChannels] = {}, received[kChannels] = {};
  std::shared_ptr<ProxyLink> link;
};

/// The n-th message of a rank on a channel, the same wherever it is asked for: of any size, with
/// zeros anywhere.
inline Bytes message(int rank, std::uint32_t channel, std::uint64_t number) {
  std::mt19937 random(static_cast<unsigned>(number * 8 + channel * 2) +
                      static_cast<unsigned>(rank));
  const std::size_t sizes[] = {0,
                               1,
                               8,
                               47,
                               48,
                               49,
                               63,
                               64,
                               65,
                               4032,
                               kSlotBytes - 1,
                               kSlotBytes,
                               random() % (kSlotBytes + 1)};
  Bytes data(sizes[random() % std::size(sizes)]);
  const std::size_t begin = random() % 3 == 0 ? random() % (data.size() + 1) : 0;
  const std::size_t end = random() % 2 == 0 ? random() % (data.size() + 1) : data.size();
  for (std::size_t i = begin; i < end; ++i) data[i] = static_cast<std::byte>(random() % 256);
  return data;
}
inline std::uint32_t check_of(std::uint64_t number) {
  return static_cast<std::uint32_t>(number * 77);
}

/// One step of a rank's kernels on a channel, if there is one to be made.
inline void step(Rank& rank, int number_of_rank, std::uint32_t channel, std::uint64_t most) {
  if (rank.sent[channel] < most && rank.can_send(channel)) {
    const std::uint64_t n = rank.sent[channel];
    rank.send(channel, check_of(n), message(number_of_rank, channel, n));
  }
  const std::uint64_t n = rank.received[channel];
  if (n < most && rank.can_receive(channel, check_of(n))) {
    const Bytes expected = message(1 - number_of_rank, channel, n);
    ASSERT_EQ(rank.receive(channel, expected.size()), expected) << "message " << n;
  }
}

}  // namespace tutti::test
