// Wires over RDMA: against a peer that has gone mad, between processes, one of which is killed, and
// over a link that goes down. Part of verbs_test.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/transport/verbs_fixture.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Clock = std::chrono::steady_clock;

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

// --- Wires between processes ---------------------------------------------------------------------

constexpr ConnectionShape kVerbsShape{8, 65536, 4};

/// Sends back what comes on link 0, until told to end by a message of no bytes.
int echo(const VerbsPort& port, int socket) {
  End end(over(VerbsDevice::open(port), 0));
  meet(end, socket);
  InLink& in = end.in(0, kVerbsShape);
  OutLink& out = end.out(0, kVerbsShape);
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
    OutLink& out = end.out(0, kVerbsShape);
    InLink& in = end.in(0, kVerbsShape);
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
  OutLink& out = end.out(0, kVerbsShape);
  InLink& in = end.in(0, kVerbsShape);
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
