// What a wire has to keep to where a message goes to its place at once, and not through the rings:
// to a posted receive, or into memory that a peer exposes. Claim by claim, over each network. Part
// of endpoint_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/transport/networks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

class WirePlaces : public OfNetworks {};
INSTANTIATE_TEST_SUITE_P(Of, WirePlaces, testing::ValuesIn(network_cases()),
                         [](const auto& network) { return std::string(network.param.name); });

/// Polls a wire beside the test's thread, which waits in a call.
class Polled {
 public:
  explicit Polled(Wire& wire)
      : thread_([&wire](const std::stop_token& stop) {
          while (!stop.stop_requested()) wire.poll();
        }) {}

 private:
  std::jthread thread_;
};

// --- Messages that do not go through the rings ---------------------------------------------------

constexpr std::uint32_t kLongBytes = 300'000;
constexpr ConnectionShape kLongShape{8, 512 << 10, 4};

/// Two ends, a link from a to b, and a window at each.
struct ZeroCopy : TwoEnds {
  explicit ZeroCopy(TestNetwork& network)
      : TwoEnds(network),
        out(a.out(0, kLongShape)),
        in(b.in(0, kLongShape)),
        from(kWindow),
        to(kWindow) {
    // So that each knows where the other's ring is.
    EXPECT_TRUE(until([&] { return try_send(out, 0, 8); }));
    EXPECT_TRUE(until([&] { return try_receive(in, 0, 8); }));
  }
  void send(std::uint64_t message) {
    ASSERT_TRUE(until([&] { return out.sender().ready(kLongBytes); }));
    fill(from.data() + 64, message, kLongBytes);
    ASSERT_TRUE(out.can_send_from(from.data() + 64, kLongBytes));
    out.publish_from(from.data() + 64, static_cast<std::uint32_t>(message), kLongBytes);
    out.rung();
  }
  /// Message `number` of the link, in the window of b.
  void post(std::uint64_t number, std::uint32_t tag) {
    ASSERT_TRUE(in.can_post(to.data() + 128, kLongBytes));
    const InLink::PostedReceive message{number, to.data() + 128, tag, kLongBytes};
    in.post(std::span(&message, 1));
    const auto heard = Clock::now() + 20ms;  // the sender has
    while (Clock::now() < heard) poll();
  }
  void free_one() {
    in.receiver().free();
    in.rung();
  }

  static constexpr std::size_t kWindow = 512 << 10;
  OutLink& out;
  InLink& in;
  std::vector<std::byte, Allocator<std::byte>> from, to;
};

TEST_P(WirePlaces, AZeroCopySendGoesToAPostedReceive) {
  ZeroCopy l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  for (std::uint32_t m = 1; m <= 20; ++m) {
    l.post(m + 1, m);
    l.send(m);
    ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); })) << l.b.why_closed;
    ASSERT_EQ(l.in.received_in_place(), l.to.data() + 128) << m;
    EXPECT_EQ(first_wrong(l.to.data() + 128, m, kLongBytes), kLongBytes);
    EXPECT_EQ(l.to[127], std::byte{}) << "what lies before";
    EXPECT_EQ(l.to[128 + kLongBytes], std::byte{}) << "what lies behind";
    ASSERT_TRUE(l.until([&] { return l.out.has_sent(m + 1); }));
    l.free_one();
  }
  EXPECT_TRUE(l.until([&] { return l.a.wire.is_flushed(); }));
}

TEST_P(WirePlaces, AMessageOfAnotherTagGoesToItsSlot) {
  ZeroCopy l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  l.post(2, 77);  // another tag
  l.send(1);
  ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); }));
  EXPECT_EQ(l.in.received_in_place(), nullptr);
  EXPECT_EQ(first_wrong(l.in.receiver().slot(kLongBytes), 1, kLongBytes), kLongBytes);
  EXPECT_EQ(l.to[128], std::byte{});
  l.free_one();
  // Short messages, and memory in no window where there has to be one, are not reached.
  const Endpoint::Abilities& abilities = l.a.wire.abilities();
  EXPECT_FALSE(l.in.can_post(l.to.data(), abilities.least_direct - 1));
  if (!abilities.registers) return;
  std::vector<std::byte> other(kLongBytes);
  EXPECT_FALSE(l.in.can_post(other.data(), kLongBytes));
  EXPECT_FALSE(l.out.can_send_from(other.data(), kLongBytes));
}

TEST_P(WirePlaces, WhatIsTakenBackFromALinkIsSentAsItWas) {
  ZeroCopy l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  for (std::uint32_t m = 1; m <= 20; ++m) {
    l.send(m);
    {
      const Polled peer(l.b.wire);
      l.out.take_back(l.from.data(), l.from.data() + l.from.size());
    }
    EXPECT_TRUE(l.a.wire.abilities().cancels || l.out.has_sent(m + 1));
    std::ranges::fill(l.from, std::byte{0xee});
    ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); }));
    EXPECT_EQ(first_wrong(l.in.receiver().slot(kLongBytes), m, kLongBytes), kLongBytes);
    l.free_one();
  }
}

TEST_P(WirePlaces, NothingIsWrittenOnceAReceiveIsWithdrawn) {
  ZeroCopy l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  l.post(2, 1);
  {
    const Polled peer(l.a.wire);
    l.in.withdraw_receives();
  }
  EXPECT_FALSE(l.b.is_closed) << l.b.why_closed;
  l.send(1);
  ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); }));
  EXPECT_EQ(l.in.received_in_place(), nullptr);
  EXPECT_EQ(first_wrong(l.in.receiver().slot(kLongBytes), 1, kLongBytes), kLongBytes);
  EXPECT_TRUE(std::ranges::all_of(l.to, [](std::byte b) { return b == std::byte{}; }));
}

TEST_P(WirePlaces, APeerThatDoesNotLetGoIsGivenUp) {
  ZeroCopy l(*network);
  if (!l.a.wire.abilities().one_sided) GTEST_SKIP() << "this network asks where a payload goes";
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  l.post(2, 1);
  const auto begin = Clock::now();
  l.in.withdraw_receives();  // a does not look
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_TRUE(l.b.is_closed);
  EXPECT_NE(l.b.why_closed.find("does not let go"), std::string::npos) << l.b.why_closed;
  l.send(1);
  const auto until = Clock::now() + 200ms;
  while (Clock::now() < until) l.poll();
  EXPECT_TRUE(std::ranges::all_of(l.to, [](std::byte b) { return b == std::byte{}; }))
      << "the device still writes to memory that is not its any more";
}

// --- Memory that a peer writes to ----------------------------------------------------------------

/// Takes messages as they come; those that were written elsewhere are empty.
struct Takes final : InLink::Taker {
  bool take(std::uint32_t tag, const std::byte* payload, std::uint32_t bytes) override {
    tags.push_back(tag);
    payloads.emplace_back();
    if (payload != nullptr) payloads.back().assign(payload, payload + bytes);
    return true;
  }
  std::vector<std::uint32_t> tags;
  std::vector<std::vector<std::byte>> payloads;
};

/// Two ends, a link from a to b, and memory that b exposes.
struct Exposing : TwoEnds {
  explicit Exposing(TestNetwork& network)
      : TwoEnds(network),
        out(a.out(0, kLongShape)),
        in(b.wire.in({1, 0}, kLongShape, takes)),
        memory(std::size_t{64} << 10) {
    b.wire.expose(kKey, memory.data(), memory.size());
    const auto heard = Clock::now() + 100ms;  // a has
    while (Clock::now() < heard) poll();
  }
  ~Exposing() { b.wire.stop_taking(in); }
  void send(std::uint32_t message, std::uint64_t offset, std::uint32_t bytes) {
    ASSERT_TRUE(until([&] { return out.sender().ready(bytes); }));
    fill(out.sender().slot(bytes), message, bytes);
    out.publish_into(kKey, offset, nullptr, message, bytes);
    out.rung();
  }
  /// Message `message` has come, as the last one.
  bool came(std::uint32_t message) {
    return until([&] { return !takes.tags.empty() && takes.tags.back() == message; });
  }
  bool is_untouched() const {
    return std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{}; });
  }

  static constexpr std::uint64_t kKey = 0xabcdef0123456789;
  Takes takes;
  OutLink& out;
  InLink& in;
  std::vector<std::byte> memory;
};

TEST_P(WirePlaces, APeerWritesIntoExposedMemoryUntilItIsHidden) {
  Exposing l(*network);
  const auto expect_in_slot = [&](std::uint32_t m, std::uint32_t bytes) {
    ASSERT_EQ(l.takes.payloads.back().size(), bytes) << m;
    EXPECT_EQ(first_wrong(l.takes.payloads.back().data(), m, bytes), bytes) << m;
    EXPECT_TRUE(l.is_untouched()) << m;
  };
  for (std::uint32_t m = 1; m <= 20; ++m) {
    const std::uint32_t offset = 65 * m, bytes = m % 4 == 0 ? 40 : 1000 * m;
    l.send(m, offset, bytes);
    ASSERT_TRUE(l.came(m)) << l.b.why_closed;
    if (!l.a.wire.abilities().one_sided || bytes <= kInlineBytes) {
      expect_in_slot(m, bytes);
      continue;
    }
    EXPECT_TRUE(l.takes.payloads.back().empty()) << m;
    EXPECT_EQ(first_wrong(l.memory.data() + offset, m, bytes), bytes) << m;
    std::fill_n(l.memory.data() + offset, bytes, std::byte{});
    EXPECT_TRUE(l.is_untouched()) << "message " << m << " lies elsewhere, too";
  }
  l.send(21, l.memory.size() - 999, 1000);  // does not fit
  ASSERT_TRUE(l.came(21));
  expect_in_slot(21, 1000);
  {
    const Polled peer(l.a.wire);
    l.b.wire.hide(Exposing::kKey);
  }
  EXPECT_FALSE(l.b.is_closed) << l.b.why_closed;
  l.send(22, 0, 1000);
  ASSERT_TRUE(l.came(22));
  expect_in_slot(22, 1000);
}

TEST_P(WirePlaces, APeerThatDoesNotAnswerWritesToNothingThatWasExposed) {
  Exposing l(*network);
  if (!l.a.wire.abilities().one_sided) GTEST_SKIP() << "this network asks where a payload goes";
  const auto begin = Clock::now();
  l.b.wire.hide(Exposing::kKey);  // a does not look
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_TRUE(l.b.is_closed);
  l.send(1, 0, 1000);
  const auto until = Clock::now() + 200ms;
  while (Clock::now() < until) l.poll();
  EXPECT_TRUE(l.is_untouched()) << "the device still writes to memory that is not its any more";
}

}  // namespace
}  // namespace tutti
