// The notes of communicators, and what a rank that is not in one any more, or never was, answers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/network/network.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kCommunicator = 77;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Writes down what it hears.
class Hearing final : public Network::Listener {
 public:
  bool has(int) const override { return true; }
  void on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) override {
    hear("note {} of {}: {}", type, member,
         std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void on_left(int member, std::uint64_t) override { hear("{} left", member); }
  void on_refused(int member, int because_of) override {
    hear("{} refused because of {}", member, because_of);
  }
  void on_gone(int member, Departure, const std::string& why) override {
    hear("{} is gone: {}", member, why);
  }

  std::vector<std::string> heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  template <class... Arguments>
  void hear(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::lock_guard lock(mutex_);
    heard_.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  std::mutex mutex_;
  std::vector<std::string> heard_;
};

/// Two ranks, 0 and 1, that have met, and a third, 2, that nobody reaches.
class Notes : public testing::Test {
 protected:
  Notes() {
    const auto peer = [](Network& network, int rank) {
      return Network::Peer{network.address(), static_cast<std::uint64_t>(rank) + 1, network.key(),
                           rank, false};
    };
    Network::Peer third = peer(zero_, 2);
    zero_.add(0, 0, 3, {{1, peer(one_, 1)}, {2, third}}, Protection::none);
    one_.add(1, 1, 3, {{0, peer(zero_, 0)}, {2, third}}, Protection::none);
  }

  /// What `hearing` has heard, sorted, once that is as much as is expected, and a while longer.
  std::vector<std::string> heard_by(Hearing& hearing, std::size_t expected) {
    const auto until = std::chrono::steady_clock::now() + 5s;
    while (hearing.heard().size() < expected && std::chrono::steady_clock::now() < until) poll();
    for (int k = 0; k < 20; ++k) poll();
    std::vector<std::string> heard = hearing.heard();
    std::sort(heard.begin(), heard.end());
    return heard;
  }
  void poll() {
    zero_.poll();
    one_.poll();
    std::this_thread::sleep_for(1ms);
  }
  /// Rank 0 says "hello" in the communicator.
  void say_hello() { zero_.tell(1, kCommunicator, 1, bytes_of("hello")); }

  using Heard = std::vector<std::string>;
  static std::uint32_t any_port(std::span<const std::string>) { return 0; }
  const SocketAddress local_ = *parse_address("127.0.0.1", 0);
  Network zero_{local_, "", 1, any_port}, one_{local_, "", 2, any_port};
  Hearing at_zero_, at_one_;
};

TEST_F(Notes, AreKeptForACommunicatorToCome) {
  zero_.join(kCommunicator, at_zero_);
  say_hello();
  for (int k = 0; k < 20; ++k) poll();
  one_.join(kCommunicator, at_one_);
  EXPECT_EQ(heard_by(at_one_, 1), (Heard{"note 1 of 0: hello"}));
  zero_.leave(kCommunicator, false);
  EXPECT_EQ(heard_by(at_one_, 2), (Heard{"0 left", "note 1 of 0: hello"}));
  one_.leave(kCommunicator, false);
}

TEST_F(Notes, AreAnsweredByARankThatHasLeft) {
  one_.join(kCommunicator, at_one_);
  one_.leave(kCommunicator, false, Network::Note{5, bytes_of("it came to be")});
  zero_.join(kCommunicator, at_zero_);
  say_hello();
  EXPECT_EQ(heard_by(at_zero_, 2), (Heard{"1 left", "note 5 of 1: it came to be"}));
  zero_.leave(kCommunicator, false);
}

TEST_F(Notes, AreAnsweredByARankThatNeverJoins) {
  zero_.join(kCommunicator, at_zero_);
  say_hello();
  for (int k = 0; k < 20; ++k) poll();
  EXPECT_TRUE(at_zero_.heard().empty());
  one_.refuse(kCommunicator, 2);
  EXPECT_EQ(heard_by(at_zero_, 1), (Heard{"1 refused because of 2"}));
  say_hello();
  EXPECT_EQ(heard_by(at_zero_, 2), (Heard{"1 refused because of 2", "1 refused because of 2"}));
  zero_.leave(kCommunicator, false);
}

TEST_F(Notes, OfARankThatGaveUpWhileItJoinedSayThatItRefused) {
  one_.join(kCommunicator, at_one_);
  one_.refuse(kCommunicator, -1);
  one_.leave(kCommunicator, true);
  zero_.join(kCommunicator, at_zero_);
  say_hello();
  EXPECT_EQ(heard_by(at_zero_, 1), (Heard{"1 refused because of -1"}));
  zero_.leave(kCommunicator, false);
}

TEST_F(Notes, BetweenRanksThatHaveBothLeftComeToAnEnd) {
  for (Network* const network : {&zero_, &one_}) {
    network->leave(kCommunicator, false, Network::Note{5, bytes_of("it came to be")});
  }
  say_hello();
  for (int k = 0; k < 20; ++k) poll();
  const auto busy = [] {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  };
  const auto before = busy();
  std::this_thread::sleep_for(400ms);
  EXPECT_LT(busy() - before, 100ms) << "the reactors go on";
}

}  // namespace
}  // namespace tutti
