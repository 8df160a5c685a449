// How connections between hosts come about on a bad network (chaos_sockets.h), in one process, each
// rank a host: whatever becomes of other dials, a good one is used; and a rank that cannot be
// dialled dials. TUTTI_TEST_SEEDS: how often.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/impl.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/variable.h"
#include "tests/transport/chaos_sockets.h"
#include "transport/network/network.h"
#include "transport/sockets/socket.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

unsigned repetitions() { return static_cast<unsigned>(test::number_from("TUTTI_TEST_SEEDS", 2)); }

/// Every rank exchanges a number with every other one, so every pair connects.
void exchange(Communicator& comm) {
  const auto size = static_cast<std::size_t>(comm.size());
  std::vector<int> out(size), in(size, -1);
  group([&] {
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (peer == comm.rank()) continue;
      const auto p = static_cast<std::size_t>(peer);
      out[p] = 1000 * comm.rank() + peer;
      comm.send(&out[p], 1, DataType::int32, peer);
      comm.recv(&in[p], 1, DataType::int32, peer);
    }
  });
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (peer == comm.rank()) continue;
    EXPECT_EQ(in[static_cast<std::size_t>(peer)], 1000 * peer + comm.rank());
  }
}

class Connecting : public testing::Test {
 protected:
  void TearDown() override { end_chaos(); }
  Environment environment_{{{"TUTTI_TEST_RANKS_PER_HOST", "1"}}};
};

/// Some dials are turned away, some are silent, some break or lose a bit in the handshake; both
/// ranks of a pair dial, and try again.
TEST_F(Connecting, AGoodConnectionIsUsedWhateverBecomesOfOthers) {
  const auto begun = Clock::now();
  for (unsigned seed = 1; seed <= 5 * repetitions(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Chaos chaos{.seed = seed};
    chaos.turned_away = 4;
    chaos.unanswered = seed % 4 == 0 ? 1 : 0;
    chaos.struck = 4;
    begin_chaos(chaos);
    EXPECT_NO_THROW(run_thread_ranks(4, exchange));
    end_chaos();
  }
  fmt::print("{:.1f} s\n", std::chrono::duration<double>(Clock::now() - begun).count());
}

std::uint16_t port_of(Communicator& comm) {
  const auto address = comm.impl().group->shared_network()->address().get();
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address->storage)->sin_port);
}

/// Four hosts of two ranks. The first ones of the hosts are connected with each other by then, the
/// others with nobody.
std::vector<Communicator> eight_on_four_hosts() {
  std::vector<Options> hosts(8);
  for (std::size_t r = 0; r < hosts.size(); ++r) hosts[r].host_id = std::to_string(r / 2);
  return Communicator::create_local(hosts);
}

/// From now on nobody can dial these ranks.
void close_ports(std::vector<Communicator>& comms, const std::vector<int>& closed,
                 bool turns_away) {
  Chaos chaos;
  chaos.turns_away = turns_away;
  for (const int r : closed) {
    chaos.closed_ports.push_back(port_of(comms[static_cast<std::size_t>(r)]));
  }
  begin_chaos(chaos);
}

/// Rank `closed` can be dialled by nobody, once the communicator is there, and comes `late` to its
/// first call.
void meet_behind_a_firewall(int closed, bool turns_away, std::chrono::milliseconds late = {}) {
  std::vector<Communicator> comms = eight_on_four_hosts();
  close_ports(comms, {closed}, turns_away);
  {
    std::vector<std::jthread> threads;
    for (Communicator& comm : comms) {
      threads.emplace_back([&] {
        if (comm.rank() == closed) std::this_thread::sleep_for(late);
        EXPECT_NO_THROW(exchange(comm)) << "rank " << comm.rank();
      });
    }
  }
  end_chaos();
}

TEST_F(Connecting, ARankWhoseHostTurnsDialsAwayDials) {
  for (const int closed : {1, 2, 7}) meet_behind_a_firewall(closed, true);
}

TEST_F(Connecting, ARankWhoseHostDropsDialsDials) {
  for (const int closed : {1, 2, 7}) meet_behind_a_firewall(closed, false);
}

/// It is in no call yet, and hears over the first ranks of the others' hosts that it is wanted.
TEST_F(Connecting, ARankThatCannotBeDialledIsAskedToDialOverOthers) {
  const Environment impatient{{{"TUTTI_PEER_TIMEOUT", "0.8"}}};
  meet_behind_a_firewall(6, true, 1600ms);
  meet_behind_a_firewall(6, false, 1600ms);
}

/// The ends of connections that this process has.
int connected_sockets() {
  constexpr int kMost = 1024;
  int count = 0;
  for (int fd = 0; fd < kMost; ++fd) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    const bool connected = getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
    if (connected && peer.ss_family == AF_INET) ++count;
  }
  return count;
}

/// Ranks that wait for each other in a line wait for its first rank in the end. If each connected
/// to it to ask what it does, a late rank of many would have no time for anything else.
TEST_F(Connecting, ARankForWhichAllWaitIsLeftInPeace) {
  constexpr int kRanks = 16;
  const Environment no_stripes{{{"TUTTI_TCP_STREAMS", "1"}}};
  std::latch counted(1);  // until then nobody ends, or calls anything else
  run_thread_ranks(kRanks, [&](Communicator& comm) {
    comm.barrier();  // connects a rank to seven others
    const int before = connected_sockets();
    int number = 1;
    if (comm.rank() == 0) std::this_thread::sleep_for(1500ms);
    if (comm.rank() > 0) comm.recv(&number, 1, DataType::int32, comm.rank() - 1);
    if (comm.rank() + 1 < kRanks) {
      comm.send(&number, 1, DataType::int32, comm.rank() + 1);
      return counted.wait();
    }
    EXPECT_LE(connected_sockets(), before);
    counted.count_down();
  });
}

/// Of a host with more ranks than one, too, the waiting ranks leave the cores to others.
TEST_F(Connecting, ARankThatWaitsForLongSleeps) {
  const Environment two_of_a_host{{{"TUTTI_TEST_RANKS_PER_HOST", "2"}}};
  run_thread_ranks(4, [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) std::this_thread::sleep_for(2s);
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    comm.barrier();
    getrusage(RUSAGE_THREAD, &after);
    // It looks around every 50 ms, so it wakes some 100 times. By itself the network wakes nobody
    // for what a rank of the same host does; looking every 0.5 ms, it would wake 4,000 times.
    if (comm.rank() == 0) return;
    EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 1000) << "rank " << comm.rank();
  });
}

/// Else a rank that died would count as one that is stopped, for as long as its child lives.
TEST_F(Connecting, AChildOfForkAnswersNobody) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  SocketAddress door;
  pid_t child = -1;
  run_thread_ranks(2, [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      door = *comm.impl().group->shared_network()->address().get();
      EXPECT_TRUE(connect_to(door, deadline_after(5s)));
      child = fork();
      if (child == 0) {
        close(ends[1]);
        char nothing = 0;
        _exit(static_cast<int>(read(ends[0], &nothing, 1)));
      }
    }
    comm.barrier();
  });
  EXPECT_FALSE(connect_to(door, deadline_after(5s)));
  close(ends[1]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

/// Those that have not been connected yet never will be.
TEST_F(Connecting, WhereNeitherCanDialTheErrorSaysSo) {
  const Environment impatient{{{"TUTTI_PEER_TIMEOUT", "1"}}};
  for (const bool turns_away : {true, false}) {
    std::vector<Communicator> comms = eight_on_four_hosts();
    close_ports(comms, {0, 1, 2, 3, 4, 5, 6, 7}, turns_away);
    std::vector<std::jthread> threads;
    for (Communicator& comm : comms) {
      threads.emplace_back([&] {
        const Error error = error_of([&] { exchange(comm); });
        const std::string text = error.what();
        EXPECT_EQ(error.code(), ErrorCode::peer_lost) << text;
        EXPECT_GE(error.rank(), 0) << text;
        EXPECT_NE(text.find(turns_away ? "a firewall turns connections away" : "is out of reach"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("no connection has come from there"), std::string::npos) << text;
        if (comm.rank() == 0) fmt::print("{}\n", text);
      });
    }
    threads.clear();
    end_chaos();
  }
}

}  // namespace
}  // namespace tutti::test
