// What a network has to keep to (endpoint.h), claim by claim; wire_test.cpp has what a wire over it
// has to. A new network is one that passes: give it a TestNetwork and a line in networks.cpp.
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

class Endpoints : public OfNetworks {};
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
      for (int stripe = 0; stripe < network.stripes(); ++stripe) {
        TcpStreams one(false);
        for (int s = 0; s < 2; ++s) e[s]->add_stripe(std::move(one.first[s]));
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
  std::vector<std::byte> address[2];
  // An endpoint keeps them as long as its network may read them.
  std::shared_ptr<std::vector<std::byte>[]> kept = std::make_shared<std::vector<std::byte>[]>(2);
  std::vector<std::byte>* const window = kept.get();
  std::shared_ptr<MemoryRegion> region[2];
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
      fill(p.window[s].data() + at(number), number + 1000 * s, sizes[number]);
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
  // Each byte is in one of the two places; of several streams, each goes on by itself.
  std::size_t wrong = 0, there = 0;
  for (std::size_t i = 0; i < kBytes; ++i) {
    wrong += to[i] != pattern(5, i) && then[i] != pattern(5, i) ? 1 : 0;
    there += to[i] != std::byte{} ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(there, 0u);
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

// A peer closes when its kernel has heard that all has come; what lies there unread makes the
// socket a broken one, which this side may notice first as it sends.
TEST_P(Endpoints, WhatHasComeIsReadAlthoughThePeerHasClosed) {
  constexpr std::uint64_t kMessages = 6;
  // All of them fit into sockets. A long one travels on the second connection.
  const auto bytes_of = [](std::uint64_t number) { return number == 3 ? 40'000 : 4000; };
  Pair p(*network);
  if (!p.abilities().confirms) GTEST_SKIP() << "this network does not say what has come";
  for (std::size_t i = 0; i < Pair::kWindow; ++i) {
    p.window[0][i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  std::size_t at = 0;
  for (std::uint64_t number = 1; number <= kMessages; ++number) {
    const std::size_t bytes = bytes_of(number);
    ASSERT_TRUE(p.put(0, number, bytes, at));
    at += bytes;
  }
  const auto end = Clock::now() + 10s;
  while (!p.e[0]->is_flushed() || !p.e[0]->is_delivered()) {
    ASSERT_LT(Clock::now(), end) << "not all of them fit into sockets";
    p.e[0]->poll();
    p.e[0]->submit();
  }
  for (std::uint64_t number = 1; number <= 3; ++number) {
    p.put(1, number, 8);  // the first is one that side 0 does not read any more
    if (number == 1) p.e[0]->close(true);
    std::this_thread::sleep_for(1ms);
  }
  p.sink[0].is_closed = true;
  ASSERT_TRUE(p.until([&] { return p.sink[1].is_closed; }));
  at = 0;
  for (std::uint64_t number = 1; number <= kMessages; ++number) {
    const std::size_t bytes = bytes_of(number);
    ASSERT_TRUE(p.has_come(1, number)) << number;
    EXPECT_TRUE(
        std::equal(p.window[0].data() + at, p.window[0].data() + at + bytes, p.came(1, number, at)))
        << number;
    at += bytes;
  }
}

}  // namespace
}  // namespace tutti
