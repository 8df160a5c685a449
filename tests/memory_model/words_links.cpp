// Links and doorbells. docs/memory-model.md says which program each word has.
#include <array>
#include <cstring>
#include <memory>

#include "tests/memory_model/words.h"
#include "tests/memory_model/zeros.h"
#include "transport/host/connection.h"
#include "transport/host/doorbell.h"

namespace tutti::model {
namespace {

// --- Connections ---------------------------------------------------------------------------------

// What message `n` of one way has in its bytes.
std::uint64_t content(std::uint64_t way, std::uint64_t n) { return way << 32 | (n + 1); }

void send(Sender& to, std::uint64_t way, std::uint64_t n, std::size_t bytes) {
  await([&] { return to.ready(bytes); });
  std::byte* const at = to.slot(bytes);
  const std::uint64_t value = content(way, n);
  std::memcpy(at, &value, sizeof value);
  if (bytes > sizeof value) std::memcpy(at + bytes - sizeof value, &value, sizeof value);
  to.publish(static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(bytes));
}

void receive(Receiver& from, std::uint64_t way, std::uint64_t n, std::size_t bytes) {
  await([&] { return from.ready(); });
  require(from.tag() == n && from.bytes() % (1U << 31) == bytes, "another message's header");
  std::uint64_t first = 0, last = 0;
  const std::byte* const at = from.slot(bytes);
  std::memcpy(&first, at, sizeof first);
  std::memcpy(&last, at + bytes - sizeof last, sizeof last);
  require(first == content(way, n) && last == first, "another message's bytes");
  from.free();
}

// Short messages, in two slots: each is used again.
Program inline_messages() {
  return [] {
    static constexpr ConnectionShape kShape{2, 128, 1};
    const auto area = zeros<Area<kShape.bytes()>>();
    return Execution{{[area] {
                        Sender sender(area->bytes, kShape);
                        for (std::uint64_t n = 0; n < 4; ++n) send(sender, 1, n, 8);
                        await([&] { return sender.all_received(); });
                        for (std::byte& b : area->bytes) b = {};  // the sender's again
                      },
                      [area] {
                        Receiver receiver(area->bytes, kShape);
                        for (std::uint64_t n = 0; n < 4; ++n) receive(receiver, 1, n, 8);
                      }}};
  };
}

// Messages with data: cells are taken, mapped, freed and used again.
Program messages_with_data() {
  return [] {
    static constexpr ConnectionShape kShape{4, 128, 1};
    const auto area = zeros<Area<kShape.bytes()>>();
    return Execution{{[area] {
                        Sender sender(area->bytes, kShape);
                        for (std::uint64_t n = 0; n < 5; ++n) send(sender, 1, n, n % 2 ? 64 : 128);
                      },
                      [area] {
                        Receiver receiver(area->bytes, kShape);
                        for (std::uint64_t n = 0; n < 5; ++n) {
                          receive(receiver, 1, n, n % 2 ? 64 : 128);
                        }
                      }}};
  };
}

// Two ranks that answer each other exchange the cells that they have read.
Program cells_that_are_exchanged() {
  return [] {
    static constexpr ConnectionShape kShape{4, 64, 3};
    struct Both {
      Area<kShape.bytes()> there, back;
    };
    const auto both = zeros<Both>();
    return Execution{{[both] {
                        std::byte* const out = both->there.bytes;
                        Sender sender(out, both->back.bytes, kShape);
                        Receiver receiver(both->back.bytes, out, kShape);
                        receiver.exchange_with(sender);
                        for (std::uint64_t n = 0; n < 10; ++n) {
                          send(sender, 1, n, 64);
                          receive(receiver, 2, n, 64);
                        }
                      },
                      [both] {
                        std::byte* const out = both->back.bytes;
                        Sender sender(out, both->there.bytes, kShape);
                        Receiver receiver(both->there.bytes, out, kShape);
                        receiver.exchange_with(sender);
                        for (std::uint64_t n = 0; n < 10; ++n) {
                          receive(receiver, 1, n, 64);
                          send(sender, 2, n, 64);
                        }
                      }}};
  };
}

// --- Doorbells -----------------------------------------------------------------------------------

// A ring that is missed costs the sleeper its time-out, and nothing else.
Program a_sleeper_and_who_rings() {
  return [] {
    struct Shared {
      Doorbell bell{};
      std::atomic<int> word{0};
      int data = 0;
    };
    const auto s = std::make_shared<Shared>();
    return Execution{{[s] {
                        s->data = 5;
                        s->word.store(1, std::memory_order_release);
                        ring(s->bell);
                      },
                      [s] {
                        Doorbell* const bells[]{&s->bell};
                        const auto is_there = [&] {
                          return s->word.load(std::memory_order_acquire) == 1;
                        };
                        while (!is_there()) sleep_unless(bells, is_there);
                        require(s->data == 5, "the data are not there");
                      }}};
  };
}

}  // namespace

std::vector<Words> words_of_links() {
  return {
      {"InlineMessages", inline_messages},
      {"MessagesWithData", messages_with_data},
      {"CellsThatAreExchanged", cells_that_are_exchanged},
      {"ASleeperAndWhoRings", a_sleeper_and_who_rings},
  };
}

}  // namespace tutti::model
