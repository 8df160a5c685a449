// The sockets between the processes of a host, which threads stand for here (TUTTI_APART): they
// find each other, and nobody else finds them.
#include "transport/host_peers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/window_memory.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class RanksOfAHost : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TUTTI_APART", "1", 1);
    wire::fill_random(secret_);
  }
  void TearDown() override { unsetenv("TUTTI_APART"); }

  void make(int count) {
    for (int i = 0; i < count; ++i) {
      peers_.push_back(std::make_unique<HostPeers>());
      addresses_.push_back(peers_.back()->listen());
    }
    errors_.resize(peers_.size());
  }

  /// Rank `rank` connects; what it throws is kept.
  void connect(int rank, const wire::Bytes32& secret, std::chrono::nanoseconds timeout) {
    const auto r = static_cast<std::size_t>(rank);
    try {
      peers_[r]->meet(rank, addresses_, secret, deadline_after(timeout));
    } catch (const Error& error) {
      errors_[r] = error;
    }
  }

  void side_by_side(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) threads.emplace_back(body, r);
    for (auto& thread : threads) thread.join();
  }

  /// That there is a socket from each to each, and that its ends know who is at the other one.
  void expect_connected() {
    const int count = static_cast<int>(peers_.size());
    for (const auto& error : errors_) ASSERT_FALSE(error) << error->what();
    const auto size_of = [&](int from, int to) { return 1 + from * count + to; };
    side_by_side([&](int r) {
      HostPeers& host_peers = *peers_[static_cast<std::size_t>(r)];
      for (int peer = 0; peer < count; ++peer) {
        if (peer == r) continue;
        const FileDescriptor file(memfd_create("host_peers_test", MFD_CLOEXEC));
        ASSERT_EQ(ftruncate(file.fd(), size_of(r, peer)), 0);
        host_peers.send(peer, 7, file);
      }
      for (int peer = 0; peer < count; ++peer) {
        if (peer == r) continue;
        const FileDescriptor file = host_peers.receive(peer, 7, deadline_after(10s));
        struct stat status {};
        ASSERT_EQ(fstat(file.fd(), &status), 0);
        EXPECT_EQ(status.st_size, size_of(peer, r));
      }
      EXPECT_TRUE(host_peers.dead_peers().empty());
    });
  }

  /// Connected to the listener of `rank`, as anybody may be.
  FileDescriptor visit(int rank) const {
    FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const SocketAddress name = socket_address(addresses_[static_cast<std::size_t>(rank)].socket);
    if (::connect(socket.fd(), name.get(), name.length) != 0) return {};
    return socket;
  }

  wire::Bytes32 secret_{};
  std::vector<std::unique_ptr<HostPeers>> peers_;
  std::vector<HostPeerAddress> addresses_;
  std::vector<std::optional<Error>> errors_;
};

TEST_F(RanksOfAHost, ConnectEachToEach) {
  for (const int count : {2, 3, 40}) {
    peers_.clear();
    addresses_.clear();
    errors_.clear();
    make(count);
    side_by_side([&](int r) { connect(r, secret_, 20s); });
    expect_connected();
  }
}

TEST_F(RanksOfAHost, HearWhoRefusesACommunicatorAndBecauseOfWhom) {
  make(3);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  expect_connected();
  const int others[] = {0, 2};
  peers_[1]->refuse(77, 2, others);
  peers_[1]->refuse(78, -1, others);
  for (const std::size_t r : {0U, 2U}) {
    EXPECT_EQ(peers_[r]->refusal(1, 77), 2);
    EXPECT_EQ(peers_[r]->refusal(1, 78), -1);
    EXPECT_EQ(peers_[r]->refusal(1, 79), std::nullopt);
    EXPECT_EQ(peers_[r]->refusal(2 - static_cast<int>(r), 77), std::nullopt);
  }
}

TEST_F(RanksOfAHost, HearWhoGivesUpAndBecauseOfWhom) {
  make(3);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  expect_connected();
  peers_[1]->give_up(77, peers_[2]->identity());
  peers_[1]->give_up(78, 0);
  for (const std::size_t r : {0U, 2U}) {
    EXPECT_EQ(peers_[r]->refusal(1, 77), 2);
    EXPECT_EQ(peers_[r]->refusal(1, 78), -1);
  }
}

TEST_F(RanksOfAHost, NameTheRanksThatDoNotCome) {
  make(4);
  const auto start = Clock::now();
  side_by_side([&](int r) {
    if (r != 2) connect(r, secret_, 500ms);
  });
  EXPECT_LT(Clock::now() - start, 5s);
  for (const std::size_t r : {0U, 1U, 3U}) {
    ASSERT_TRUE(errors_[r]) << r;
    EXPECT_EQ(errors_[r]->code(), ErrorCode::timed_out) << r;
    EXPECT_EQ(errors_[r]->rank(), 2) << r;
    EXPECT_NE(std::string(errors_[r]->what()).find("rank 2"), std::string::npos);
  }
}

TEST_F(RanksOfAHost, ARankWithAnotherSecretIsNotLetIn) {
  make(3);
  wire::Bytes32 other = secret_;
  other[31] ^= std::byte{1};
  side_by_side([&](int r) { connect(r, r == 2 ? other : secret_, 700ms); });
  for (const auto& error : errors_) ASSERT_TRUE(error);
  EXPECT_EQ(errors_[0]->rank(), 2);
  EXPECT_EQ(errors_[1]->rank(), 2);
}

TEST_F(RanksOfAHost, AReplayedGreetingIsRefused) {
  make(3);
  std::vector<std::thread> honest;
  for (const int r : {0, 1}) honest.emplace_back([this, r] { connect(r, secret_, 20s); });

  // Rank 2 comes to rank 0, and somebody records what it says.
  const std::int32_t rank_0 = 0, rank_2 = 2;
  const wire::Bytes32 key = wire::hash(secret_, "host peers", {wire::bytes_of(rank_0)});
  const auto come_to = [&](int listener, const wire::Proof* old_proof,
                           std::vector<std::byte>* said) {
    const FileDescriptor socket = visit(listener);
    EXPECT_TRUE(socket);
    wire::Greeting greeting;
    EXPECT_EQ(read_exactly(socket, wire::writable_bytes_of(greeting), deadline_after(5s)),
              IoResult::done);
    wire::Proof proof;
    wire::fill_random(proof.nonce);
    const wire::Session session(key, greeting.nonce, proof.nonce);
    proof.mac = session.connector_proof();
    if (old_proof != nullptr) proof = *old_proof;
    write_exactly(socket, wire::bytes_of(proof), deadline_after(5s));
    if (said->empty()) {
      const auto mac = session.mac("host peer", {wire::bytes_of(rank_2)});
      const auto rank = wire::bytes_of(rank_2);
      said->assign(rank.begin(), rank.end());
      said->insert(said->end(), mac.begin(), mac.end());
      (*said)[35] ^= std::byte{1};  // so that it is not taken in here
    }
    wire::Bytes32 answer{};
    const IoResult result = read_exactly(socket, answer, deadline_after(5s));
    if (result == IoResult::done) {
      write_exactly(socket, *said, deadline_after(5s));
      std::byte more{};
      EXPECT_EQ(read_exactly(socket, std::span(&more, 1), deadline_after(5s)), IoResult::closed);
    }
    return std::pair(result, proof);
  };
  std::vector<std::byte> said;
  const auto [result, proof] = come_to(0, nullptr, &said);
  EXPECT_EQ(result, IoResult::done);
  EXPECT_EQ(come_to(0, &proof, &said).first, IoResult::closed);   // the nonce is another one
  EXPECT_EQ(come_to(1, nullptr, &said).first, IoResult::closed);  // the secret is rank 0's
  said.clear();

  connect(2, secret_, 20s);
  for (auto& thread : honest) thread.join();
  expect_connected();
}

/// How many mappings of windows this process has.
int mapped_windows() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    found += line.find("tutti-window") != std::string::npos ? 1 : 0;
  }
  return found;
}

TEST_F(RanksOfAHost, AWindowThatIsFreedLeavesItsAddressesToWhoeverHoldsIt) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  make(2);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  expect_connected();
  const int before = mapped_windows();
  for (const bool held : {true, false}) {
    auto* const memory = static_cast<std::byte*>(allocate(kBytes));
    std::memset(memory, 7, kBytes);
    const WindowMemory window = find_window(memory, kBytes);
    peers_[0]->announce(window, std::array{1});
    std::shared_ptr<SharedMemory> found = peers_[1]->find_window(0, window.id);
    ASSERT_NE(found, nullptr);
    const std::span<std::byte> there{found->data(), found->size()};
    const auto all_are = [&](int value) {
      return std::ranges::all_of(there, [&](std::byte b) { return b == std::byte(value); });
    };
    EXPECT_TRUE(there.size() == kBytes && all_are(7));
    EXPECT_EQ(mapped_windows(), before + 2);
    if (!held) found.reset();
    deallocate(memory);
    peers_[1]->drain();
    EXPECT_EQ(peers_[1]->find_window(0, window.id), nullptr);
    // The memory is gone, also from who holds it, and so are its addresses from all others.
    EXPECT_EQ(mapped_windows(), before);
    if (held) {
      EXPECT_TRUE(all_are(0));
      std::memset(there.data(), 1, there.size());
      EXPECT_TRUE(all_are(1));
      found.reset();
    }
    EXPECT_NE(msync(there.data(), kBytes, MS_ASYNC), 0) << "still mapped";
    EXPECT_EQ(errno, ENOMEM);
  }
}

TEST_F(RanksOfAHost, StrangersDoNotHoldThemUp) {
  make(6);
  std::atomic<bool> over{false};
  std::atomic<int> visits{0};
  std::vector<std::thread> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      std::vector<FileDescriptor> held(600);
      while (!over) {
        FileDescriptor socket = visit(static_cast<int>(random() % 6));
        if (!socket) {
          std::this_thread::sleep_for(1ms);
          continue;
        }
        std::array<std::byte, 100> noise{};
        for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
        const std::size_t length = random() % noise.size();
        if (length > 30) write_exactly(socket, std::span(noise).first(length), Deadline{});
        held[static_cast<std::size_t>(visits++) / 3 % held.size()] = std::move(socket);
      }
    });
  }
  double seconds = 0;
  side_by_side([&](int r) {
    if (r == 5) {  // the others wait for it, among strangers
      while (visits < 20'000) std::this_thread::sleep_for(1ms);
    }
    const auto start = Clock::now();
    connect(r, secret_, 60s);
    if (r == 5) seconds = std::chrono::duration<double>(Clock::now() - start).count();
  });
  over = true;
  for (auto& stranger : strangers) stranger.join();
  EXPECT_LT(seconds, 5);
  expect_connected();
}

}  // namespace
}  // namespace tutti
