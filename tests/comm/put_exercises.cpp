#include "tests/comm/put_exercises.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tutti::test {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::byte kUntouched{0xa5};

using Generator = std::mt19937_64;

std::size_t pick(Generator& random, std::size_t least, std::size_t most) {
  return least + static_cast<std::size_t>(random() % (most - least + 1));
}

std::vector<std::byte> message_of(int from, int to, std::uint64_t message, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = put_value(from, to, message, i);
  return data;
}

void expect_message(const std::byte* data, int from, int to, std::uint64_t message,
                    std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (data[i] == put_value(from, to, message, i)) continue;
    throw std::runtime_error(
        fmt::format("rank {}: byte {} of {} of message {} from rank {} is {:#x}, not {:#x}", to, i,
                    bytes, message, from, static_cast<int>(data[i]),
                    static_cast<int>(put_value(from, to, message, i))));
  }
}

}  // namespace

PutWindow::PutWindow(Communicator& comm, PutMemory kind, std::size_t bytes)
    : kind_(kind), block_(nullptr, [](std::byte*) {}) {
  if (kind == PutMemory::owned) {
    window_ = comm.window(bytes);
    data_ = window_.data();
    return;
  }
  const std::size_t whole = (bytes + 2 * kPage - 1) / kPage * kPage;
  if (kind == PutMemory::allocated) {
    block_ = {static_cast<std::byte*>(allocate(whole)), [](std::byte* p) { deallocate(p); }};
  } else {
    block_ = {static_cast<std::byte*>(std::aligned_alloc(kPage, whole)),
              [](std::byte* p) { std::free(p); }};
    if (!block_) throw std::bad_alloc();
    std::memset(block_.get(), 0, whole);
    if (kind == PutMemory::registered) register_memory(block_.get(), whole);
  }
  data_ = block_.get() + (kind == PutMemory::plain ? 3 : 64);  // it need not begin with a page
  window_ = comm.window(data_, bytes);
}

PutWindow::~PutWindow() {
  window_.end();
  if (kind_ == PutMemory::registered && block_) unregister_memory(block_.get());
}

std::byte put_value(int from, int to, std::uint64_t message, std::size_t position) {
  std::uint64_t h = (static_cast<std::uint64_t>(from) << 40 ^ static_cast<std::uint64_t>(to) << 32 ^
                     message << 20 ^ position) *
                    0x9e3779b97f4a7c15ULL;
  h ^= h >> 29;
  return static_cast<std::byte>(h * 0xbf58476d1ce4e5b9ULL >> 56);
}

void put_all_to_all(Communicator& comm, PutMemory kind) {
  const int rank = comm.rank(), ranks = comm.size();
  // Each rank leaves room for the others' messages, and one byte between them.
  const auto bytes_to = [](int to, int from) {
    return static_cast<std::size_t>(777 + 50'000 * to + 13 * from);
  };
  const auto offset_of = [&](int to, int from) {
    std::size_t offset = 0;
    for (int r = 0; r < from; ++r) offset += bytes_to(to, r) + 1;
    return offset;
  };
  PutWindow window(comm, kind, offset_of(rank, ranks));
  std::fill_n(window.data(), window->bytes(), kUntouched);
  comm.barrier();
  for (int to = 0; to < ranks; ++to) {
    if (window->bytes_of(to) != offset_of(to, ranks)) {
      throw std::runtime_error("a rank has a window of another size");
    }
    const std::vector<std::byte> message = message_of(rank, to, 1, bytes_to(to, rank));
    window->put_signal(to, offset_of(to, rank), message.data(), message.size(), to % 3);
  }
  for (int from = 0; from < ranks; ++from) window->wait_signal(from, 1, rank % 3);
  for (int from = 0; from < ranks; ++from) {
    const std::byte* const begin = window.data() + offset_of(rank, from);
    expect_message(begin, from, rank, 1, bytes_to(rank, from));
    if (begin[bytes_to(rank, from)] != kUntouched) {
      throw std::runtime_error(fmt::format("rank {} wrote too far", from));
    }
  }
  window->close();
}

void put_in_order(Communicator& comm, PutMemory kind, int rounds) {
  const int rank = comm.rank(), ranks = comm.size();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  constexpr std::size_t kMost = 300'000;
  constexpr int kRead = Window::kSignals - 1;  // the reader has looked
  PutWindow window(comm, kind, kMost);
  PutWindow other(comm, PutMemory::owned, 0);
  Generator sizes(7);
  for (int round = 0; round < rounds; ++round) {
    const auto message = static_cast<std::uint64_t>(round);
    const std::size_t bytes = round % 8 == 7 ? pick(sizes, 1, kMost) : pick(sizes, 1, 200);
    const std::size_t offset = pick(sizes, 0, kMost - bytes);
    const int index = static_cast<int>(pick(sizes, 0, kRead - 1));
    std::vector<std::byte> data = message_of(rank, next, message, bytes);
    Window& tells = round % 5 == 4 ? *other : *window;
    // At once, in two puts, and by a signal of its own, of this window or of another.
    if (round % 3 == 0 && &tells == &*window) {
      window->put_signal(next, offset, data.data(), bytes, index);
    } else {
      window->put(next, offset + bytes / 2, data.data() + bytes / 2, bytes - bytes / 2);
      window->put(next, offset, data.data(), bytes / 2);
      std::fill(data.begin(), data.end(), kUntouched);  // it may be written again
      tells.signal(next, index);
    }
    tells.wait_signal(previous, 1, index);
    expect_message(window.data() + offset, previous, rank, message, bytes);
    window->signal(previous, kRead);
    window->wait_signal(next, 1, kRead);
  }
  other->close();
  window->close();
}

void put_many(Communicator& comm) {
  constexpr std::uint64_t kPuts = 2000;
  const int rank = comm.rank(), ranks = comm.size();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (const std::size_t bytes : {8, 60, 2000, 9000}) {
    PutWindow window(comm, PutMemory::owned, bytes);
    for (std::uint64_t m = 0; m < kPuts; ++m) {
      const std::vector<std::byte> data = message_of(rank, next, m, bytes);
      window->put(next, 0, data.data(), bytes);
    }
    window->signal(next);
    window->wait_signal(previous);
    expect_message(window.data(), previous, rank, kPuts - 1, bytes);
    for (std::uint64_t m = 0; m < kPuts; ++m) window->signal(next, 1);
    window->wait_signal(previous, kPuts, 1);
    window->close();
  }
}

namespace {

/// One round of a storm between two ranks, as both of them know it.
struct Flow {
  struct Message {
    std::size_t offset, bytes;
    int index;
    bool apart;  // the signal comes by itself
  };
  std::vector<Message> messages;

  Flow(std::uint64_t seed, int from, int to, std::uint64_t round, std::size_t room) {
    Generator random(seed ^ (static_cast<std::uint64_t>(from) << 48) ^
                     (static_cast<std::uint64_t>(to) << 32) ^ round);
    std::size_t begin = 0;
    for (std::size_t count = pick(random, 0, 6); count > 0; --count) {
      const std::size_t bytes =
          pick(random, 0, 3) == 0 ? pick(random, 0, room / 8) : pick(random, 0, 100);
      messages.push_back({begin, bytes, static_cast<int>(pick(random, 0, Window::kSignals - 2)),
                          pick(random, 0, 1) == 1});
      begin += bytes;
    }
  }
};

class Storm {
 public:
  Storm(Communicator& comm, std::uint64_t seed)
      : comm_(comm), seed_(seed), own_(seed ^ (static_cast<std::uint64_t>(comm.rank()) << 56)) {}

  void run(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    Generator together(seed_);
    for (int goes_on = 1; goes_on != 0;) {
      const auto kind = static_cast<PutMemory>(pick(together, 0, 3));
      const std::size_t room = pick(together, 1000, 400'000);
      PutWindow window(comm_, kind, room * static_cast<std::size_t>(comm_.size()));
      for (std::size_t rounds = pick(together, 5, 40); rounds > 0; --rounds) {
        round(window, room, pick(together, 0, 3) == 0);
      }
      window->close();
      goes_on = std::chrono::steady_clock::now() < end ? 1 : 0;
      comm_.broadcast(&goes_on, &goes_on, 1, DataType::int32, 0);
    }
  }

 private:
  void round(PutWindow& window, std::size_t room, bool collective) {
    const int rank = comm_.rank(), ranks = comm_.size();
    ++round_;
    std::vector<Future> futures;
    Future sum;
    int one = 1, all = 0;
    if (collective) {
      sum = comm_.start({Collective::all_reduce, &one, &all, 1, DataType::int32});
    }
    std::vector<std::vector<std::byte>> kept;  // what started calls read
    for (int k = 1; k <= ranks; ++k) {
      const int to = (rank + k) % ranks;
      const Flow flow(seed_, rank, to, round_, room);
      for (std::size_t m = 0; m < flow.messages.size(); ++m) {
        send(window, room, to, flow.messages[m], m, kept, futures);
      }
    }
    for (int k = 0; k < ranks; ++k) {
      const int from = (rank + ranks - k) % ranks;
      receive(window, room, from);
    }
    for (Future& future : futures) future.wait();
    // Everybody may write again.
    for (int r = 0; r < ranks; ++r) window->signal(r, Window::kSignals - 1);
    for (int r = 0; r < ranks; ++r) window->wait_signal(r, 1, Window::kSignals - 1);
    sum.wait();
    if (collective && all != ranks) throw std::runtime_error("an all_reduce is wrong");
  }

  void send(PutWindow& window, std::size_t room, int to, const Flow::Message& message,
            std::size_t number, std::vector<std::vector<std::byte>>& kept,
            std::vector<Future>& futures) {
    const int rank = comm_.rank();
    std::vector<std::byte> data = message_of(rank, to, round_ * 8 + number, message.bytes);
    WindowCall put;
    put.peer = to;
    put.offset = static_cast<std::size_t>(rank) * room + message.offset;
    put.from = data.data();
    put.bytes = data.size();
    put.signals = !message.apart;
    put.index = message.index;
    WindowCall signal = put;
    signal.kind = WindowCall::Kind::signal;
    switch (pick(own_, 0, 2)) {
      case 0:
        window->run(put);
        std::fill(data.begin(), data.end(), kUntouched);
        if (message.apart) window->run(signal);
        break;
      case 1:
        futures.push_back(window->start(put));
        if (message.apart) futures.push_back(window->start(signal));
        kept.push_back(std::move(data));
        break;
      default:
        group([&] {
          window->run(put);
          if (message.apart) window->run(signal);
        });
    }
  }

  /// Messages of an index come in their order; so all of one index may be waited for at once.
  void receive(PutWindow& window, std::size_t room, int from) {
    const int rank = comm_.rank();
    const Flow flow(seed_, from, rank, round_, room);
    std::array<std::uint64_t, Window::kSignals> missing{};
    for (const Flow::Message& m : flow.messages) ++missing[static_cast<std::size_t>(m.index)];
    for (std::size_t m = 0; m < flow.messages.size(); ++m) {
      const Flow::Message& message = flow.messages[m];
      std::uint64_t& left = missing[static_cast<std::size_t>(message.index)];
      WindowCall wait;
      wait.kind = WindowCall::Kind::wait_signal;
      wait.peer = from;
      wait.index = message.index;
      switch (left == 0 ? 3 : pick(own_, 0, 3)) {
        case 0:
          window->run(wait);
          --left;
          break;
        case 1:
          window->start(wait).wait();
          --left;
          break;
        case 2:
          group([&] { window->run(wait); });
          --left;
          break;
        default:  // all that are left
          wait.count = std::exchange(left, 0);
          window->run(wait);
      }
      expect_message(window.data() + static_cast<std::size_t>(from) * room + message.offset, from,
                     rank, round_ * 8 + m, message.bytes);
    }
  }

  Communicator& comm_;
  const std::uint64_t seed_;
  Generator own_;
  std::uint64_t round_ = 0;
};

}  // namespace

void put_storm(Communicator& comm, std::uint64_t seed, std::chrono::milliseconds time) {
  Storm(comm, seed).run(time);
}

}  // namespace tutti::test
