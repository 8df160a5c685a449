// Messages of kernels that go through the host: two links, with this test in the place of the
// kernels at their ends. Between the two, memory of the host, or the network.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/impl.h"
#include "device/network_links.h"
#include "tests/device/proxy_rank.h"

namespace {

/// The next allocation of the thread that carries messages fails.
std::atomic<bool> no_memory_for_proxy{false};

bool is_proxy() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string_view(name) == "tutti-proxy";
}

}  // namespace

// Of this program, its libraries included.
void* operator new(std::size_t bytes) {
  if (no_memory_for_proxy && is_proxy() && no_memory_for_proxy.exchange(false)) {
    throw std::bad_alloc();
  }
  if (void* const memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tutti {
namespace {

using namespace test;

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

TEST(DeviceProxy, AThreadWithoutMemorySaysThatItHasEnded) {
  Pair pair;
  const auto proxy = DeviceProxy::start();
  no_memory_for_proxy = true;
  proxy->add(pair.second.link);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!proxy->failure() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  no_memory_for_proxy = false;
  const std::optional<Error> failure = proxy->failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code(), ErrorCode::system);
  EXPECT_NE(std::string_view(failure->what()).find("has ended"), std::string_view::npos);
  proxy->stop();  // at once, as there is no thread
}

}  // namespace
}  // namespace tutti
