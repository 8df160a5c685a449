// What a wire has to keep to (wire.h), claim by claim, over each network. Part of endpoint_test.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <random>
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

class Wires : public OfNetworks {};
INSTANTIATE_TEST_SUITE_P(Of, Wires, testing::ValuesIn(network_cases()),
                         [](const auto& network) { return std::string(network.param.name); });

/// Whether the peer has all that was sent, as far as the network tells before the good-bye.
bool is_through(Wire& wire) {
  return wire.abilities().confirms ? wire.is_delivered() : wire.is_flushed();
}

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

TEST_P(Wires, MessagesOfAnySizeGoRound) {
  TwoEnds ends(*network);
  const ConnectionShape shape{8, 16384, 3};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  constexpr std::uint64_t kMessages = 600;
  std::mt19937 random(3);
  std::vector<std::size_t> sizes(kMessages);
  for (std::size_t i = 0; i < kMessages; ++i) {
    sizes[i] = i % 2 == 0 ? kMessageSizes[i / 2 % std::size(kMessageSizes)]
                          : random() % (shape.slot_bytes + 1);
  }
  std::uint64_t sent = 0, received = 0;
  ASSERT_TRUE(ends.until([&] {
    while (sent < kMessages && try_send(out, sent, sizes[sent])) ++sent;
    while (received < kMessages && try_receive(in, received, sizes[received])) ++received;
    return received == kMessages || ends.a.is_closed || ends.b.is_closed;
  }));
  EXPECT_EQ(received, kMessages) << ends.a.why_closed << ends.b.why_closed;
  EXPECT_TRUE(ends.until([&] { return is_through(ends.a.wire) && is_through(ends.b.wire); }));
}

TEST_P(Wires, LinksShareAWireInBothDirections) {
  TwoEnds ends(*network);
  const ConnectionShape shape{4, 4096, 2};
  constexpr std::uint64_t kLinks = 4, kMessages = 200;
  struct Link {
    OutLink* out;
    InLink* in;
    std::uint64_t sent = 0, received = 0;
  };
  std::vector<Link> links;
  for (std::uint64_t l = 0; l < kLinks; ++l) {
    links.push_back({&ends.a.out(l, shape), &ends.b.in(l, shape)});
    links.push_back({&ends.b.out(l, shape), &ends.a.in(l, shape)});
  }
  const auto size = [&](std::uint64_t l, std::uint64_t m) { return (l * 977 + m * 409) % 4097; };
  ASSERT_TRUE(ends.until([&] {
    bool done = true;
    for (std::size_t l = 0; l < links.size(); ++l) {
      Link& k = links[l];
      if (k.sent < kMessages && try_send(*k.out, 1000 * l + k.sent, size(l, k.sent))) ++k.sent;
      if (k.received < kMessages &&
          try_receive(*k.in, 1000 * l + k.received, size(l, k.received))) {
        ++k.received;
      }
      done = done && k.received == kMessages;
    }
    return done || ends.a.is_closed || ends.b.is_closed;
  }));
  EXPECT_FALSE(ends.a.is_closed) << ends.a.why_closed;
  EXPECT_FALSE(ends.b.is_closed) << ends.b.why_closed;
}

TEST_P(Wires, ASenderWithoutCreditWaitsAndGoesOn) {
  TwoEnds ends(*network);
  const ConnectionShape shape{4, 8192, 2};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::size_t bytes = round % 2 == 0 ? 8 : 8192;
    const std::uint64_t most = round % 2 == 0 ? 4 : 2;  // slots; data
    std::uint64_t sent = 0;
    ASSERT_TRUE(ends.until([&] {
      if (try_send(out, 100 * round + sent, bytes)) ++sent;
      return sent >= most;
    }));
    // Nothing is freed, so there is no room, however long one waits.
    const auto end = Clock::now() + 20ms;
    std::uint64_t more = 0;
    while (Clock::now() < end) {
      ends.poll();
      if (out.sender().ready(bytes)) ++more;
    }
    // A third long one may find room at the end of the data.
    EXPECT_TRUE(more == 0 || most == 2) << round;
    for (std::uint64_t m = 0; m < sent;) {
      ASSERT_TRUE(ends.until([&] { return try_receive(in, 100 * round + m, bytes); }));
      ++m;
    }
  }
}

TEST_P(Wires, AMessageThatCannotBeEndsTheWire) {
  TwoEnds ends(*network);
  const ConnectionShape shape{4, 4096};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  ASSERT_TRUE(ends.until([&] { return try_send(out, 0, 64); }));
  ASSERT_TRUE(ends.until([&] { return try_receive(in, 0, 64); }));
  // Longer than a slot.
  out.sender().publish(0, 4097);
  out.rung();
  ASSERT_TRUE(ends.until([&] { return ends.b.is_closed; }));
  EXPECT_EQ(ends.b.why_closed, "it has sent what cannot be");
  EXPECT_FALSE(in.receiver().ready());
}

TEST_P(Wires, ACommunicatorThatEndsDoesNotTakeOthersAlong) {
  TwoEnds ends(*network);
  const ConnectionShape shape{4, 65536};
  OutLink& stays = ends.a.out(0, shape, 2);
  InLink& stays_in = ends.b.in(0, shape, 2);
  std::uint64_t kept = 0;
  for (std::uint64_t group = 10; group < 20; ++group) {
    OutLink& out = ends.a.out(0, shape, group);
    InLink& in = ends.b.in(0, shape, group);
    OutLink& back = ends.b.out(0, shape, group);
    ASSERT_TRUE(ends.until([&] { return try_send(out, 0, 8); }));
    ASSERT_TRUE(ends.until([&] { return try_send(back, 0, 8); }));
    ASSERT_TRUE(ends.until([&] { return try_receive(in, 0, 8); }));
    if (group % 2 == 0) {
      // The receiver leaves, and the sender, which has not heard of it, writes all it can.
      ends.b.wire.close(group);
      for (std::uint64_t m = 1; try_send(out, m, 65536); ++m) {
      }
      ends.a.wire.close(group);
    } else {
      // The sender leaves, and the receiver writes credits to it.
      ASSERT_TRUE(ends.until([&] { return try_send(out, 1, 65536); }));
      ASSERT_TRUE(ends.until([&] { return is_through(ends.a.wire); }));
      ends.a.wire.close(group);
      ends.b.wire.poll();
      ASSERT_TRUE(try_receive(in, 1, 65536));
      ends.b.wire.poll_and_tell();
      ends.b.wire.close(group);
    }
    ASSERT_TRUE(ends.until([&] {
      return std::ranges::count(ends.a.left, group) == 1 &&
             std::ranges::count(ends.b.left, group) == 1;
    }));
    ASSERT_TRUE(ends.until([&] { return try_send(stays, kept, 1000); }));
    ASSERT_TRUE(ends.until([&] { return try_receive(stays_in, kept, 1000); }));
    ++kept;
  }
  EXPECT_FALSE(ends.a.is_closed) << ends.a.why_closed;
  EXPECT_FALSE(ends.b.is_closed) << ends.b.why_closed;
}

TEST_P(Wires, GoodByeIsTheLastThatComes) {
  TwoEnds ends(*network);
  const ConnectionShape shape{4, 4096};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  ASSERT_TRUE(ends.until([&] { return try_send(out, 0, 3000); }));
  ASSERT_TRUE(ends.until([&] { return is_through(ends.a.wire); }));
  ends.a.wire.say_bye();
  ASSERT_TRUE(ends.until([&] { return ends.b.is_closed; }));
  EXPECT_EQ(ends.b.why_closed, "");
  EXPECT_TRUE(try_receive(in, 0, 3000));
}

TEST_P(Wires, AWireCanBeShutAtAnyTime) {
  const auto one = [&] {
    return std::make_unique<End>([&](Endpoint::Sink& sink) { return network->make(0, sink); },
                                 network->lock(0));
  };
  one();
  {
    const auto end = one();
    end->out(0, {4, 4096});
    end->wire.shut();
    end->wire.shut();
    EXPECT_TRUE(end->wire.is_flushed());
    EXPECT_TRUE(end->wire.is_delivered());
  }
  for (int round = 0; round < 10; ++round) {
    TwoEnds ends(*network);
    OutLink& out = ends.a.out(0, {8, 65536});
    InLink& in = ends.b.in(0, {8, 65536});
    ASSERT_TRUE(ends.until([&] { return try_send(out, 0, 65536); }));
    ASSERT_TRUE(ends.until([&] { return in.receiver().ready(); }));
    for (std::uint64_t m = 1; try_send(out, m, 65536); ++m) {
    }
    (round % 2 == 0 ? ends.a : ends.b).wire.shut();
    ends.poll();
    EXPECT_FALSE(try_send(out, 9, 65536));
    EXPECT_TRUE((round % 2 == 0 ? ends.a : ends.b).wire.is_flushed());
  }
}

TEST_P(Wires, ARankIsToldByADescriptorAndADoorbell) {
  TwoEnds ends(*network);
  if (ends.b.wire.abilities().level_triggered || ends.b.wire.descriptors()[0] < 0) {
    GTEST_SKIP() << "this network has no descriptor that is armed";
  }
  const ConnectionShape shape{4, 4096};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  ASSERT_TRUE(ends.until([&] { return try_send(out, 0, 100); }));
  ASSERT_TRUE(ends.until([&] { return try_receive(in, 0, 100); }));
  ASSERT_TRUE(ends.until([&] { return is_through(ends.a.wire) && is_through(ends.b.wire); }));
  for (std::uint64_t m = 1; m < 20; ++m) {
    pollfd file{ends.b.wire.descriptors()[0], POLLIN, 0};
    ends.b.wire.arm();
    ends.b.wire.poll();
    EXPECT_EQ(poll(&file, 1, 0), 0) << "nothing came";
    ends.b.doorbell.asleep = Doorbell::kAsleep;
    const std::uint32_t rings = ends.b.doorbell.rings;
    ASSERT_TRUE(try_send(out, m, 100));
    ASSERT_EQ(poll(&file, 1, 5000), 1);
    ASSERT_TRUE(ends.until([&] { return ends.b.doorbell.rings != rings; }));
    EXPECT_TRUE(try_receive(in, m, 100));
    ends.b.doorbell.asleep = Doorbell::kAwake;
    ends.b.wire.arm();
    ASSERT_TRUE(ends.until([&] { return is_through(ends.a.wire) && is_through(ends.b.wire); }));
    ends.b.wire.arm();
  }
}

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

TEST_P(Wires, AZeroCopySendGoesToAPostedReceive) {
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

TEST_P(Wires, AMessageOfAnotherTagGoesToItsSlot) {
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

TEST_P(Wires, WhatIsTakenBackFromALinkIsSentAsItWas) {
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

TEST_P(Wires, NothingIsWrittenOnceAReceiveIsWithdrawn) {
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

TEST_P(Wires, APeerThatDoesNotLetGoIsGivenUp) {
  ZeroCopy l(*network);
  if (!l.a.wire.abilities().one_sided) GTEST_SKIP() << "this network asks where a payload goes";
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

TEST_P(Wires, APeerWritesIntoExposedMemoryUntilItIsHidden) {
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

TEST_P(Wires, APeerThatDoesNotAnswerWritesToNothingThatWasExposed) {
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
