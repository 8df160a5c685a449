// What a network has to keep to (endpoint.h), claim by claim: of an endpoint by itself, and of the
// wire over it. A new network is one that passes: give it a TestNetwork and a line in kNetworks.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/support/clean_environment.h"
#include "tests/transport/networks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMessageSizes[] = {0, 1, 47, 48, 49, 63, 64, 65, 4095, 4096, 4097, 16384};

class Endpoints : public testing::TestWithParam<NetworkCase> {
 protected:
  void SetUp() override {
    std::string why_not;
    network = GetParam().make(why_not);
    if (!network) GTEST_SKIP() << why_not;
  }
  std::unique_ptr<TestNetwork> network;
};
INSTANTIATE_TEST_SUITE_P(Of, Endpoints, testing::ValuesIn(network_cases()),
                         [](const auto& network) { return std::string(network.param.name); });

// --- An endpoint by itself -----------------------------------------------------------------------

/// What comes to an endpoint; every message has memory of its own.
struct Recorder final : Endpoint::Sink {
  struct Message {
    MessageHeader header;
    std::vector<std::byte> payload;
    bool is_whole = false;
  };
  Target on_header(const MessageHeader& h) override {
    if (h.link == kUnknown) return {};
    if (h.link == kUnwanted) return {true, nullptr, nullptr, nullptr};
    Message& m = messages[h.number];
    EXPECT_TRUE(h.link == kRedirected || m.header.number == 0) << "asked twice for " << h.number;
    m.header = h;
    memory.push_back(std::make_shared<std::vector<std::byte>>(h.total_bytes() + 1));
    auto& bytes = *memory.back();
    places[h.number] = bytes.data();
    return {true, bytes.data(), memory.back(), nullptr};
  }
  Endpoint::Heard on_message(const MessageHeader& h) override {
    order.push_back(h.number);
    Message& m = messages[h.number];
    EXPECT_FALSE(m.is_whole) << "message " << h.number << " came twice";
    m.is_whole = true;
    m.header = h;
    if (places[h.number] != nullptr && !in_place) {
      m.payload.assign(places[h.number], places[h.number] + h.total_bytes());
    }
    return Endpoint::Heard::fine;
  }
  Endpoint::Heard on_notice(std::uint32_t notice) override {
    notices.push_back(notice);
    return Endpoint::Heard::fine;
  }
  Endpoint::Heard on_control(const MessageHeader& h, const std::byte* bytes) override {
    controls.emplace_back(reinterpret_cast<const char*>(bytes), h.bytes);
    return Endpoint::Heard::fine;
  }
  void on_room() override { ++rooms; }
  void on_closed(const std::string& why) override {
    is_closed = true;
    why_closed = why;
  }

  static constexpr std::uint32_t kUnknown = 90, kUnwanted = 91, kRedirected = 92;
  std::map<std::uint64_t, Message> messages;
  std::map<std::uint64_t, std::byte*> places;
  std::vector<std::shared_ptr<std::vector<std::byte>>> memory;
  std::vector<std::uint64_t> order;
  std::vector<std::uint32_t> notices;
  std::vector<std::string> controls;
  bool in_place = false, is_closed = false;
  std::string why_closed;
  int rooms = 0;
};

/// Endpoints 0 and 1, connected. One-sided ones write into `window` of the other side, at the place
/// of the payload in their own.
struct Pair {
  explicit Pair(TestNetwork& network) : network_(network) {
    for (int side = 0; side < 2; ++side) {
      locked(side, [&] { e[side] = network.make(side, sink[side]); });
    }
    if (abilities().streams > 0) {
      TcpStreams streams(true);
      for (int s = 0; s < 2; ++s) {
        e[s]->connect(std::move(streams.first[s]), std::move(streams.second[s]), s == 0);
      }
    } else {
      for (int s = 0; s < 2; ++s) locked(s, [&] { address[s] = e[s]->address(); });
      for (int s = 0; s < 2; ++s) locked(s, [&] { e[s]->connect(address[1 - s]); });
    }
    for (int s = 0; s < 2; ++s) {
      window[s].resize(kWindow);
      if (!abilities().registers) continue;
      locked(s, [&] { region[s] = e[s]->register_ring(window[s].data(), kWindow); });
    }
  }
  ~Pair() {
    for (int s = 0; s < 2; ++s) {
      locked(s, [&] {
        if (e[s]) e[s]->close(false);
        region[s].reset();
        e[s].reset();
      });
    }
  }
  const Endpoint::Abilities& abilities() const { return e[0]->abilities(); }
  template <class Call>
  void locked(int side, Call&& call) {
    std::mutex own;
    std::mutex* const shared = network_.lock(side);
    const std::lock_guard lock(shared != nullptr ? *shared : own);
    call();
  }
  void poll() {
    for (int s = 0; s < 2; ++s) {
      locked(s, [&] {
        if (sink[s].is_closed) return;
        e[s]->poll();
        e[s]->submit();
      });
    }
  }
  bool until(const std::function<bool()>& condition, std::chrono::milliseconds limit = 20s) {
    for (const auto end = Clock::now() + limit; !condition(); poll()) {
      if (Clock::now() > end) return false;
    }
    return true;
  }
  /// Message `number` of `bytes`, which lies at `at` of the window. False: there is no room.
  bool put(int side, std::uint64_t number, std::size_t bytes, std::size_t at = 0,
           std::uint32_t link = 1, bool users = false) {
    bool taken = false;
    locked(side, [&] {
      if (e[side]->room(bytes) != Endpoint::Room::yes) return;
      Endpoint::Put p;
      p.header.link = link;
      p.header.number = number;
      p.header.tag = static_cast<std::uint32_t>(number * 3);
      p.header.bytes = static_cast<std::uint32_t>(bytes);
      p.payload = window[side].data() + at;
      if (!users) p.keeps = kept;
      p.region = region[side].get();
      if (abilities().one_sided) {
        p.to = {reinterpret_cast<std::uintptr_t>(window[1 - side].data()) + at,
                region[1 - side]->remote_key(), 0};
      }
      e[side]->put(p);
      taken = true;
      e[side]->submit();
    });
    return taken;
  }
  bool has_come(int side, std::uint64_t number) {
    const auto found = sink[side].messages.find(number);
    return found != sink[side].messages.end() && found->second.is_whole;
  }
  /// The payload of message `number`, where it came to.
  const std::byte* came(int side, std::uint64_t number, std::size_t at) {
    return abilities().one_sided && sink[side].places[number] == nullptr
               ? window[side].data() + at
               : sink[side].places[number];
  }

  static constexpr std::size_t kWindow = std::size_t{4} << 20;
  TestNetwork& network_;
  Recorder sink[2];
  std::unique_ptr<Endpoint> e[2];
  std::vector<std::byte> address[2], window[2];
  std::shared_ptr<MemoryRegion> region[2];
  std::shared_ptr<int> kept = std::make_shared<int>();
};

TEST_P(Endpoints, AMessageOfAnyLengthComesWithItsHeaderAndPayload) {
  Pair p(*network);
  std::uint64_t number = 0;
  for (const std::size_t bytes :
       {0, 1, 48, 49, 120, 121, 8192, 32767, 32768, 61440, 300'000, 1 << 20}) {
    ++number;
    const std::size_t at = 64 * number;
    fill(p.window[0].data() + at, number, bytes);
    ASSERT_TRUE(p.until([&] { return p.put(0, number, bytes, at); })) << bytes;
    ASSERT_TRUE(p.until([&] { return p.has_come(1, number); })) << bytes << p.sink[1].why_closed;
    const MessageHeader& h = p.sink[1].messages[number].header;
    EXPECT_EQ(h.link, 1u);
    EXPECT_EQ(h.tag, number * 3);
    EXPECT_EQ(h.bytes, bytes);
    EXPECT_EQ(first_wrong(p.came(1, number, at), number, bytes), bytes);
  }
}

TEST_P(Endpoints, EachMessageComesOnceInBothDirections) {
  Pair p(*network);
  constexpr std::uint64_t kMessages = 200;
  std::mt19937 random(7);
  std::vector<std::size_t> sizes(kMessages + 1);
  for (std::size_t& s : sizes) s = random() % 3 == 0 ? random() % 100'000 : random() % 200;
  std::uint64_t sent[2] = {};
  // Each message lies by itself, so that it may be under way for as long as it likes.
  const auto at = [&](std::uint64_t number) { return (number % 32) * 131072; };
  const auto came = [&](int side) { return p.sink[side].order.size(); };
  ASSERT_TRUE(p.until([&] {
    for (int s = 0; s < 2; ++s) {
      if (sent[s] == kMessages || sent[s] - came(1 - s) >= 32) continue;
      const std::uint64_t number = sent[s] + 1;
      fill(p.window[s].data() + at(number) + (s == 0 ? 0U : 0U), number + 1000 * s, sizes[number]);
      // One-sided ones would write over what the other side sends.
      if (p.abilities().one_sided && s == 1) {
        sent[1] = kMessages;
        continue;
      }
      if (p.put(s, number, sizes[number], at(number))) ++sent[s];
    }
    return came(1) == kMessages && (p.abilities().one_sided || came(0) == kMessages);
  })) << came(0)
      << " " << came(1) << p.sink[0].why_closed << p.sink[1].why_closed;
  for (int s = 0; s < 2; ++s) {
    for (auto& [number, m] : p.sink[s].messages) {
      if (p.abilities().one_sided) continue;
      EXPECT_EQ(first_wrong(m.payload.data(), number + 1000 * (1 - s), sizes[number]),
                sizes[number]);
    }
  }
}

TEST_P(Endpoints, ControlMessagesComeWholeAndInOrderWhereTheNetworkKeepsIt) {
  Pair p(*network);
  constexpr std::size_t kCount = 500;
  std::size_t sent = 0;
  const auto text = [](std::size_t i) {
    std::string t(sizeof(Control), '.');
    return t.replace(0, 6, std::to_string(100'000 + i));
  };
  ASSERT_TRUE(p.until([&] {
    p.locked(0, [&] {
      MessageHeader h;
      h.kind = MessageHeader::control;
      h.bytes = sizeof(Control);
      while (sent < kCount && p.e[0]->send(h, text(sent).data())) ++sent;
      p.e[0]->submit();
    });
    return p.sink[1].controls.size() == kCount;
  })) << p.sink[1].controls.size();
  std::vector<std::string> controls = p.sink[1].controls;
  if (!p.abilities().ordered) std::ranges::sort(controls);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(controls[i], text(i));
}

TEST_P(Endpoints, HeadersKeepTheirOrderWhereTheNetworkSaysSo) {
  Pair p(*network);
  if (!p.abilities().ordered) GTEST_SKIP() << "this network keeps no order";
  std::uint64_t sent = 0;
  ASSERT_TRUE(p.until([&] {
    if (sent < 300 && p.put(0, sent + 1, 40 + sent % 9)) ++sent;
    return p.sink[1].order.size() == 300;
  }));
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_EQ(p.sink[1].order[i], i + 1);
}

TEST_P(Endpoints, WhatIsCompletedMayBeOverwritten) {
  Pair p(*network);
  constexpr std::size_t kBytes = 200'000;
  for (std::uint64_t number = 1; number <= 10; ++number) {
    fill(p.window[0].data(), number, kBytes);
    ASSERT_TRUE(p.until([&] { return p.put(0, number, kBytes, 0, 1, true); }));
    std::uint64_t appended = 0;
    p.locked(0, [&] { appended = p.e[0]->appended(); });
    ASSERT_TRUE(p.until([&] { return p.e[0]->completed() >= appended; }));
    fill(p.window[0].data(), 77, kBytes);
    ASSERT_TRUE(p.until([&] { return p.has_come(1, number); }));
    EXPECT_EQ(first_wrong(p.came(1, number, 0), number, kBytes), kBytes);
  }
}

TEST_P(Endpoints, WhatIsTakenBackIsSentAsItWas) {
  Pair p(*network);
  if (!p.abilities().cancels) GTEST_SKIP() << "this network cannot be stopped";
  constexpr std::size_t kBytes = std::size_t{3} << 20;  // more than a socket takes
  for (std::uint64_t number = 1; number <= 3; ++number) {
    fill(p.window[0].data(), number, kBytes);
    ASSERT_TRUE(p.until([&] { return p.put(0, number, kBytes, 0, 1, true); }));
    p.locked(0, [&] {
      p.e[0]->take_back(p.window[0].data() + 1000, p.window[0].data() + kBytes - 1000);
    });
    fill(p.window[0].data(), 99, kBytes);
    ASSERT_TRUE(p.until([&] { return p.has_come(1, number); }));
    EXPECT_EQ(first_wrong(p.came(1, number, 0), number, kBytes), kBytes);
  }
}

TEST_P(Endpoints, WhatIsRedirectedGoesOnWhereItIsWantedNow) {
  Pair p(*network);
  if (!p.abilities().cancels) GTEST_SKIP() << "this network cannot be stopped";
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  fill(p.window[0].data(), 5, kBytes);
  ASSERT_TRUE(p.until([&] { return p.put(0, 1, kBytes, 0, Recorder::kRedirected); }));
  // It has begun to come.
  ASSERT_TRUE(p.until([&] { return p.sink[1].places.contains(1); }));
  ASSERT_FALSE(p.has_come(1, 1));
  const std::shared_ptr<std::vector<std::byte>> before = p.sink[1].memory.back();
  p.locked(1, [&] { p.e[1]->redirect(Recorder::kRedirected); });
  ASSERT_NE(p.sink[1].places[1], before->data());
  const std::vector<std::byte> then = *before;
  ASSERT_TRUE(p.until([&] { return p.has_come(1, 1); }));
  EXPECT_EQ(then, *before) << "it was still written";
  const std::byte* const to = p.sink[1].places[1];
  std::size_t split = 0;
  while (split < kBytes && to[split] == std::byte{}) ++split;
  std::size_t wrong = 0;
  for (std::size_t i = split; i < kBytes; ++i) wrong += to[i] != pattern(5, i) ? 1 : 0;
  EXPECT_EQ(wrong, 0u);
  EXPECT_LT(split, kBytes);
}

TEST_P(Endpoints, APayloadThatIsNotWantedIsPassedOver) {
  Pair p(*network);
  if (p.abilities().one_sided) GTEST_SKIP() << "this network does not ask where a payload goes";
  for (const std::size_t bytes : {10, 1000, 200'000}) {
    ASSERT_TRUE(p.until([&] { return p.put(0, 7, bytes, 0, Recorder::kUnwanted); }));
    p.sink[1].messages.clear();
    ASSERT_TRUE(p.until([&] { return p.has_come(1, 7); }));
    fill(p.window[0].data(), bytes, 100);
    ASSERT_TRUE(p.until([&] { return p.put(0, bytes, 100); }));
    ASSERT_TRUE(p.until([&] { return p.has_come(1, bytes); }));
    EXPECT_EQ(first_wrong(p.came(1, bytes, 0), bytes, 100), 100u);
  }
}

TEST_P(Endpoints, AHeaderThatCannotBeEndsTheConnection) {
  Pair p(*network);
  ASSERT_TRUE(p.until([&] { return p.put(0, 1, 40, 0, Recorder::kUnknown); }));
  ASSERT_TRUE(p.until([&] { return p.sink[1].is_closed; }));
  EXPECT_EQ(p.sink[1].why_closed, "it has sent what cannot be");
}

TEST_P(Endpoints, RoomThatIsUsedUpComesBack) {
  Pair p(*network);
  std::uint64_t sent = 0;
  // Nobody receives: so there is no room some time, or no end to what the network takes.
  while (sent < 3000 && p.put(0, sent + 1, 1000, (sent % 4) * 1024)) ++sent;
  ASSERT_TRUE(p.until([&] { return p.sink[1].order.size() == sent; }));
  ASSERT_TRUE(p.until([&] { return p.put(0, sent + 1, 1000); }));
  ASSERT_TRUE(p.until([&] { return p.sink[1].order.size() == sent + 1; }));
  EXPECT_TRUE(p.until([&] {
    bool flushed = false;
    p.locked(0, [&] { flushed = p.e[0]->is_flushed(); });
    return flushed;
  }));
}

TEST_P(Endpoints, AnEndpointMayBeClosedWithMessagesUnderWay) {
  for (int round = 0; round < 5; ++round) {
    Pair p(*network);
    ASSERT_TRUE(p.until([&] { return p.put(0, 1, 8); }));
    ASSERT_TRUE(p.until([&] { return p.has_come(1, 1); }));
    for (std::uint64_t number = 2; number <= 20; ++number) p.put(0, number, 100'000);
    if (round % 2 != 0) p.poll();
    p.locked(round % 2, [&] {
      p.e[round % 2]->drain(false);
      p.e[round % 2]->close(false);
    });
  }
}

// --- A wire over it ------------------------------------------------------------------------------

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

TEST_P(Endpoints, MessagesOfAnySizeGoRound) {
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

TEST_P(Endpoints, LinksShareAWireInBothDirections) {
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

TEST_P(Endpoints, ASenderWithoutCreditWaitsAndGoesOn) {
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

TEST_P(Endpoints, AMessageThatCannotBeEndsTheWire) {
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

TEST_P(Endpoints, ACommunicatorThatEndsDoesNotTakeOthersAlong) {
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

TEST_P(Endpoints, GoodByeIsTheLastThatComes) {
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

TEST_P(Endpoints, AWireCanBeShutAtAnyTime) {
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

TEST_P(Endpoints, ARankIsToldByADescriptorAndADoorbell) {
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
struct Lending : TwoEnds {
  explicit Lending(TestNetwork& network)
      : TwoEnds(network),
        out(a.out(0, kLongShape)),
        in(b.in(0, kLongShape)),
        from(kWindow),
        to(kWindow) {
    // So that each knows where the other's ring is.
    EXPECT_TRUE(until([&] { return try_send(out, 0, 8); }));
    EXPECT_TRUE(until([&] { return try_receive(in, 0, 8); }));
  }
  void lend(std::uint64_t message) {
    ASSERT_TRUE(until([&] { return out.sender().ready(kLongBytes); }));
    fill(from.data() + 64, message, kLongBytes);
    ASSERT_TRUE(out.can_lend(from.data() + 64, kLongBytes));
    out.publish_lent(from.data() + 64, static_cast<std::uint32_t>(message), kLongBytes);
    out.rung();
  }
  /// Message `number` of the link, in the window of b.
  void expect(std::uint64_t number, std::uint32_t tag) {
    ASSERT_TRUE(in.can_expect(to.data() + 128, kLongBytes));
    const InLink::Expected message{number, to.data() + 128, tag, kLongBytes};
    in.expect(std::span(&message, 1));
    const auto heard = Clock::now() + 100ms;  // the sender has
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

TEST_P(Endpoints, WhatIsLentLandsWhereItIsExpected) {
  Lending l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  for (std::uint32_t m = 1; m <= 20; ++m) {
    l.expect(m + 1, m);
    l.lend(m);
    ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); })) << l.b.why_closed;
    ASSERT_EQ(l.in.landed(), l.to.data() + 128) << m;
    EXPECT_EQ(first_wrong(l.to.data() + 128, m, kLongBytes), kLongBytes);
    EXPECT_EQ(l.to[127], std::byte{}) << "what lies before";
    EXPECT_EQ(l.to[128 + kLongBytes], std::byte{}) << "what lies behind";
    ASSERT_TRUE(l.until([&] { return l.out.has_sent(m + 1); }));
    l.free_one();
  }
  EXPECT_TRUE(l.until([&] { return l.a.wire.is_flushed(); }));
}

TEST_P(Endpoints, WhatIsNotAsExpectedComesIntoItsSlot) {
  Lending l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  l.expect(2, 77);  // another tag
  l.lend(1);
  ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); }));
  EXPECT_EQ(l.in.landed(), nullptr);
  EXPECT_EQ(first_wrong(l.in.receiver().slot(kLongBytes), 1, kLongBytes), kLongBytes);
  EXPECT_EQ(l.to[128], std::byte{});
  l.free_one();
  // Short messages, and memory in no window where there has to be one, are not reached.
  const Endpoint::Abilities& abilities = l.a.wire.abilities();
  EXPECT_FALSE(l.in.can_expect(l.to.data(), abilities.least_direct - 1));
  if (!abilities.registers) return;
  std::vector<std::byte> other(kLongBytes);
  EXPECT_FALSE(l.in.can_expect(other.data(), kLongBytes));
  EXPECT_FALSE(l.out.can_lend(other.data(), kLongBytes));
}

TEST_P(Endpoints, WhatIsLentIsReadBeforeItIsTakenBack) {
  Lending l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  for (std::uint32_t m = 1; m <= 20; ++m) {
    l.lend(m);
    {
      const Polled peer(l.b.wire);
      l.out.keep(l.from.data(), l.from.data() + l.from.size());
    }
    EXPECT_TRUE(l.a.wire.abilities().cancels || l.out.has_sent(m + 1));
    std::ranges::fill(l.from, std::byte{0xee});
    ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); }));
    EXPECT_EQ(first_wrong(l.in.receiver().slot(kLongBytes), m, kLongBytes), kLongBytes);
    l.free_one();
  }
}

TEST_P(Endpoints, NothingLandsOnceItIsForgotten) {
  Lending l(*network);
  if (!l.a.wire.is_direct()) GTEST_SKIP() << "this network copies all messages";
  l.expect(2, 1);
  {
    const Polled peer(l.a.wire);
    l.in.forget_expected();
  }
  EXPECT_FALSE(l.b.is_closed) << l.b.why_closed;
  l.lend(1);
  ASSERT_TRUE(l.until([&] { return l.in.receiver().ready(); }));
  EXPECT_EQ(l.in.landed(), nullptr);
  EXPECT_EQ(first_wrong(l.in.receiver().slot(kLongBytes), 1, kLongBytes), kLongBytes);
  EXPECT_TRUE(std::ranges::all_of(l.to, [](std::byte b) { return b == std::byte{}; }));
}

TEST_P(Endpoints, APeerThatDoesNotLetGoIsGivenUp) {
  Lending l(*network);
  if (!l.a.wire.abilities().one_sided) GTEST_SKIP() << "this network asks where a payload goes";
  l.expect(2, 1);
  const auto begin = Clock::now();
  l.in.forget_expected();  // a does not look
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_TRUE(l.b.is_closed);
  EXPECT_NE(l.b.why_closed.find("does not let go"), std::string::npos) << l.b.why_closed;
  l.lend(1);
  const auto until = Clock::now() + 200ms;
  while (Clock::now() < until) l.poll();
  EXPECT_TRUE(std::ranges::all_of(l.to, [](std::byte b) { return b == std::byte{}; }))
      << "the device still writes to memory that is not its any more";
}

}  // namespace
}  // namespace tutti
