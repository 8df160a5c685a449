// What the processes of a host, which threads stand for here (TUTTI_APART), share when they meet,
// and the sockets between them: they find each other, and nobody else is let in.
#include "transport/host/host_peers.h"

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
#include <filesystem>
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
#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kId = 4711;  // of the communicators that they meet for

class RanksOfAHost : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TUTTI_APART", "1", 1);
    protocol::fill_random(secret_);
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
  void connect(int rank, const protocol::Bytes32& secret, std::chrono::nanoseconds timeout) {
    const auto r = static_cast<std::size_t>(rank);
    try {
      peers_[r]->meet(rank, addresses_, kId, secret, deadline_after(timeout));
    } catch (const Error& error) {
      errors_[r] = error;
    }
  }

  void side_by_side(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < static_cast<int>(peers_.size()); ++r) threads.emplace_back(body, r);
    for (auto& thread : threads) thread.join();
  }

  /// That each can pass something to each, and the receiver knows the sender.
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

  protocol::Bytes32 secret_{};
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
  peers_[1]->refuse(77, 2);
  peers_[1]->refuse(78, -1);
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

/// Sockets of this process, connected or not.
int open_sockets() {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    found += target.string().starts_with("socket:") ? 1 : 0;
  }
  return found;
}

TEST_F(RanksOfAHost, HaveTheSocketsAlongWhichTheyHandOnTheBoardAndThoseThatTheyUse) {
  constexpr int kRanks = 40;
  const int before = open_sockets();
  make(kRanks);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  for (const auto& error : errors_) ASSERT_FALSE(error) << error->what();
  // A listener of each, and the two ends of each way to another rank but the first.
  EXPECT_EQ(open_sockets() - before, kRanks + 2 * (kRanks - 1));
  const FileDescriptor file(memfd_create("host_peers_test", MFD_CLOEXEC));
  peers_[20]->send(30, 7, file);
  EXPECT_TRUE(peers_[30]->receive(20, 7, deadline_after(10s)));
  EXPECT_EQ(open_sockets() - before, kRanks + 2 * kRanks);
}

TEST_F(RanksOfAHost, SeeWhoHasLeft) {
  make(12);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  EXPECT_TRUE(peers_[0]->ending_peers().empty());
  peers_[11].reset();
  peers_[3].reset();
  for (const std::size_t r : {0U, 5U, 10U}) {
    EXPECT_EQ(peers_[r]->ending_peers(), (std::vector<int>{3, 11})) << r;
    EXPECT_TRUE(peers_[r]->dead_peers().empty()) << "their process lives";
  }
}

TEST_F(RanksOfAHost, NameTheRankThatDoesNotHandTheBoardOn) {
  make(12);
  const auto start = Clock::now();
  // Rank 10 gets it from rank 1.
  side_by_side([&](int r) {
    if (r != 1) connect(r, secret_, 500ms);
  });
  EXPECT_LT(Clock::now() - start, 5s);
  for (std::size_t r = 0; r < errors_.size(); ++r) {
    const bool waits = r >= 9 && r <= 11;
    ASSERT_EQ(errors_[r].has_value(), waits) << r;
    if (!waits) continue;
    EXPECT_EQ(errors_[r]->code(), ErrorCode::timed_out) << r;
    EXPECT_EQ(errors_[r]->rank(), 1) << r;
    EXPECT_NE(std::string(errors_[r]->what()).find("rank 1"), std::string::npos);
  }
}

// It goes from one meeting to the next, and lets go of boards on which others still look for it.
TEST_F(RanksOfAHost, ARankThatHasLeftAnEarlierMeetingIsNotGone) {
  make(3);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  HostPeers &other = *peers_[0], &leaves = *peers_[1], &looks = *peers_[2];
  const auto meet = [&](HostPeers& who, int rank, const std::vector<HostPeerAddress>& addresses) {
    who.meet(rank, addresses, kId, secret_, deadline_after(10s));
  };
  const std::vector<HostPeerAddress> second{leaves.listen(), other.listen()};
  side_by_side([&](int r) {
    if (r == 1) meet(leaves, 0, second);
    if (r == 0) meet(other, 1, second);
  });
  const std::vector<HostPeerAddress> fourth{looks.listen(), leaves.listen()};
  meet(looks, 0, fourth);
  EXPECT_TRUE(looks.ending_peers().empty());
  meet(leaves, 0, {leaves.listen()});
  EXPECT_TRUE(looks.ending_peers().empty());
}

TEST_F(RanksOfAHost, ARankThatHasGivenUpIsNotWaitedFor) {
  make(3);
  peers_[0]->give_up(5, 0);
  const auto start = Clock::now();
  for (const int r : {1, 2}) connect(r, secret_, 60s);
  EXPECT_LT(Clock::now() - start, 10s);
  for (const std::size_t r : {1U, 2U}) {
    ASSERT_TRUE(errors_[r]) << r;
    EXPECT_EQ(errors_[r]->code(), ErrorCode::peer_lost) << r;
    EXPECT_EQ(errors_[r]->rank(), 0) << r;
  }
}

TEST_F(RanksOfAHost, ARankWithAnotherSecretIsNotHeard) {
  make(3);
  protocol::Bytes32 other = secret_;
  other[31] ^= std::byte{1};
  side_by_side([&](int r) { connect(r, r == 2 ? other : secret_, 700ms); });
  EXPECT_FALSE(errors_[0]);
  EXPECT_FALSE(errors_[1]);
  ASSERT_TRUE(errors_[2]) << "it does not believe rank 0 either";
  EXPECT_EQ(errors_[2]->code(), ErrorCode::timed_out);
  EXPECT_EQ(errors_[2]->rank(), 0);
}

TEST_F(RanksOfAHost, AGreetingIsGoodForItsCallerAndItsListenerAlone) {
  static constexpr std::uint64_t kCall = 5;  // the number of it
  make(4);
  side_by_side([&](int r) { connect(r, secret_, 20s); });
  const auto said = [&](int caller, int listener) {
    const auto& name = addresses_[static_cast<std::size_t>(listener)].socket;
    const std::uint64_t identity = addresses_[static_cast<std::size_t>(caller)].identity;
    return protocol::hash(
        secret_, "host peer",
        {protocol::bytes_of(name), protocol::bytes_of(identity), protocol::bytes_of(kCall)});
  };
  // Rank 2 is said to call rank 1, and to pass it something.
  const auto come = [&](const protocol::Bytes32& mac, std::uint64_t key) {
    FileDescriptor socket = visit(1);
    EXPECT_TRUE(socket);
    std::vector<std::byte> hello(2 * sizeof(std::uint64_t) + mac.size());
    std::memcpy(hello.data(), &addresses_[2].identity, sizeof(std::uint64_t));
    std::memcpy(hello.data() + sizeof(std::uint64_t), &kCall, sizeof kCall);
    std::memcpy(hello.data() + 2 * sizeof(std::uint64_t), mac.data(), mac.size());
    EXPECT_EQ(write_exactly(socket, hello, deadline_after(5s)), IoResult::done);
    const FileDescriptor file(memfd_create("host_peers_test", MFD_CLOEXEC));
    const std::array<std::uint64_t, 3> message{1, key, 0};
    iovec part{const_cast<std::uint64_t*>(message.data()), sizeof message};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr m{};
    m.msg_iov = &part;
    m.msg_iovlen = 1;
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = file.fd();
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    EXPECT_EQ(sendmsg(socket.fd(), &m, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof message));
    return socket;
  };
  const auto has_come = [&](std::uint64_t key) {
    try {
      return static_cast<bool>(peers_[1]->receive(2, key, deadline_after(200ms)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timed_out);
      return false;
    }
  };
  const FileDescriptor wrong_listener = come(said(2, 0), 51);
  EXPECT_FALSE(has_come(51));
  const FileDescriptor wrong_caller = come(said(3, 1), 52);
  EXPECT_FALSE(has_come(52));
  const FileDescriptor right = come(said(2, 1), 53);
  EXPECT_TRUE(has_come(53));
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
    // The memory is gone, also from a peer that holds it, and so are its addresses from all others.
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
