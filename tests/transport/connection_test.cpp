// A connection by itself: messages of all sizes go round its data without touching each other; and
// a sender finds out how to write long ones.
#include "transport/connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

namespace tutti {
namespace {

struct Ends {
  explicit Ends(ConnectionShape s)
      : memory(s.bytes() / kCacheLine), sender(data(), s), receiver(data(), s) {}
  std::byte* data() { return memory.data()->bytes; }

  struct alignas(kCacheLine) Line {
    std::byte bytes[kCacheLine] = {};
  };
  std::vector<Line> memory;
  Sender sender;
  Receiver receiver;
};

// As many messages under way as there are slots, of sizes from nothing to a whole slot; with data
// for all slots, and for a few.
TEST(Connection, MessagesOfAnySizeKeepApart) {
  for (const ConnectionShape shape :
       {ConnectionShape{2, 1024}, ConnectionShape{3, 4096}, ConnectionShape{8, 1088},
        ConnectionShape{8, 1088, 2}, ConnectionShape{32, 1024, 3}}) {
    Ends ends(shape);
    std::mt19937 random(7);
    std::deque<std::size_t> under_way;
    std::uint64_t sent = 0, received = 0;
    std::size_t most = 0;
    const auto size = [&] {
      const std::size_t kinds[] = {0, kInlineBytes, kInlineBytes + 1, shape.slot_bytes,
                                   random() % (shape.slot_bytes + 1)};
      return kinds[random() % 5];
    };
    for (std::size_t bytes = size(); received < 5000; bytes = size()) {
      if (under_way.size() < shape.full_slots()) {
        ASSERT_TRUE(ends.sender.ready(bytes)) << "so many there is always room for";
      }
      const bool sends = ends.sender.ready(bytes);
      if (sends) {
        std::memset(ends.sender.slot(bytes), static_cast<int>(++sent % 251), bytes);
        ends.sender.publish(0, static_cast<std::uint32_t>(bytes));
        under_way.push_back(bytes);
        most = std::max(most, under_way.size());
      }
      if (sends && random() % 4 != 0) continue;
      ASSERT_TRUE(ends.receiver.ready());
      const std::size_t came = under_way.front();
      under_way.pop_front();
      ASSERT_EQ(ends.receiver.bytes(), came);
      ++received;
      const std::vector<std::byte> expected(came, static_cast<std::byte>(received % 251));
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), ends.receiver.slot(came)))
          << "message " << received;
      ends.receiver.free();
    }
    EXPECT_GT(most, shape.full_slots() - 1);
    EXPECT_LE(most, shape.slots);
  }
}

TEST(Connection, BulkIsWrittenPastTheCacheWhereStoresAreSlow) {
  Ends ends({2, 1024});
  // Counts the messages that go past the cache, when each that does not takes `nanoseconds` a line.
  const auto past_cache = [&](int messages, double nanoseconds) {
    int past = 0;
    for (int i = 0; i < messages; ++i) {
      const Sender::Way way = ends.sender.choose_way();
      EXPECT_FALSE(way.past_cache && way.timed);  // that time would say nothing
      if (way.past_cache) ++past;
      if (way.timed) ends.sender.took(nanoseconds);
    }
    return past;
  };
  EXPECT_EQ(past_cache(1280, 5), 0);
  EXPECT_GT(past_cache(1280, 27), 1200);
  EXPECT_LT(past_cache(1280, 5), 640);  // until a few were timed
  EXPECT_EQ(past_cache(1280, 5), 0);
  // A single interruption changes nothing.
  EXPECT_EQ(past_cache(7, 1e6), 0);
  EXPECT_EQ(past_cache(1280, 5), 0);
  // Of a plan's steps only some may be slow.
  int past = 0;
  for (int i = 0; i < 1280; ++i) past += past_cache(1, i % 2 == 0 ? 5 : 35);
  EXPECT_GT(past, 1100);
}

}  // namespace
}  // namespace tutti
