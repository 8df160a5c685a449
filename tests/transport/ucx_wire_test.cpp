// A wire over UCX whose peer dies in the middle of a message: nobody waits for memory that the peer
// was to write.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/host/doorbell.h"
#include "transport/network/wire.h"
#include "transport/network/wire_choice.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kLongMessage = 300'000;  // UCX asks the receiver before it sends so much
constexpr ConnectionShape kShape{8, 512 << 10, 4};

/// One end. Only poll() drives it.
struct UcxEnd final : Wire::Owner {
  explicit UcxEnd(int peer)
      : maker(make_ucx_endpoints()),
        wire(
            *this, [&](Endpoint::Sink& sink) { return maker->make(sink, peer, -1); },
            maker->lock()) {}
  void on_left(std::uint64_t) override {}
  void on_closed(const std::string& why, bool) override { why_closed = why; }
  void on_polled() override {}

  Doorbell doorbell{};
  std::string why_closed;
  std::shared_ptr<EndpointMaker> maker;
  Wire wire;
};

bool until(const std::function<bool()>& condition) {
  const auto end = Clock::now() + 20s;
  while (!condition()) {
    if (Clock::now() > end) return false;
  }
  return true;
}

void publish(OutLink& out, std::uint32_t tag, std::uint32_t bytes) {
  std::byte* const slot = out.sender().slot(bytes);
  for (std::uint32_t i = 0; i < bytes; ++i) slot[i] = static_cast<std::byte>(i * 7 + tag);
  out.sender().publish(tag, bytes);
  out.rung();
}

TEST(UcxWire, MemoryThatADeadPeerWasToWriteIsNotWaitedFor) {
  if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
  setenv("TUTTI_UCX_TLS", "tcp", 1);
  UcxEnd a(1), b(0);
  a.wire.connect(b.wire.address());
  b.wire.connect(a.wire.address());
  a.wire.start();
  b.wire.start();
  OutLink& out = a.wire.out({1, 0}, kShape, a.doorbell);
  InLink& in = b.wire.in({1, 0}, kShape, b.doorbell);
  publish(out, 1, 8);
  ASSERT_TRUE(until([&] {
    a.wire.poll_and_tell();
    b.wire.poll_and_tell();
    return in.receiver().ready();
  }));
  in.receiver().free();
  in.rung();

  std::vector<std::byte> to(kLongMessage);
  const InLink::PostedReceive message{2, to.data(), 2, kLongMessage};
  in.post(std::span(&message, 1));
  publish(out, 2, kLongMessage);
  // a announces the message, and is never heard of again once b has begun to fetch it: b is then at
  // something for as long as a does nothing.
  ASSERT_TRUE(until([&] {
    a.wire.poll();
    const auto end = Clock::now() + 50ms;
    while (Clock::now() < end) b.wire.poll();
    return !b.wire.is_flushed();
  }));
  ASSERT_FALSE(in.receiver().ready());

  // Else b would wait for 2 s, and then give the peer up, and UCX with it.
  b.wire.peer_ended();
  in.withdraw_receives();
  EXPECT_FALSE(b.wire.is_flushed()) << "there was nothing to wait for";
  EXPECT_EQ(b.why_closed, "");
}

}  // namespace
}  // namespace tutti
