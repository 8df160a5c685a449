// Messages of kernels whose data lie in memory of GPUs that network cards reach: two links, with
// this test in the place of the kernels. No processor can touch that memory here (card_gpu.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/device/card_gpu.h"
#include "tests/device/proxy_rank.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using namespace test;

constexpr std::uint64_t kGroup = 77;
constexpr ConnectionShape kFourSlots{4, kSlotBytes};

/// What an end can do.
enum class Can : std::uint8_t { both, both_with_flush, send, nothing };

/// A rank, its GPU, and its end of the wire.
class Side {
 public:
  Side(int number, End& end, Can can) : gpu(std::make_shared<CardGpu>()), end_(end), rank_(number) {
    if (can == Can::both_with_flush) gpu->order = RdmaOrder::with_flush;
    if (can == Can::send) gpu->order = RdmaOrder::unknown;
    gpu->has_dma_bufs = can != Can::nothing;
    GpuLinks::Ends ends{&end.wire, kGroup, key_of(number), key_of(1 - number), {}, {}};
    for (std::uint64_t c = 0; c < kChannels; ++c) {
      ends.out.push_back(&end.out(c, kFourSlots, kGroup));
      ends.in.push_back(&end.in(c, kFourSlots, kGroup));
    }
    out = ends.out;
    ends_ = std::move(ends);
  }
  /// Says what this side can do, and has a rank from then on.
  void begin() {
    LinkEnds links;
    for (OutLink* const link : ends_.out) links.outgoing.push_back({&link->sender(), link});
    for (InLink* const link : ends_.in) links.incoming.push_back({&link->receiver(), link});
    // Two channels share the slots.
    const device::SegmentShape shape = test_shape(64 << 10);
    links_ = std::make_shared<GpuLinks>(gpu, shape, ends_, rank_, 1 - rank_);
    const auto data_of = [&](const std::vector<std::byte*>& first) -> Rank::DataOf {
      if (first.empty()) return {};
      return [this, first, shape](std::uint32_t channel, std::uint32_t slot) {
        return gpu->seen(first[channel] + std::size_t{slot} * shape.simple_bytes);
      };
    };
    rank.emplace(shape, rank_, std::move(links), links_, data_of(links_->out_slots()),
                 data_of(links_->in_slots()));
  }
  bool sends() const { return links_->sends(); }
  bool receives() const { return links_->receives(); }
  /// As a team that ends.
  void leave() {
    rank.reset();
    links_.reset();
    end_.wire.close(kGroup);
  }

  std::shared_ptr<CardGpu> gpu;
  std::optional<Rank> rank;
  std::vector<OutLink*> out;

 private:
  static std::uint64_t key_of(int number) { return 1000 + static_cast<std::uint64_t>(number); }

  End& end_;
  int rank_;
  GpuLinks::Ends ends_;
  std::shared_ptr<GpuLinks> links_;
};

struct GpuPair {
  explicit GpuPair(Can first_can = Can::both, Can second_can = Can::both)
      : first(0, ends.a, first_can), second(1, ends.b, second_can) {}
  ~GpuPair() { card_settings().holds = false; }
  void begin() {
    first.begin();
    second.begin();
  }
  void advance() {
    first.rank->link->advance();
    second.rank->link->advance();
  }
  template <class Holds>
  bool eventually(const Holds& holds) {
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (!holds() && std::chrono::steady_clock::now() < end) {
      advance();
      ends.poll();  // as a network's own thread
    }
    return holds();
  }

  /// The ends begin, and hear from each other.
  void meet() {
    begin();
    first.rank->send(0, 1, Bytes(8, std::byte{1}));
    ASSERT_TRUE(eventually([&] { return second.rank->can_receive(0, 1); }));
    second.rank->receive(0, 8);
  }

  CardNetwork network;
  TwoEnds ends{network};
  Side first, second;
};

class DeviceGpuLinks : public ::testing::TestWithParam<std::tuple<Can, Can>> {};
constexpr Can kAll[] = {Can::both, Can::both_with_flush, Can::send, Can::nothing};
std::string name_of(Can can) {
  const char* const names[] = {"Both", "BothWithFlush", "Send", "Nothing"};
  return names[static_cast<int>(can)];
}
INSTANTIATE_TEST_SUITE_P(Of, DeviceGpuLinks,
                         ::testing::Combine(::testing::ValuesIn(kAll), ::testing::ValuesIn(kAll)),
                         [](const auto& param) {
                           return name_of(std::get<0>(param.param)) + "And" +
                                  name_of(std::get<1>(param.param));
                         });

TEST_P(DeviceGpuLinks, MessagesArriveInOrderAndWhole) {
  const auto [first_can, second_can] = GetParam();
  GpuPair pair(first_can, second_can);
  pair.begin();
  const auto receives = [](Can can) { return can == Can::both || can == Can::both_with_flush; };
  EXPECT_EQ(pair.first.sends(), first_can != Can::nothing);
  EXPECT_EQ(pair.first.receives(), receives(first_can));
  const CardCounts before = card_counts();
  std::mt19937 random(5);
  constexpr std::uint64_t kMessages = 1500;
  const auto done = [](const Rank& r) {
    return std::ranges::all_of(r.received, [](std::uint64_t n) { return n == kMessages; });
  };
  while (!done(*pair.first.rank) || !done(*pair.second.rank)) {
    const std::uint32_t channel = random() % kChannels;
    switch (random() % 4) {
      case 0:
        step(*pair.first.rank, 0, channel, kMessages);
        break;
      case 1:
        step(*pair.second.rank, 1, channel, kMessages);
        break;
      case 2:
        pair.first.rank->link->advance();
        break;
      default:
        pair.second.rank->link->advance();
    }
    if (HasFatalFailure()) return;
    ASSERT_FALSE(pair.ends.a.is_closed) << pair.ends.a.why_closed;
    ASSERT_FALSE(pair.ends.b.is_closed) << pair.ends.b.why_closed;
  }
  EXPECT_TRUE(pair.eventually(
      [&] { return pair.first.rank->link->is_flushed() && pair.second.rank->link->is_flushed(); }));
  // None went another way.
  const auto with_data = [](int rank) {
    std::uint64_t count = 0;
    for (std::uint32_t c = 0; c < kChannels; ++c) {
      for (std::uint64_t n = 0; n < kMessages; ++n) count += message(rank, c, n).empty() ? 0 : 1;
    }
    return count;
  };
  const CardCounts after = card_counts();
  EXPECT_EQ(after.out_of_gpu - before.out_of_gpu,
            (first_can != Can::nothing ? with_data(0) : 0) +
                (second_can != Can::nothing ? with_data(1) : 0));
  EXPECT_EQ(after.into_gpu - before.into_gpu,
            (receives(first_can) ? with_data(1) : 0) + (receives(second_can) ? with_data(0) : 0));
  if (first_can == Can::both_with_flush) {
    EXPECT_GE(pair.first.gpu->flushes, 1000);
  }
  if (first_can == Can::both) {
    EXPECT_EQ(pair.first.gpu->flushes, 0);
  }
}

TEST(DeviceGpuLinksAlone, ASlotIsTheKernelsAgainOnceItHasLeft) {
  GpuPair pair;
  ASSERT_NO_FATAL_FAILURE(pair.meet());
  card_settings().holds = true;
  for (std::uint32_t m = 0; m < 3; ++m) pair.first.rank->send(0, m, Bytes(100, std::byte{7}));
  pair.first.rank->send(0, 3, {});  // nothing lies in its slot, but it comes after the others
  for (int i = 0; i < 100; ++i) pair.advance();
  EXPECT_FALSE(pair.first.rank->can_send(0));
  EXPECT_FALSE(pair.first.rank->link->is_flushed());
  card_settings().holds = false;
  EXPECT_TRUE(pair.eventually([&] { return pair.first.rank->can_send(0); }));
  EXPECT_TRUE(pair.eventually([&] { return pair.first.rank->link->is_flushed(); }));
}

TEST(DeviceGpuLinksAlone, WhatTheKernelDoesNotTakeStaysInItsSlot) {
  GpuPair pair;
  pair.begin();
  const auto data = [](std::uint32_t m) { return Bytes(1000, std::byte(m + 1)); };
  // Until nothing is taken any more: the receiver's slots are the GPU's, and no others.
  std::uint32_t sent = 0;
  for (int idle = 0; idle < 300; ++idle) {
    if (pair.first.rank->can_send(0)) {
      pair.first.rank->send(0, sent, data(sent));
      ++sent;
      idle = 0;
    }
    pair.advance();
  }
  EXPECT_EQ(sent, 4U + 4U);
  for (std::uint32_t m = 0; m < sent; ++m) {
    ASSERT_TRUE(pair.eventually([&] { return pair.second.rank->can_receive(0, m); }));
    EXPECT_EQ(pair.second.rank->receive(0, 1000), data(m)) << m;
  }
  EXPECT_TRUE(pair.eventually([&] { return pair.first.rank->link->is_flushed(); }));
}

TEST(DeviceGpuLinksAlone, NothingIsSentBeforeThePeerHasSaidWhereItTakesIt) {
  GpuPair pair;
  pair.first.begin();
  pair.first.rank->send(0, 5, Bytes(100, std::byte{3}));
  for (int i = 0; i < 200; ++i) {
    pair.first.rank->link->advance();
    pair.ends.poll();
  }
  EXPECT_EQ(pair.first.out[0]->sender().sent(), 0U);
  EXPECT_FALSE(pair.first.rank->link->is_flushed());
  pair.second.begin();
  ASSERT_TRUE(pair.eventually([&] { return pair.second.rank->can_receive(0, 5); }));
  EXPECT_EQ(pair.second.rank->receive(0, 100), Bytes(100, std::byte{3}));
}

TEST(DeviceGpuLinksAlone, AMessageInMemoryOfTheHostIsRefusedWhereTheGpuLooks) {
  for (const std::uint32_t bytes : {8U, 100U}) {
    GpuPair pair;
    pair.begin();
    Sender& sender = pair.first.out[0]->sender();
    ASSERT_TRUE(sender.ready(bytes));
    std::fill_n(sender.slot(bytes), bytes, std::byte{1});
    sender.publish(0, bytes);
    pair.first.out[0]->rung();
    try {
      pair.eventually([] { return false; });
      ADD_FAILURE() << bytes << " bytes were taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::internal);
      EXPECT_EQ(e.rank(), 0);
    }
  }
}

// The memory stays as long as a card may use it, and no longer.
TEST(DeviceGpuLinksAlone, ARankThatLeavesKeepsItsMemoryUntilItsPeerHasLeft) {
  GpuPair pair;
  pair.begin();
  pair.first.rank->send(0, 1, Bytes(8, std::byte{1}));
  ASSERT_TRUE(pair.eventually([&] { return pair.second.rank->can_receive(0, 1); }));
  card_settings().holds = true;
  pair.first.rank->send(0, 2, Bytes(100, std::byte{2}));
  for (int i = 0; i < 10; ++i) pair.advance();
  pair.second.leave();
  EXPECT_EQ(pair.second.gpu->allocations(), 1U) << "what is received may yet be written";
  pair.first.leave();  // with a message that the card has yet to read
  EXPECT_EQ(pair.first.gpu->allocations(), 2U);
  card_settings().holds = false;  // a card that uses memory it does not know ends the process
  EXPECT_TRUE(pair.ends.until(
      [&] { return pair.first.gpu->allocations() == 0 && pair.second.gpu->allocations() == 0; }));
}

TEST(DeviceGpuLinksAlone, AConnectionThatBreaksLeavesNothingBehind) {
  GpuPair pair;
  ASSERT_NO_FATAL_FAILURE(pair.meet());
  card_settings().holds = true;
  for (std::uint32_t m = 0; m < 4; ++m) pair.first.rank->send(0, m, Bytes(4000, std::byte{7}));
  for (int i = 0; i < 10; ++i) pair.advance();
  pair.ends.b.wire.shut();
  card_settings().holds = false;
  for (int i = 0; i < 100; ++i) pair.advance();
  EXPECT_TRUE(pair.ends.a.is_closed);
  EXPECT_FALSE(pair.second.rank->can_receive(0, 0));
  pair.first.leave();
  pair.second.leave();
  EXPECT_EQ(pair.second.gpu->allocations(), 0U);
}

TEST(DeviceGpuLinksAlone, ACardThatKnowsNoGpusLeavesDataToTheHost) {
  card_settings().has_device_memory = false;
  {
    GpuPair pair;
    pair.begin();
    EXPECT_FALSE(pair.first.sends() || pair.first.receives());
    EXPECT_EQ(pair.first.gpu->allocations(), 0U);
    pair.first.rank->send(0, 1, Bytes(100, std::byte{4}));
    ASSERT_TRUE(pair.eventually([&] { return pair.second.rank->can_receive(0, 1); }));
    EXPECT_EQ(pair.second.rank->receive(0, 100), Bytes(100, std::byte{4}));
  }
  card_settings().has_device_memory = true;
}

}  // namespace
}  // namespace tutti
