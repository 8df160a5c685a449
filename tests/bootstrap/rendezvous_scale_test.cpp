// Many ranks, as threads of this process: how long they need to meet, and how many bytes rank 0's
// process sends for it. Arguments: the numbers of ranks (default: 1024).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/rendezvous_tree.h"
#include "tests/bootstrap/rendezvous_ranks.h"

namespace {

thread_local std::uint64_t sent_here = 0;
std::atomic<std::uint64_t> sent_by_server{0};

bool is_server() {
  thread_local const bool is = [] {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return std::string_view(name.data()) == "tutti-rendezv";
  }();
  return is;
}

}  // namespace

// In front of the system's: counts what the library sends.
extern "C" ssize_t send(int socket, const void* bytes, size_t count, int flags) {
  const ssize_t sent = ::syscall(SYS_sendto, socket, bytes, count, flags, nullptr, 0);
  if (sent <= 0) return sent;
  sent_here += static_cast<std::uint64_t>(sent);
  if (is_server()) sent_by_server += static_cast<std::uint64_t>(sent);
  return sent;
}

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::vector<int> sizes;

/// A connection to the server and one to the parent, with both ends here, and the listeners.
bool has_descriptor_room(int ranks) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur >= static_cast<rlim_t>(ranks) * 9 / 2 + 200;
}

TEST(RendezvousScale, RankZeroSendsFewRostersAndAllMeetSoon) {
  for (const int size : sizes) {
    if (!has_descriptor_room(size)) {
      GTEST_SKIP() << size << " ranks need a higher `ulimit -n` (four and a half for each)";
    }
    std::vector<std::vector<std::byte>> cards;
    for (int rank = 0; rank < size; ++rank) cards.push_back(card_of(rank));
    const std::uint64_t roster = protocol::roster_bytes(cards).size();

    sent_by_server = 0;
    std::uint64_t sent_by_rank_0 = 0;
    std::atomic<int> right{0};
    std::latch all_ended(size);  // what they got is looked at then
    const UniqueId id = make_unique_id();
    std::chrono::duration<double> time{};
    const auto start = Clock::now();
    on_threads(size, [&](int rank) {
      sent_here = 0;
      const Outcome outcome = try_to_meet(id, rank, size, 100s);
      if (rank == 0) sent_by_rank_0 = sent_here;
      if (!outcome.met) ADD_FAILURE() << outcome.message;
      all_ended.arrive_and_wait();
      if (rank == 0) time = Clock::now() - start;
      right +=
          outcome.met && std::ranges::equal(cards, std::views::iota(0, size), std::ranges::equal,
                                            {}, [&](int r) { return outcome.roster.card(r); });
    });
    EXPECT_EQ(right, size);
    const std::uint64_t sent = sent_by_server + sent_by_rank_0;
    const auto rosters = static_cast<std::uint64_t>(
        tree::first_child(0, size) + tree::end_child(0, size) - tree::first_child(0, size));
    fmt::print(
        "{} ranks met in {:.2f} s; rank 0's process sent {} rosters of {} bytes, and {} bytes for "
        "each rank\n",
        size, time.count(), rosters, roster,
        (sent - rosters * roster) / static_cast<std::uint64_t>(size));
    EXPECT_GE(sent, rosters * roster);
    // A handshake (80 bytes), a placement and a go for each, and a few handshakes in vain.
    EXPECT_LE(sent, rosters * roster + static_cast<std::uint64_t>(size) * 512);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(time.count(), size <= 1024 ? 5 : 60);
#endif
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) tutti::sizes.push_back(std::atoi(argv[i]));
  if (tutti::sizes.empty()) tutti::sizes = {1024};
  return RUN_ALL_TESTS();
}
