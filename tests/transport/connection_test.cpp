// A connection by itself: messages of all sizes go round its data without touching each other;
// ranks that send to each other exchange cells; and a sender finds out how to write long ones.
#include "transport/host/connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace tutti {
namespace {

struct Ends {
  explicit Ends(ConnectionShape s, Places places = Places::mapped)
      : memory(s.bytes() / kCacheLine), sender(data(), s, places), receiver(data(), s, places) {}
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
void messages_of_any_size_keep_apart(Places places) {
  for (const ConnectionShape shape :
       {ConnectionShape{2, 1024}, ConnectionShape{3, 4096}, ConnectionShape{8, 1088},
        ConnectionShape{8, 1088, 2}, ConnectionShape{32, 1024, 3}, ConnectionShape{32, 32768, 5}}) {
    Ends ends(shape, places);
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

TEST(Connection, MessagesOfAnySizeKeepApart) { messages_of_any_size_keep_apart(Places::mapped); }
TEST(Connection, MessagesOfAnySizeKeepApartWhoseCellsHaveFixedPlaces) {
  messages_of_any_size_keep_apart(Places::fixed);
}

// Of cells with fixed places, short messages use few pages, however many of them there were; and
// there is room for as many as there are slots. Long ones use all that there is.
TEST(Connection, ShortMessagesUseFewPages) {
  constexpr ConnectionShape kShape{32, std::size_t{512} << 10, 16};
  for (const std::size_t bytes : {64UL, 512UL, 4096UL, 16000UL, std::size_t{64} << 10}) {
    Ends ends(kShape, Places::fixed);
    std::set<std::size_t> pages;
    for (int round = 0; round < 1000; ++round) {
      std::size_t under_way = 0;
      for (; under_way < (round % 2 == 0 ? kShape.slots : 1) && ends.sender.ready(bytes);
           ++under_way) {
        const auto at = static_cast<std::size_t>(ends.sender.slot(bytes) - ends.data());
        for (std::size_t b = 0; b < bytes; b += kPageBytes) pages.insert((at + b) / kPageBytes);
        pages.insert((at + bytes - 1) / kPageBytes);
        ends.sender.publish(0, static_cast<std::uint32_t>(bytes));
      }
      EXPECT_EQ(under_way, round % 2 == 0 ? kShape.slots : 1) << bytes << " bytes";
      for (; under_way > 0; --under_way) {
        ASSERT_TRUE(ends.receiver.ready());
        ends.receiver.free();
      }
    }
    const std::size_t cells = kShape.cells(), in_cell = kShape.most_in_cell();
    if (bytes < kRunBytes) {
      EXPECT_LE(pages.size(), cells * (in_cell * bytes / kPageBytes + 2)) << bytes << " bytes";
    } else {
      EXPECT_GE(pages.size(), kShape.data_bytes() / kPageBytes) << bytes << " bytes";
    }
  }
}

/// Two ranks and the connections between them, there and back.
struct BothWays {
  explicit BothWays(ConnectionShape s) : to{Ends(s), Ends(s)} {
    for (std::size_t from : {0U, 1U}) {
      to[from].sender = Sender(to[from].data(), to[1 - from].data(), s);
      to[from].receiver = Receiver(to[from].data(), to[1 - from].data(), s);
    }
    to[0].receiver.exchange_with(to[1].sender);
    to[1].receiver.exchange_with(to[0].sender);
  }
  /// Whether the next message from rank `from` would lie in the memory of the connection back.
  bool is_exchanged(std::size_t from, std::size_t bytes) {
    const std::vector<Ends::Line>& back = to[1 - from].memory;
    const std::byte* const at = to[from].sender.slot(bytes);
    return at >= back.front().bytes && at <= back.back().bytes;
  }
  Ends to[2];  // by sender
};

// Both send, one more than the other for a while, and answer what they have not received yet.
TEST(Connection, RanksThatSendToEachOtherExchangeCells) {
  for (const ConnectionShape shape :
       {ConnectionShape{1, 64}, ConnectionShape{2, 1024}, ConnectionShape{3, 4096},
        ConnectionShape{8, 1088}, ConnectionShape{8, 1088, 2}, ConnectionShape{32, 1024, 3},
        ConnectionShape{32, 1024, 16}, ConnectionShape{8, 8192}, ConnectionShape{8, 8192, 2},
        ConnectionShape{32, 16384, 8}}) {
    BothWays pair(shape);
    std::mt19937 random(11);
    struct Way {
      std::deque<std::size_t> under_way;
      std::uint64_t sent = 0, received = 0, exchanged = 0;
    } ways[2];
    const auto value = [](std::size_t from, std::uint64_t number) {
      return static_cast<std::byte>(number % 113 + 113 * from);
    };
    while (ways[0].received + ways[1].received < 20000) {
      // Of a hundred, one rank sends mostly, then the other, then both.
      const std::uint64_t phase = (ways[0].sent + ways[1].sent) / 100 % 3;
      const std::size_t from = random() % 8 == 0 || phase == 2 ? random() % 2 : phase;
      Way& way = ways[from];
      Ends& ends = pair.to[from];
      const std::size_t bytes = random() % 3 == 0 ? shape.slot_bytes : random() % shape.slot_bytes;
      if (way.under_way.size() < shape.full_slots()) {
        ASSERT_TRUE(ends.sender.ready(bytes));
      }
      // As a step does: the message that it sends is written before the one that it takes is freed.
      const bool sends = ends.sender.ready(bytes);
      if (sends) {
        if (bytes > kInlineBytes && pair.is_exchanged(from, bytes)) ++way.exchanged;
        std::memset(ends.sender.slot(bytes), static_cast<int>(value(from, ++way.sent)), bytes);
      }
      Way& other = ways[1 - from];
      if (!other.under_way.empty() && (!sends || random() % 2 == 0)) {
        Receiver& receiver = pair.to[1 - from].receiver;
        ASSERT_TRUE(receiver.ready());
        const std::size_t came = other.under_way.front();
        other.under_way.pop_front();
        ASSERT_EQ(receiver.bytes(), came);
        const std::vector<std::byte> expected(came, value(1 - from, ++other.received));
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), receiver.slot(came)))
            << "message " << other.received << " of rank " << 1 - from;
        receiver.free();
      }
      if (sends) {
        ends.sender.publish(0, static_cast<std::uint32_t>(bytes));
        way.under_way.push_back(bytes);
      }
    }
    for (const Way& way : ways) {
      // Of three cells none beyond the next is ever free.
      if (shape.cells() > 3) {
        EXPECT_GT(way.exchanged, way.sent / 10);
      }
      EXPECT_LT(way.exchanged, way.sent);
    }
  }
}

// The same by two threads, which send bursts and receive in between, for so long that all cells
// come into use one by one.
TEST(Connection, TwoThreadsExchangeCells) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    const ConnectionShape shape =
        seed % 2 == 0 ? ConnectionShape{8, 1024} : ConnectionShape{32, 4096, 5};
    Ends memory[] = {Ends(shape), Ends(shape)};
    constexpr std::uint64_t kMessages = 500;
    const auto value = [](std::size_t from, std::uint64_t number) {
      return static_cast<std::byte>((number * 7 + from) % 251);
    };
    std::atomic<int> wrong{0};
    const auto run = [&](std::size_t rank) {
      std::byte* const out = memory[rank].data();
      std::byte* const in = memory[1 - rank].data();
      Sender sender(out, in, shape);
      Receiver receiver(in, out, shape);
      receiver.exchange_with(sender);
      std::mt19937 own(2 * seed), others(2 * seed), bursts(77 * seed + static_cast<unsigned>(rank));
      const auto size = [&](std::mt19937& random) {
        return random() % 4 == 0 ? shape.slot_bytes : random() % shape.slot_bytes + 1;
      };
      std::size_t next = size(own), expected = size(others);
      std::uint64_t sent = 0, received = 0;
      const auto receive = [&] {
        if (received == kMessages || !receiver.ready()) return false;
        const std::byte* const data = receiver.slot(expected);
        const std::byte should = value(1 - rank, received++);
        if (receiver.bytes() != expected ||
            std::any_of(data, data + expected, [&](std::byte b) { return b != should; })) {
          ++wrong;
        }
        receiver.free();
        expected = size(others);
        return true;
      };
      while (wrong == 0 && (sent < kMessages || received < kMessages)) {
        for (auto n = bursts() % 40; n > 0 && sent < kMessages && sender.ready(next); --n) {
          std::memset(sender.slot(next), static_cast<int>(value(rank, sent++)), next);
          if (n % 2 == 0) receive();
          sender.publish(0, static_cast<std::uint32_t>(next));
          next = size(own);
        }
        for (auto n = bursts() % 40; n > 0 && receive(); --n) {
        }
        std::this_thread::yield();
      }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    ASSERT_EQ(wrong, 0) << "seed " << seed;
  }
}

// A rank that sends little takes few cells in exchange.
TEST(Connection, AOneWayStreamStaysInItsOwnCells) {
  for (const int answers : {0, 1, 2}) {
    BothWays pair({8, 1024});
    std::set<const std::byte*> exchanged;
    for (int i = 0; i < 100; ++i) {
      for (const std::size_t from : {0U, 1U}) {
        if (from == 1 && i >= answers) break;
        ASSERT_TRUE(pair.to[from].sender.ready(1024));
        if (pair.is_exchanged(from, 1024)) exchanged.insert(pair.to[from].sender.slot(1024));
        pair.to[from].sender.publish(0, 1024);
        pair.to[from].receiver.free();
      }
    }
    // Both ranks may have exchanged one for each answer.
    EXPECT_LE(exchanged.size(), static_cast<std::size_t>(2 * answers));
  }
}

// A rank's connection to itself is its own connection back.
TEST(Connection, ARankExchangesCellsWithItself) {
  const ConnectionShape shape{4, 1024};
  Ends ends(shape);
  ends.sender = Sender(ends.data(), ends.data(), shape);
  ends.receiver = Receiver(ends.data(), ends.data(), shape);
  ends.receiver.exchange_with(ends.sender);
  for (int sent = 0, received = 0; received < 100;) {
    while (ends.sender.ready(700)) {
      std::memset(ends.sender.slot(700), ++sent, 700);
      ends.sender.publish(0, 700);
    }
    ++received;
    ASSERT_TRUE(ends.receiver.ready());
    const std::vector<std::byte> expected(700, static_cast<std::byte>(received));
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), ends.receiver.slot(700))) << received;
    ends.receiver.free();
  }
}

// After a few messages to and fro, each lies where its sender was the last to read; but for a fresh
// cell now and then.
TEST(Connection, AnAnswerLiesWhereItsSenderHasRead) {
  BothWays pair({8, 1024});
  std::map<const std::byte*, std::size_t> readers;
  int fresh = 0;
  for (int i = 0; i < 60; ++i) {
    for (std::size_t from : {0U, 1U}) {
      Sender& sender = pair.to[from].sender;
      ASSERT_TRUE(sender.ready(1024));
      const auto reader = readers.find(sender.slot(1024));
      if (i > 5 && reader == readers.end()) {
        ++fresh;
      } else if (i > 5) {
        EXPECT_EQ(reader->second, from) << i;
      }
      sender.publish(0, 1024);
    }
    for (std::size_t from : {0U, 1U}) {
      Receiver& receiver = pair.to[from].receiver;
      ASSERT_TRUE(receiver.ready());
      readers[receiver.slot(1024)] = 1 - from;
      receiver.free();
    }
  }
  EXPECT_EQ(fresh, 0);
}

// Short answers too: a cell that was just read is used next, and not first filled to its end. So
// two ranks that answer each other soon use a few cells, and each is written by its last reader.
TEST(Connection, ShortAnswersLieInCellsThatWereJustRead) {
  for (const std::size_t bytes : {64UL, 500UL, 2048UL, 8192UL}) {
    BothWays pair({32, 64UL << 10});
    std::set<const std::byte*> lines;
    std::map<const std::byte*, std::size_t> readers;
    const std::size_t in_cell = std::max<std::size_t>(kHotBytes / to_line(bytes), 1);
    const int warm_up = static_cast<int>(4 * (64UL << 10) / to_line(bytes));
    for (int i = 0; i < warm_up + 200; ++i) {
      for (std::size_t from : {0U, 1U}) {
        Sender& sender = pair.to[from].sender;
        ASSERT_TRUE(sender.ready(bytes));
        std::byte* const at = sender.slot(bytes);
        if (i >= warm_up) {
          lines.insert(at);
          EXPECT_TRUE(readers.contains(at) && readers.at(at) == from) << bytes << " bytes, " << i;
        }
        std::memset(at, i, bytes);
        sender.publish(0, static_cast<std::uint32_t>(bytes));
        Receiver& receiver = pair.to[from].receiver;
        ASSERT_TRUE(receiver.ready());
        ASSERT_EQ(receiver.bytes(), bytes);
        ASSERT_EQ(receiver.slot(bytes), at);
        readers[at] = 1 - from;
        receiver.free();
      }
    }
    EXPECT_LE(lines.size(), 8 * in_cell) << bytes << " bytes";
  }
}

// However often cells ended early, there is room for as many messages as before.
TEST(Connection, CellsThatEndEarlyLeaveTheirRoom) {
  for (const ConnectionShape shape :
       {ConnectionShape{32, 64UL << 10}, ConnectionShape{32, 64UL << 10, 8},
        ConnectionShape{32, 64UL << 10, 16}, ConnectionShape{64, 8192, 8}, ConnectionShape{4, 8192},
        ConnectionShape{32, 6208, 5}}) {
    for (const std::size_t bytes : {49UL, 500UL, 1024UL, 2048UL, 4096UL, 6208UL, 16384UL, 32000UL,
                                    32768UL, 40000UL, 65536UL}) {
      if (bytes > shape.slot_bytes) continue;
      BothWays pair(shape);
      const auto under_way = [&](std::size_t n, std::size_t size) {
        for (std::size_t from : {0U, 1U}) {
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_TRUE(pair.to[from].sender.ready(size))
                << bytes << " bytes, message " << i << " of " << n;
            pair.to[from].sender.publish(0, static_cast<std::uint32_t>(size));
          }
        }
        for (std::size_t from : {0U, 1U}) {
          for (std::size_t i = 0; i < n; ++i) {
            ASSERT_TRUE(pair.to[from].receiver.ready());
            pair.to[from].receiver.free();
          }
        }
      };
      for (int i = 0; i < 40; ++i) under_way(1, bytes);
      for (int i = 0; i < 20; ++i) under_way(shape.slots_for(bytes), bytes);
      for (int i = 0; i < 40; ++i) under_way(1, shape.slot_bytes);
      for (int i = 0; i < 20; ++i) under_way(shape.slots_for(bytes), bytes);
    }
  }
}

/// The pages that `n` messages of `bytes` lie in, each received before the next is sent.
std::size_t pages_of(BothWays& pair, int n, std::size_t bytes, bool answered) {
  std::set<std::uintptr_t> pages;
  for (int i = 0; i < n; ++i) {
    for (std::size_t from : {0U, 1U}) {
      if (from == 1 && !answered) break;
      Ends& ends = pair.to[from];
      EXPECT_TRUE(ends.sender.ready(bytes));
      const auto at = reinterpret_cast<std::uintptr_t>(ends.sender.slot(bytes));
      for (std::size_t b = 0; b < bytes; b += kPageBytes) pages.insert((at + b) / kPageBytes);
      ends.sender.publish(0, static_cast<std::uint32_t>(bytes));
      ends.receiver.free();
    }
  }
  return pages.size();
}

// The first messages go round four cells, and not all: each new page costs microseconds.
TEST(Connection, TheFirstMessagesMeetFewPages) {
  constexpr ConnectionShape kShape{32, 64UL << 10};
  for (const std::size_t bytes : {64UL, 512UL, 2048UL, 4096UL, 32UL << 10, 64UL << 10}) {
    for (const bool answered : {false, true}) {
      BothWays pair(kShape);
      constexpr std::size_t kFresh = 100 / 32;
      const std::size_t cells = (answered ? 2 : 1) * (4 + kFresh);
      EXPECT_LE(pages_of(pair, 100, bytes, answered), cells * (kShape.slot_bytes / kPageBytes + 1))
          << bytes << " bytes";
    }
  }
}

// Where the receiver lags behind, cells are taken as they are needed, and then all are used in
// turn.
TEST(Connection, AStreamTakesTheCellsThatItNeeds) {
  BothWays pair({32, 64UL << 10});
  Ends& ends = pair.to[0];
  std::set<const std::byte*> cells;
  for (const std::size_t under_way : {3UL, 32UL, 5UL, 32UL}) {
    for (std::size_t i = 0; i < under_way; ++i) {
      ASSERT_TRUE(ends.sender.ready(64UL << 10));
      cells.insert(ends.sender.slot(64UL << 10));
      ends.sender.publish(0, 64U << 10);
    }
    for (std::size_t i = 0; i < under_way; ++i) ends.receiver.free();
    EXPECT_LE(cells.size(), under_way == 3 ? 4 : 33);
  }
  EXPECT_GE(cells.size(), 32U);
}

// A rank that only sends has nothing to exchange, and fills its cells: all, in time.
TEST(Connection, AOneWayStreamFillsItsCells) {
  BothWays pair({32, 64UL << 10});
  std::set<const std::byte*> lines;
  for (int i = 0; i < 20000; ++i) {
    ASSERT_TRUE(pair.to[0].sender.ready(4096));
    lines.insert(pair.to[0].sender.slot(4096));
    pair.to[0].sender.publish(0, 4096);
    pair.to[0].receiver.free();
    if (i == 1000) {
      EXPECT_LE(lines.size(), 6U * 16);
    }
  }
  EXPECT_EQ(lines.size(), 33U * 16);
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
