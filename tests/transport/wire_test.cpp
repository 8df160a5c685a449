// What a wire has to keep to (wire.h), claim by claim, over each network. Part of endpoint_test.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/support/address_space.h"
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

/// Credit that the sender can do without waits for the next message, and no thread looks again and
/// again whether it has to go.
TEST_P(Wires, CreditThatIsNotMissedIsNoWork) {
  TwoEnds ends(*network);
  const ConnectionShape shape{32, 4096, 32};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  ASSERT_TRUE(try_send(out, 0, 8));
  ASSERT_TRUE(ends.until([&] { return try_receive(in, 0, 8); }));
  EXPECT_TRUE(ends.until([&] { return !ends.b.wire.has_work(); }, 2s));
}

/// Not by either end; and with memory it is made as if nothing had been.
TEST_P(Wires, ALinkThatGetsNoMemoryIsNoLink) {
  TwoEnds ends(*network);
  const ConnectionShape shape{16, std::uint32_t{1} << 20, 4};
  {
    const AddressSpace little(std::size_t{1} << 20);
    EXPECT_THROW(ends.a.out(0, shape), Error);
    EXPECT_THROW(ends.b.in(0, shape), Error);
  }
  for (End* const end : {&ends.a, &ends.b}) {
    EXPECT_EQ(end->wire.ring_bytes(1), 0U);
    end->wire.release_rings(1);
  }
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  ASSERT_TRUE(try_send(out, 7, 100'000));
  ASSERT_TRUE(ends.until([&] { return try_receive(in, 7, 100'000); }));
  {
    const AddressSpace little(std::size_t{1} << 20);
    EXPECT_THROW(ends.a.out(1, shape), Error);
  }
  ends.a.wire.close(1);
  ends.b.wire.close(1);
  EXPECT_FALSE(ends.a.is_closed) << ends.a.why_closed;
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

}  // namespace
}  // namespace tutti
