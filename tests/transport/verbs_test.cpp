// RDMA: devices, registered memory, channels, and wires over them. Needs a device; `make test-rdma`
// runs this where there are two.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/support/clean_environment.h"
#include "tests/transport/verbs_ends.h"
#include "transport/verbs/gid.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

// --- Without a device ----------------------------------------------------------------------------

VerbsGid gid(int index, VerbsGid::Type type, std::array<std::uint8_t, 4> head, bool ipv4 = false) {
  VerbsGid g;
  g.index = index;
  g.type = type;
  if (ipv4) {
    g.bytes[10] = g.bytes[11] = 0xff;
    std::ranges::copy(head, g.bytes.begin() + 12);
  } else {
    std::ranges::copy(head, g.bytes.begin());
    g.bytes[15] = 1;
  }
  return g;
}

TEST(VerbsGid, RoceV2OverIpv4IsBest) {
  using enum VerbsGid::Type;
  std::vector<VerbsGid> table{
      gid(0, roce_v1, {10, 0, 0, 1}, true), gid(1, roce_v2, {0xfe, 0x80, 0, 0}),
      gid(2, roce_v1, {0xfd, 0, 0, 1}),     gid(3, roce_v2, {0xfd, 0, 0, 1}),
      gid(5, roce_v2, {10, 0, 0, 1}, true), gid(7, roce_v2, {10, 0, 0, 2}, true)};
  for (const int best : {5, 7, 3, 1, 0, 2}) {
    const VerbsGid* const chosen = choose_gid(table, -1);
    ASSERT_NE(chosen, nullptr);
    EXPECT_EQ(chosen->index, best);
    std::erase_if(table, [&](const VerbsGid& g) { return g.index == best; });
  }
  EXPECT_EQ(choose_gid(table, -1), nullptr);
}

TEST(VerbsGid, OneCanBeAskedFor) {
  using enum VerbsGid::Type;
  const std::vector<VerbsGid> table{gid(0, roce_v2, {10, 0, 0, 1}, true),
                                    gid(3, roce_v1, {10, 0, 0, 1}, true)};
  EXPECT_EQ(choose_gid(table, 3)->index, 3);
  EXPECT_EQ(choose_gid(table, 1), nullptr);
  EXPECT_EQ(gid_text(table[0].bytes), "::ffff:10.0.0.1");
}

// --- Devices and memory --------------------------------------------------------------------------

class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = usable_port();
    if (!found) GTEST_SKIP() << "no RDMA device that could be used (`make test-rdma` has some)";
    port = *found;
  }
  VerbsPort port;
};

TEST_F(Verbs, APortSaysWhatItIs) {
  const std::string line = describe(port);
  EXPECT_NE(line.find(port.device + " port 1: "), std::string::npos) << line;
  EXPECT_NE(line.find("MTU " + std::to_string(port.mtu)), std::string::npos) << line;
  EXPECT_GE(port.mtu, 1024);
  EXPECT_GE(port.most_requests, 256u);
  EXPECT_GE(port.most_bytes, std::size_t{1} << 20);
  if (port.ethernet) {
    EXPECT_NE(line.find("RoCE"), std::string::npos) << line;
    EXPECT_GE(port.gid_index, 0);
  }
}

TEST_F(Verbs, DevicesAreChosenByName) {
  const std::vector<VerbsPort> all = verbs_ports();
  for (const VerbsPort& one : all) {
    const Environment environment(Variables{{"TUTTI_VERBS_DEVICES", one.device}});
    for (const VerbsPort& p : verbs_ports()) EXPECT_EQ(p.device, one.device);
  }
  const Environment environment(Variables{{"TUTTI_VERBS_DEVICES", port.device + ",none_such"}});
  try {
    verbs_ports();
    FAIL() << "a device that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("none_such"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(port.device), std::string::npos) << error.what();
  }
}

TEST_F(Verbs, AGidThatIsNotThereIsAnObjection) {
  const Environment environment(Variables{{"TUTTI_VERBS_GID_INDEX", "255"}});
  const auto ports = verbs_ports();
  ASSERT_FALSE(ports.empty());
  EXPECT_NE(ports[0].objection.find("TUTTI_VERBS_GID_INDEX"), std::string::npos);
  EXPECT_THROW(VerbsDevice::open(ports[0]), Error);
}

TEST_F(Verbs, MemoryThatMayNotBeLockedSaysWhatToDo) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  Child child([&](int) {
    const rlimit limit{65536, 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
      return 3;
    std::vector<std::byte> memory(1 << 20);
    const auto device = VerbsDevice::open(port);
    try {
      const VerbsMemory region(device, memory.data(), memory.size());
      return 4;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("ulimit -l") == std::string::npos) return 5;
      return text.find("1048576 bytes") != std::string::npos ? 0 : 6;
    }
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(Verbs, DmaBufsAreRegisteredWhereTheDeviceCan) {
  const auto device = VerbsDevice::open(port);
  const bool can = can_register_dmabuf(*device);
  // No such dma-buf, either way.
  EXPECT_THROW(VerbsMemory(device, -1, 0, 0, 4096), Error);
  RecordProperty("dmabuf", can);
}

TEST_F(Verbs, AChildOfAProcessWithADeviceCanExit) {
  const auto device = VerbsDevice::open(port);
  auto end = std::make_unique<End>(over(device, 1));
  Child child([&](int) {
    end.reset();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  // It has left the parent's alone.
  End other(over(device, 0));
  end->wire.connect(other.wire.address());
  other.wire.connect(end->wire.address());
  end->wire.start();
  other.wire.start();
}

// --- Channels ------------------------------------------------------------------------------------

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

// --- Wires in one process ------------------------------------------------------------------------

// A peer that knows the job's secret and has gone mad.
TEST_F(Verbs, GarbageEndsTheWireAndNothingElse) {
  const auto device = VerbsDevice::open(port);
  std::mt19937 random(11);
  int closed = 0;
  for (int round = 0; round < 40; ++round) {
    End end(over(device, 0));
    VerbsChannel mad(device, 1);
    end.wire.connect(std::as_bytes(std::span(&mad.address(), 1)));
    VerbsAddress sane;
    std::memcpy(&sane, end.wire.address().data(), sizeof sane);
    mad.connect(sane);
    end.wire.start();
    OutLink& out = end.out(0, {4, 4096});
    for (int i = 0; i < 20; ++i) {
      std::array<std::byte, VerbsChannel::kMostMessage> bytes;
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      // The right lengths and kinds, more often than not.
      const bool controls = random() % 2 != 0;
      const std::size_t right = controls ? 4 + sizeof(Control) : sizeof(MessageHeader);
      const std::size_t length = random() % 4 != 0 ? right : 1 + random() % bytes.size();
      const std::uint32_t link = random() % 3, what = 1 + random() % 10;
      const std::uint32_t kind = controls ? 3U : 1U + random() % 2;
      if (random() % 8 != 0) std::memcpy(bytes.data(), &kind, sizeof kind);
      if (random() % 2 != 0) std::memcpy(bytes.data() + 4, controls ? &what : &link, sizeof link);
      if (random() % 2 != 0 && controls) std::memcpy(bytes.data() + 8, &link, sizeof link);
      if (random() % 3 != 0) {
        mad.send(std::span(bytes).first(length));
      } else {
        mad.write({}, random() % 2 != 0 ? link | static_cast<std::uint32_t>(random() % 4) << 30
                                        : static_cast<std::uint32_t>(random()));
      }
    }
    mad.submit();
    const auto until = Clock::now() + 50ms;
    while (!end.is_closed && Clock::now() < until) {
      end.wire.poll_and_tell();
      try_send(out, 0, 1000);
    }
    closed += end.is_closed ? 1 : 0;
    end.wire.shut();
  }
  EXPECT_GT(closed, 30);
}

// --- Messages that do not go through the rings ---------------------------------------------------

TEST_F(Verbs, WindowsAreRegisteredOnceAndUntilTheyAreFreed) {
  VerbsWindows windows(VerbsDevice::open(port));
  constexpr std::size_t kBytes = 100'000;
  auto* const memory = static_cast<std::byte*>(allocate(kBytes));
  const auto whole = windows.region(memory, kBytes), part = windows.region(memory + 999, 1);
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->local_key(), part->local_key());
  EXPECT_EQ(whole->remote_key(), part->remote_key());
  EXPECT_EQ(windows.count(), 1u);
  std::vector<std::byte> other(kBytes);
  EXPECT_FALSE(windows.region(other.data(), kBytes)) << "in no window";
  EXPECT_FALSE(windows.region(memory + 999, 2 * kBytes)) << "longer than the window";
  deallocate(memory);
  EXPECT_EQ(windows.count(), 0u);
  // Memory that comes to lie at the same address is another window.
  auto* const again = static_cast<std::byte*>(allocate(kBytes));
  EXPECT_EQ(windows.count(), 0u);
  EXPECT_TRUE(windows.region(again, kBytes));
  EXPECT_EQ(windows.count(), 1u);
  deallocate(again);
}

// --- Wires between processes ---------------------------------------------------------------------

constexpr ConnectionShape kShape{8, 65536, 4};

/// Sends back what comes on link 0, until told to end by a message of no bytes.
int echo(const VerbsPort& port, int socket) {
  End end(over(VerbsDevice::open(port), 0));
  meet(end, socket);
  InLink& in = end.in(0, kShape);
  OutLink& out = end.out(0, kShape);
  for (;;) {
    while (!in.receiver().ready()) {
      end.wire.poll();
      if (end.is_closed) return 1;
    }
    const std::size_t bytes = in.receiver().bytes();
    while (!out.sender().ready(bytes)) end.wire.poll_and_tell();
    if (bytes > 0) std::memcpy(out.sender().slot(bytes), in.receiver().slot(bytes), bytes);
    out.sender().publish(in.receiver().tag(), static_cast<std::uint32_t>(bytes));
    out.rung();
    in.receiver().free();
    in.rung();
    if (bytes == 0) break;
  }
  while (!end.wire.is_delivered()) end.wire.poll_and_tell();
  char bye = 0;
  return recv(socket, &bye, 1, 0) == 0 ? 0 : 2;
}

TEST_F(Verbs, TwoProcessesExchange) {
  Child child([&](int socket) { return echo(port, socket); });
  {
    End end(over(VerbsDevice::open(port), 1));
    meet(end, child.socket());
    OutLink& out = end.out(0, kShape);
    InLink& in = end.in(0, kShape);
    constexpr std::uint64_t kMessages = 300;
    std::mt19937 random(5);
    std::vector<std::size_t> sizes(kMessages);
    for (std::size_t& s : sizes) s = 1 + random() % 65536;
    for (std::size_t i = 0; i + 1 < std::size(kMessageSizes); ++i) sizes[i] = kMessageSizes[i + 1];
    sizes.back() = 0;
    std::uint64_t sent = 0, received = 0;
    const auto limit = Clock::now() + 30s;
    while (received < kMessages && !end.is_closed && Clock::now() < limit) {
      while (sent < kMessages && sent - received < 6 && try_send(out, sent, sizes[sent])) ++sent;
      if (try_receive(in, received, sizes[received])) ++received;
      end.wire.poll_and_tell();
    }
    EXPECT_EQ(received, kMessages) << end.why_closed;
    shutdown(child.socket(), SHUT_WR);
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST_F(Verbs, APeerThatIsKilledIsNamedSoon) {
  Child child([&](int socket) { return echo(port, socket); });
  End end(over(VerbsDevice::open(port), 17));
  meet(end, child.socket());
  OutLink& out = end.out(0, kShape);
  InLink& in = end.in(0, kShape);
  const auto limit = Clock::now() + 20s;
  std::uint64_t sent = 0, received = 0;
  while (received < 20 && Clock::now() < limit) {
    if (sent < 20 && try_send(out, sent, 30000)) ++sent;
    if (try_receive(in, received, 30000)) ++received;
    end.wire.poll_and_tell();
  }
  ASSERT_EQ(received, 20u);
  child.kill();
  const auto killed = Clock::now();
  while (!end.is_closed && Clock::now() < killed + 10s) {
    try_send(out, 0, 30000);
    end.wire.poll_and_tell();
  }
  ASSERT_TRUE(end.is_closed);
  // 7 tries of 67 ms, and what an emulated processor takes.
  EXPECT_LT(Clock::now() - killed, 5s);
  EXPECT_NE(end.why_closed.find("rank 17"), std::string::npos) << end.why_closed;
  EXPECT_NE(end.why_closed.find("acknowledges nothing"), std::string::npos) << end.why_closed;
  EXPECT_TRUE(end.wire.is_flushed()) << "nothing will be sent any more";
}

// --- The network ---------------------------------------------------------------------------------

// Where this is the guest: the device rxe1 is on the network device d1.
TEST_F(Verbs, ALinkThatGoesDownIsAnErrorInTime) {
  const auto second = usable_port("rxe1");
  if (!second || access("/sys/class/net/d1", F_OK) != 0) GTEST_SKIP() << "this is not the guest";
  VerbsTestNetwork network(*second);
  TwoEnds ends(network);
  const ConnectionShape shape{8, 65536};
  OutLink& out = ends.a.out(0, shape);
  InLink& in = ends.b.in(0, shape);
  std::uint64_t sent = 0, received = 0;
  const auto exchange = [&] {
    if (try_send(out, sent, 50000)) ++sent;
    if (try_receive(in, received, 50000)) ++received;
  };
  ASSERT_TRUE(ends.until([&] {
    exchange();
    return received >= 10;
  }));
  ASSERT_EQ(std::system("ip link set d1 down"), 0);
  const auto down = Clock::now();
  const bool closed = ends.until(
      [&] {
        exchange();
        return ends.a.is_closed || ends.b.is_closed;
      },
      10s);
  EXPECT_TRUE(closed);
  EXPECT_LT(Clock::now() - down, 5s);
  const std::string why = ends.a.why_closed + ends.b.why_closed;
  EXPECT_NE(why.find("over rxe1"), std::string::npos) << why;
  EXPECT_NE(why.find("its port is"), std::string::npos) << why;
  EXPECT_FALSE(usable_port("rxe1"));
  ASSERT_EQ(std::system("ip link set d1 up"), 0);
  // When it is back, new connections work.
  ASSERT_TRUE(ends.until([&] { return usable_port("rxe1").has_value(); }));
  VerbsTestNetwork network_again(*usable_port("rxe1"));
  TwoEnds again(network_again);
  OutLink& out_again = again.a.out(0, shape);
  InLink& in_again = again.b.in(0, shape);
  ASSERT_TRUE(again.until([&] { return try_send(out_again, 0, 50000); }));
  ASSERT_TRUE(again.until([&] { return try_receive(in_again, 0, 50000); }));
}

}  // namespace
}  // namespace tutti
