// RDMA channels: what is written is there when its notice is, in order, and no more than a channel
// can hold; and what ends a connection. Part of verbs_test.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/transport/verbs_fixture.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

struct Channels {
  explicit Channels(const VerbsPort& port, const VerbsOptions& options = {})
      : device(VerbsDevice::open(port)),
        memory(1 << 20),
        region(device, memory.data(), memory.size()),
        a(device, 1, options),
        b(device, 0, options) {
    a.connect(b.address());
    b.connect(a.address());
  }
  VerbsWrite to_second_half(std::size_t from, std::size_t bytes) const {
    return {memory.data() + from, region.local_key(),
            reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size() / 2 + from,
            region.remote_key(), bytes};
  }
  /// Writes `bytes` of the first half to the second, and has the peer notice. False: no room.
  bool write(std::size_t bytes, std::uint32_t notice) {
    if (!a.has_room(bytes, 1)) return false;
    a.write(to_second_half(0, bytes), notice);
    return true;
  }
  bool send(const std::string& text) {
    if (!a.has_room(0, 1)) return false;
    a.send(std::as_bytes(std::span(text)));
    return true;
  }
  /// The next thing that came to `channel`, within a few seconds.
  static VerbsEvent next(VerbsChannel& channel) {
    const auto end = Clock::now() + 10s;
    while (Clock::now() < end) {
      const auto events = channel.poll();
      if (!events.empty()) {
        EXPECT_EQ(events.size(), 1u);
        return events.front();
      }
    }
    throw Error(ErrorCode::timed_out, "nothing came");
  }

  std::shared_ptr<VerbsDevice> device;
  std::vector<std::byte> memory;
  VerbsMemory region;
  VerbsChannel a, b;
};

TEST_F(Verbs, WhatIsWrittenIsThereWhenItsNoticeIs) {
  Channels c(port);
  for (std::uint32_t round = 1; round <= 20; ++round) {
    const std::size_t bytes = round * 10'007 % 400'000;
    fill(c.memory.data(), round, bytes);
    ASSERT_TRUE(c.write(bytes, round));
    c.a.submit();
    EXPECT_EQ(Channels::next(c.b).notice, round);
    EXPECT_EQ(first_wrong(c.memory.data() + c.memory.size() / 2, round, bytes), bytes);
  }
}

TEST_F(Verbs, MessagesAndNoticesKeepTheirOrder) {
  Channels c(port);
  std::vector<std::string> got;
  std::uint32_t sent = 0;
  const auto end = Clock::now() + 20s;
  while (got.size() < 2000 && Clock::now() < end) {
    while (sent < 2000) {
      const std::string text = std::to_string(sent);
      const bool taken = sent % 3 == 0 ? c.send(text) : c.write(0, sent);
      if (!taken) break;
      ++sent;
    }
    c.a.submit();
    c.a.poll();
    for (const VerbsEvent& event : c.b.poll()) {
      got.push_back(event.message.empty()
                        ? std::to_string(event.notice)
                        : std::string(reinterpret_cast<const char*>(event.message.data()),
                                      event.message.size()));
    }
  }
  ASSERT_EQ(got.size(), 2000u);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], std::to_string(i));
}

TEST_F(Verbs, AChannelTakesNoMoreThanItCanHold) {
  VerbsOptions options;
  options.send_depth = 16;
  options.receive_depth = 4;
  Channels c(port, options);
  std::uint32_t sent = 0;
  while (c.write(0, sent)) ++sent;
  EXPECT_EQ(sent, c.a.pair().options().send_depth - 1);
  c.a.submit();
  EXPECT_LT(c.a.completed(), c.a.submitted());
  // More than there are receive requests: they wait in the device, and all come.
  for (std::uint32_t i = 0; i < sent;) {
    const auto end = Clock::now() + 10s;
    while (Clock::now() < end) {
      const auto events = c.b.poll();
      for (const VerbsEvent& event : events) EXPECT_EQ(event.notice, i++);
      if (!events.empty()) break;
    }
    ASSERT_LT(Clock::now(), end);
  }
  const auto end = Clock::now() + 10s;
  while (c.a.completed() < c.a.submitted() && Clock::now() < end) {
    c.a.mark();
    c.a.poll();
  }
  EXPECT_EQ(c.a.completed(), c.a.submitted());
  EXPECT_TRUE(c.write(0, sent));
}

TEST_F(Verbs, AWriteThatThePeerDoesNotAllowEndsTheConnection) {
  Channels c(port);
  const std::string ok = "ok";
  ASSERT_TRUE(c.send(ok));
  VerbsWrite bad = c.to_second_half(0, 64);
  bad.remote_key ^= 0x5a5a00;
  c.a.write(bad, 7);
  ASSERT_TRUE(c.send(ok));
  c.a.submit();
  const auto end = Clock::now() + 5s;
  std::string text;
  while (text.empty() && Clock::now() < end) {
    try {
      c.a.poll();
    } catch (const Error& error) {
      text = error.what();
      EXPECT_EQ(error.code(), ErrorCode::internal);
      EXPECT_EQ(error.rank(), 1);
    }
  }
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find(port.device), std::string::npos) << text;
  EXPECT_NE(text.find("remote access error"), std::string::npos) << text;
  EXPECT_THROW(c.a.poll(), Error) << "it is over for good";
  EXPECT_THROW(c.send(ok), Error);
  // What came before it, came; nothing behind it.
  EXPECT_EQ(Channels::next(c.b).message.size(), 2u);
  EXPECT_TRUE(c.a.stop_and_drain(5s));
}

TEST_F(Verbs, AChannelThatIsStoppedLetsGoOfAll) {
  Channels c(port);
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(c.write(4096, i));
  }
  c.a.submit();
  EXPECT_TRUE(c.a.stop_and_drain(10s));
  EXPECT_THROW(c.a.write({}, 1), Error);
}

TEST_F(Verbs, AnAddressThatCannotBeIsRefused) {
  const auto device = VerbsDevice::open(port);
  VerbsChannel channel(device, 1);
  const VerbsChannel other(device, 0);
  const auto refused = [&](auto change) {
    VerbsAddress address = other.address();
    change(address);
    try {
      channel.connect(address);
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::mismatch;
    }
  };
  EXPECT_TRUE(refused([](VerbsAddress& a) { a.magic = 0; }));
  EXPECT_TRUE(refused([](VerbsAddress& a) { a.number = 0xffffffff; }));
  EXPECT_TRUE(refused([](VerbsAddress& a) { a.first_packet = 0x1000000; }));
  EXPECT_TRUE(refused([](VerbsAddress& a) { a.mtu = 0; }));
  EXPECT_TRUE(refused([](VerbsAddress& a) { a.ethernet ^= 1; }));
  channel.connect(other.address());
}

}  // namespace
}  // namespace tutti
