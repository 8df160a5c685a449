// Messages of kernels that go through the host: two links, with this test in the place of the
// kernels at their ends. Between the two, memory of the host, or the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "collectives/execute/cuda/memory.h"
#include "comm/impl.h"
#include "device/network_links.h"
#include "device/proxy.h"

namespace tutti {
namespace {

constexpr std::size_t kSlotBytes = 4096;
constexpr std::uint32_t kChannels = 2;

device::SegmentShape test_shape() {
  device::SegmentShape shape;
  shape.ranks = 2;
  shape.channels = 1;
  shape.message_channels = 1;
  shape.slots = 4;
  shape.ll_bytes = shape.ll128_bytes = 256;
  shape.simple_bytes = 8192;  // more than messages have
  return shape;
}
constexpr ConnectionShape kConnection{3, kSlotBytes};

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
  Rank(int rank, LinkEnds ends)
      : near_(shape_.bytes()),
        far_(shape_.bytes()),
        rank_(static_cast<std::uint32_t>(rank)),
        peer_(1 - rank_),
        link(std::make_shared<ProxyLink>(
            shape_, kSlotBytes,
            ProxyLink::Ends{rank, 1 - rank, near_.data(), far_.data(), std::move(ends)})) {}

  bool can_send(std::uint32_t channel) {
    return sent[channel] + 1 - device::load_acquire(word(near_, shape_.credit(peer_, channel))) <=
           shape_.slots;
  }
  /// `says`: the length, if it is not that of the data.
  void send(std::uint32_t channel, std::uint32_t check, const Bytes& data,
            std::optional<std::uint64_t> says = {}) {
    const std::uint64_t number = ++sent[channel];
    const std::size_t at = shape_.connection(rank_, channel);
    std::copy(data.begin(), data.end(), far_.data() + at + shape_.simple(slot(number)));
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
        near_.data() + shape_.connection(peer_, channel) + shape_.simple(slot(number));
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

  device::SegmentShape shape_ = test_shape();
  Memory near_, far_;
  std::uint32_t rank_, peer_;

 public:
  std::uint64_t sent[kChannels] = {}, received[kChannels] = {};
  std::shared_ptr<ProxyLink> link;
};

/// Of a rank whose links lie in this memory.
LinkEnds ends_in(Memory& outgoing, Memory& incoming) {
  struct Held {
    Doorbell doorbell{};
    Sender senders[kChannels];
    Receiver receivers[kChannels];
  };
  const auto held = std::make_shared<Held>();
  LinkEnds ends{{}, {}, held};
  for (std::size_t c = 0; c < kChannels; ++c) {
    const std::size_t at = c * kConnection.bytes();
    held->senders[c] = Sender(outgoing.data() + at, kConnection);
    held->receivers[c] = Receiver(incoming.data() + at, kConnection);
    ends.outgoing.push_back({&held->senders[c], &held->doorbell});
    ends.incoming.push_back({&held->receivers[c], &held->doorbell});
  }
  return ends;
}

/// On one host.
struct Pair {
  Memory to_first{kChannels * kConnection.bytes()}, to_second{kChannels * kConnection.bytes()};
  Rank first{0, ends_in(to_second, to_first)};
  Rank second{1, ends_in(to_first, to_second)};
};

/// On two hosts, which are told apart by hand.
struct DistantPair {
  static std::vector<Communicator> meet() {
    std::vector<Options> options(2);
    options[0].host_id = "one";
    options[1].host_id = "another";
    return Communicator::create_local(options);
  }
  static std::unique_ptr<DeviceNetworkLinks> links_of(Communicator& comm) {
    return std::make_unique<DeviceNetworkLinks>(*comm.impl().group);
  }
  std::vector<Communicator> comms = meet();
  std::unique_ptr<DeviceNetworkLinks> of_first = links_of(comms[0]), of_second = links_of(comms[1]);
  Rank first{0, of_first->ends(1, kChannels, kConnection)};
  Rank second{1, of_second->ends(0, kChannels, kConnection)};
};

template <class P>
class DeviceProxyPairs : public ::testing::Test {};
using Pairs = ::testing::Types<Pair, DistantPair>;
TYPED_TEST_SUITE(DeviceProxyPairs, Pairs);

/// The n-th message of a rank on a channel, the same wherever it is asked for: of any size, with
/// zeros anywhere.
Bytes message(int rank, std::uint32_t channel, std::uint64_t number) {
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
std::uint32_t check_of(std::uint64_t number) { return static_cast<std::uint32_t>(number * 77); }

/// One step of a rank's kernels on a channel, if there is one to be made.
void step(Rank& rank, int number_of_rank, std::uint32_t channel, std::uint64_t most) {
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

TYPED_TEST(DeviceProxyPairs, MessagesArriveInOrderAndWhole) {
  TypeParam pair;
  std::mt19937 random(5);
  constexpr std::uint64_t kMessages = 3000;
  const auto done = [](const Rank& r) {
    return std::ranges::all_of(r.received, [](std::uint64_t n) { return n == kMessages; });
  };
  while (!done(pair.first) || !done(pair.second)) {
    const std::uint32_t channel = random() % kChannels;
    switch (random() % 4) {
      case 0:
        step(pair.first, 0, channel, kMessages);
        break;
      case 1:
        step(pair.second, 1, channel, kMessages);
        break;
      case 2:
        pair.first.link->advance();
        break;
      default:
        pair.second.link->advance();
    }
    if (this->HasFatalFailure()) return;
  }
  EXPECT_FALSE(pair.first.link->advance());
  EXPECT_TRUE(pair.first.link->is_flushed() && pair.second.link->is_flushed());
}

TEST(DeviceProxy, ShortMessagesStayShortAfterLongOnes) {
  Pair pair;
  const ConnectionShape shape = kConnection;
  Receiver raw(pair.to_second.data(), shape);
  for (int i = 0; i < 12; ++i) {
    const std::size_t bytes = i < 8 ? kSlotBytes : 8;
    pair.first.send(0, 1, Bytes(bytes, std::byte{7}));
    ASSERT_TRUE(pair.first.link->advance());
    ASSERT_TRUE(raw.ready());
    EXPECT_EQ(raw.bytes(), bytes) << "message " << i;
    raw.free();
  }
}

TYPED_TEST(DeviceProxyPairs, WhatThePeerDoesNotTakeIsKept) {
  TypeParam pair;
  const Bytes data(100, std::byte{9});
  std::uint32_t sent = 0;
  // What the network brings takes a moment.
  const auto eventually = [&](const auto& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!holds() && std::chrono::steady_clock::now() < end) {
      pair.first.link->advance();
      pair.second.link->advance();
    }
    return holds();
  };
  // Until nothing is taken any more.
  while (true) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (!pair.first.can_send(0) && std::chrono::steady_clock::now() < end) {
      pair.first.link->advance();
      pair.second.link->advance();
    }
    if (!pair.first.can_send(0)) break;
    pair.first.send(0, sent++, data);
  }
  // Three FIFOs, one behind the other.
  EXPECT_EQ(sent, 4 + kConnection.slots + 4);
  EXPECT_FALSE(pair.first.link->is_flushed());
  for (std::uint32_t i = 0; i < sent; ++i) {
    ASSERT_TRUE(eventually([&] { return pair.second.can_receive(0, i); }));
    EXPECT_EQ(pair.second.receive(0, data.size()), data);
  }
  EXPECT_TRUE(eventually([&] { return pair.first.link->is_flushed(); }));
}

TEST(DeviceProxy, WhatWasSentArrivesAtAnotherHostBeforeTheNewsThatItsSenderHasLeft) {
  DistantPair pair;
  const Bytes data(kSlotBytes, std::byte{9});
  pair.first.send(0, 5, data);
  while (!pair.first.link->is_flushed()) pair.first.link->advance();
  EXPECT_FALSE(pair.of_second->has_left(0));
  pair.first.link.reset();
  pair.of_first.reset();
  while (!pair.of_second->has_left(0)) pair.second.link->advance();
  EXPECT_TRUE(pair.of_second->is_gone(0));
  pair.second.link->advance();
  ASSERT_TRUE(pair.second.can_receive(0, 5));
  EXPECT_EQ(pair.second.receive(0, data.size()), data);
}

/// A message of rank 0 that says to have so many bytes is not moved.
void expect_refused(ProxyLink& link, std::uint64_t bytes) {
  try {
    link.advance();
    ADD_FAILURE() << bytes << " bytes were taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
    EXPECT_EQ(e.rank(), 0);
  }
}

TEST(DeviceProxy, AMessageLongerThanItsSlotIsRefused) {
  for (const std::uint32_t bytes : {std::uint32_t{kSlotBytes} + 1, 0x80000000U, 0xFFFFFFFFU}) {
    Pair pair;
    Sender raw(pair.to_second.data(), kConnection);
    raw.publish(0, bytes);
    expect_refused(*pair.second.link, bytes);
  }
}

TEST(DeviceProxy, ALengthBeyondTheSlotIsRefused) {
  for (const std::uint64_t bytes : {kSlotBytes + 1UL, 1UL << 32, ~0UL}) {
    Pair pair;
    pair.first.send(0, 5, Bytes(8, std::byte{1}), bytes);
    expect_refused(*pair.first.link, bytes);
  }
}

TYPED_TEST(DeviceProxyPairs, TheThreadCarriesMessagesUntilItIsStopped) {
  TypeParam pair;
  const auto first = DeviceProxy::start();
  const auto second = DeviceProxy::start();
  first->add(pair.first.link);
  second->add(pair.second.link);
  constexpr std::uint64_t kMessages = 1000;
  const auto kernel = [](Rank& rank, int number, std::uint32_t channel) {
    while ((rank.received[channel] < kMessages || rank.sent[channel] < kMessages) &&
           !::testing::Test::HasFatalFailure()) {
      step(rank, number, channel, kMessages);
      std::this_thread::yield();
      if (rank.received[channel] % 250 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // the other sleeps meanwhile
      }
    }
  };
  {
    std::vector<std::jthread> kernels;
    for (std::uint32_t c = 0; c < kChannels; ++c) {
      kernels.emplace_back([&, c] { kernel(pair.first, 0, c); });
      kernels.emplace_back([&, c] { kernel(pair.second, 1, c); });
    }
  }
  EXPECT_FALSE(first->failure() || second->failure());
  second->stop();
  pair.first.send(0, 0, Bytes(8, std::byte{1}));
  first->stop();
  first->stop();  // and again
}

TEST(DeviceProxy, ALinkThatFailsEndsNoOther) {
  Pair broken, whole;
  const auto proxy = DeviceProxy::start();
  proxy->add(broken.second.link);
  proxy->add(whole.second.link);
  Sender(broken.to_second.data(), kConnection).publish(0, kSlotBytes + 1);
  while (!proxy->failure()) std::this_thread::yield();
  whole.first.send(0, 3, Bytes(8, std::byte{1}));
  whole.first.link->advance();
  while (!whole.second.can_receive(0, 3)) std::this_thread::yield();
  proxy->stop();
}

}  // namespace
}  // namespace tutti
