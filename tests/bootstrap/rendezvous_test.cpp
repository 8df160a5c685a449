// The rendezvous with real sockets: ranks as threads and as processes, disagreement, absence and
// death.
#include "bootstrap/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_round.h"
#include "bootstrap/rendezvous_server.h"
#include "core/error.h"
#include "tests/bootstrap/rendezvous_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

bool has_descriptor_room(int descriptors) { return sysconf(_SC_OPEN_MAX) >= descriptors; }

TEST(UniqueIdText, RoundTripsAndRefusesOtherText) {
  const UniqueId id = make_unique_id();
  const std::string text = to_string(id);
  EXPECT_EQ(text.size(), 256U);
  EXPECT_EQ(unique_id_from_string(text), id);
  std::string upper = text;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(unique_id_from_string(upper), id);
  for (const std::string& wrong : {std::string(), text.substr(1), text + "0", "g" + text.substr(1),
                                   text.substr(0, 255) + " ", std::string("0x") + text.substr(2)}) {
    try {
      unique_id_from_string(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()).find(text.substr(64, 32)), std::string::npos);
    }
  }
  EXPECT_NE(make_unique_id(), id);
}

TEST(UniqueIdText, EveryDamagedBitIsNoticed) {
  const UniqueId id = make_unique_id();
  for (std::size_t bit = 0; bit < id.bytes.size() * 8; ++bit) {
    UniqueId damaged = id;
    damaged.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const Outcome outcome = try_to_meet(damaged, 0, 1);
    ASSERT_FALSE(outcome.met) << bit;
    ASSERT_EQ(outcome.code, ErrorCode::invalid_argument) << bit;
  }
}

TEST(UniqueIdText, ListenAddressIsASetting) {
  setenv("TUTTI_ADDRESS", "::1", 1);
  UniqueId id;
  bool has_ipv6 = true;
  try {
    id = make_unique_id();
  } catch (const Error&) {
    has_ipv6 = false;  // this machine has no IPv6
  }
  if (has_ipv6) expect_all_met(meet_as_threads(id, 3));

  setenv("TUTTI_ADDRESS", "localhost", 1);
  EXPECT_THROW(make_unique_id(), Error);
  setenv("TUTTI_ADDRESS", "192.0.2.7", 1);  // an address for documentation: not of this host
  try {
    make_unique_id();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    EXPECT_NE(std::string(error.what()).find("TUTTI_ADDRESS"), std::string::npos);
  }
  unsetenv("TUTTI_ADDRESS");
}

TEST(Rendezvous, EveryRankGetsEveryCard) {
  std::set<std::array<std::byte, 32>> secrets;
  for (const int size : {1, 2, 3, 7, 16, 33}) {
    const auto outcomes = meet_as_threads(make_unique_id(), size);
    expect_all_met(outcomes);
    secrets.insert(outcomes.front().roster.session_secret);
  }
  EXPECT_EQ(secrets.size(), 6U);
}

TEST(Rendezvous, TwoHundredRanksMeet) {
  if (!has_descriptor_room(600)) GTEST_SKIP() << "ulimit -n";
  expect_all_met(meet_as_threads(make_unique_id(), 200));
}

TEST(Rendezvous, RanksMayArriveInAnyOrderAndLate) {
  const UniqueId id = make_unique_id();
  std::vector<Outcome> outcomes(4);
  on_threads(4, [&](int rank) {
    std::this_thread::sleep_for(100ms * (3 - rank));
    outcomes[static_cast<std::size_t>(rank)] = try_to_meet(id, rank, 4);
  });
  expect_all_met(outcomes);
}

TEST(Rendezvous, OneServerHoldsManyRounds) {
  const UniqueId id = serve_rendezvous(Rounds::many);
  std::set<std::array<std::byte, 32>> secrets;
  for (int round = 0; round < 20; ++round) {
    const auto outcomes = meet_as_threads(id, 1 + round % 5);
    expect_all_met(outcomes);
    secrets.insert(outcomes.front().roster.session_secret);
  }
  EXPECT_EQ(secrets.size(), 20U);
}

TEST(Rendezvous, AnIdIsGoodForOneMeeting) {
  const UniqueId id = make_unique_id();
  expect_all_met(meet_as_threads(id, 2));
  const Outcome late = try_to_meet(id, 0, 2);
  EXPECT_FALSE(late.met);
  EXPECT_EQ(late.code, ErrorCode::system);
  EXPECT_NE(late.message.find("have met already"), std::string::npos) << late.message;
  EXPECT_LT(late.seconds, 5);
}

TEST(Rendezvous, ArgumentsAreChecked) {
  const UniqueId id = make_unique_id();
  const std::vector<std::pair<int, int>> wrong{{-1, 2}, {2, 2}, {0, 0},
                                               {0, -1}, {5, 3}, {0, protocol::kMaxRanks + 1}};
  for (const auto& [rank, size] : wrong) {
    const Outcome outcome = try_to_meet(id, rank, size);
    EXPECT_EQ(outcome.code, ErrorCode::invalid_argument) << rank << " of " << size;
  }
  EXPECT_EQ(try_to_meet(id, 0, 1, 0s).code, ErrorCode::invalid_argument);
  EXPECT_EQ(try_to_meet(UniqueId{}, 0, 1).code, ErrorCode::invalid_argument);
  EXPECT_THROW(rendezvous(id, 0, 1, std::vector<std::byte>(kMaxCardBytes + 1), 20s), Error);
  EXPECT_TRUE(try_to_meet(id, 0, 1).met);
}

TEST(Rendezvous, DisagreementAboutTheSizeFailsEverybody) {
  const UniqueId id = make_unique_id();
  std::vector<Outcome> outcomes(4);
  on_threads(4, [&](int rank) {
    // Ranks 0 to 2 are there before rank 3 comes with another size; then rank 1 of a later try.
    if (rank == 3) std::this_thread::sleep_for(300ms);
    outcomes[static_cast<std::size_t>(rank)] = try_to_meet(id, rank, rank == 3 ? 8 : 5);
  });
  outcomes.push_back(try_to_meet(id, 4, 5));
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.met);
    EXPECT_EQ(outcome.code, ErrorCode::mismatch);
    EXPECT_EQ(outcome.culprit, 3);
    EXPECT_EQ(outcome.message, outcomes.front().message);
    EXPECT_NE(outcome.message.find("rank 3 says that there are 8 ranks"), std::string::npos)
        << outcome.message;
    EXPECT_NE(outcome.message.find("says 5"), std::string::npos) << outcome.message;
    EXPECT_LT(outcome.seconds, 5);
  }
}

TEST(Rendezvous, TwoClaimsToOneRankFailEverybody) {
  const UniqueId id = make_unique_id();
  std::vector<Outcome> outcomes(4);
  on_threads(4, [&](int i) {
    outcomes[static_cast<std::size_t>(i)] = try_to_meet(id, i == 3 ? 1 : i, 4);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.met);
    EXPECT_EQ(outcome.code, ErrorCode::mismatch);
    EXPECT_EQ(outcome.culprit, 1);
    EXPECT_NE(outcome.message.find("two claim to be rank 1 of 4"), std::string::npos)
        << outcome.message;
  }
}

TEST(Rendezvous, MissingRanksAreNamedAtTheDeadline) {
  const UniqueId id = make_unique_id();
  std::vector<Outcome> outcomes(20);
  on_threads(20, [&](int rank) {
    if (rank == 3 || rank == 5) return;
    // The shortest patience counts, and everybody hears the same.
    outcomes[static_cast<std::size_t>(rank)] = try_to_meet(id, rank, 20, rank == 7 ? 1s : 20s);
  });
  for (int rank = 0; rank < 20; ++rank) {
    if (rank == 3 || rank == 5) continue;
    const Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.code, ErrorCode::timed_out);
    EXPECT_NE(outcome.message.find("ranks 3 and 5 of 20 did not appear"), std::string::npos)
        << outcome.message;
    EXPECT_LT(outcome.seconds, 4);
  }
  const Outcome late = try_to_meet(id, 3, 20);
  EXPECT_EQ(late.code, ErrorCode::timed_out);
  EXPECT_NE(late.message.find("ranks 3 and 5"), std::string::npos) << late.message;
}

TEST(Rendezvous, LongListsOfRanksAreShortened) {
  EXPECT_EQ(protocol::list_ranks(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(protocol::list_ranks(std::vector<int>{3, 5}), "ranks 3 and 5");
  EXPECT_EQ(protocol::list_ranks(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 8");
  EXPECT_EQ(protocol::list_ranks(std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
  RendezvousRound round;
  EXPECT_FALSE(round.join(hello_of(99'999, 100'000, 300), {}, "here"));
  round.expire("");
  ASSERT_TRUE(round.failure());
  EXPECT_EQ(round.failure()->code(), ErrorCode::timed_out);
  EXPECT_NE(std::string(round.failure()->what())
                .find("ranks 0, 1, 2, 3, 4, 5, 6, 7 and 99991 more of 100000"),
            std::string::npos)
      << round.failure()->what();
}

TEST(Rendezvous, MoreRanksThanTheServerMayHaveDescriptorsAreRefusedAtOnce) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{200, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const Outcome outcome = try_to_meet(make_unique_id(), 199, 200);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(outcome.code, ErrorCode::system);
  EXPECT_NE(outcome.message.find("200 ranks need 264 descriptors"), std::string::npos)
      << outcome.message;
  EXPECT_NE(outcome.message.find("ulimit -n"), std::string::npos) << outcome.message;
  EXPECT_LT(outcome.seconds, 2);
}

TEST(Rendezvous, AServerWithoutRanksEndsByItself) {
  setenv("TUTTI_RENDEZVOUS_TIMEOUT", "0.2", 1);
  const UniqueId id = make_unique_id();
  unsetenv("TUTTI_RENDEZVOUS_TIMEOUT");
  std::this_thread::sleep_for(600ms);
  const Outcome outcome = try_to_meet(id, 0, 1);
  EXPECT_EQ(outcome.code, ErrorCode::system);
  EXPECT_NE(outcome.message.find("nothing listens at 127.0.0.1:"), std::string::npos)
      << outcome.message;
}

// ThreadSanitizer ends a forked child of a process with threads when it starts one itself.
#ifdef __SANITIZE_THREAD__
constexpr bool kChildrenMayHaveThreads = false;
#else
constexpr bool kChildrenMayHaveThreads = true;
#endif

// --- processes ---

pid_t start_process(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int exit_status(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(RendezvousProcesses, ProcessesMeet) {
  const UniqueId id = make_unique_id();
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank) {
    children.push_back(start_process([&] {
      const Outcome outcome = try_to_meet(id, rank, 4);
      if (!outcome.met) return 1;
      return is_right(outcome.roster, 4) ? 0 : 2;
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
}

TEST(RendezvousProcesses, AKilledRankIsNamedToTheOthers) {
  const UniqueId id = make_unique_id();
  const pid_t victim = start_process([&] {
    try_to_meet(id, 2, 4);
    return 0;
  });
  std::vector<Outcome> outcomes(2);
  on_threads(3, [&](int i) {
    if (i < 2) {
      outcomes[static_cast<std::size_t>(i)] = try_to_meet(id, i, 4);
    } else {
      std::this_thread::sleep_for(500ms);
      kill(victim, SIGKILL);
    }
  });
  exit_status(victim);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::peer_lost);
    EXPECT_EQ(outcome.culprit, 2);
    EXPECT_NE(outcome.message.find("rank 2 of 4 joined and then left"), std::string::npos);
    EXPECT_NE(outcome.message.find("waiting for rank 3"), std::string::npos) << outcome.message;
    EXPECT_LT(outcome.seconds, 2);
  }
}

TEST(RendezvousProcesses, TheEndOfTheServersProcessIsNoticed) {
  if (!kChildrenMayHaveThreads) GTEST_SKIP() << "ThreadSanitizer: no threads after a fork";
  int id_pipe[2];
  ASSERT_EQ(pipe(id_pipe), 0);
  const pid_t server = start_process([&] {
    const UniqueId id = make_unique_id();
    if (write(id_pipe[1], id.bytes.data(), id.bytes.size()) != 128) return 1;
    pause();
    return 0;
  });
  close(id_pipe[1]);
  UniqueId id;
  ASSERT_EQ(read(id_pipe[0], id.bytes.data(), id.bytes.size()), 128);
  close(id_pipe[0]);
  Outcome outcome;
  on_threads(2, [&](int i) {
    if (i == 0) {
      outcome = try_to_meet(id, 0, 2);
    } else {
      std::this_thread::sleep_for(300ms);
      kill(server, SIGKILL);
    }
  });
  exit_status(server);
  EXPECT_EQ(outcome.code, ErrorCode::system);
  EXPECT_NE(outcome.message.find("has ended"), std::string::npos) << outcome.message;
  EXPECT_LT(outcome.seconds, 3);
  EXPECT_EQ(try_to_meet(id, 0, 2).code, ErrorCode::system);
}

TEST(RendezvousProcesses, AnExitingServerStillDeliversItsReplies) {
  if (!kChildrenMayHaveThreads) GTEST_SKIP() << "ThreadSanitizer: no threads after a fork";
  for (int repetition = 0; repetition < 10; ++repetition) {
    int id_pipe[2];
    ASSERT_EQ(pipe(id_pipe), 0);
    // Rank 0 leaves through exit() the moment it has its roster.
    const pid_t server = fork();
    if (server == 0) {
      const UniqueId id = make_unique_id();
      if (write(id_pipe[1], id.bytes.data(), id.bytes.size()) != 128) _exit(1);
      exit(try_to_meet(id, 0, 8).met ? 0 : 1);
    }
    close(id_pipe[1]);
    UniqueId id;
    ASSERT_EQ(read(id_pipe[0], id.bytes.data(), id.bytes.size()), 128);
    close(id_pipe[0]);
    std::vector<Outcome> outcomes(7);
    on_threads(7,
               [&](int i) { outcomes[static_cast<std::size_t>(i)] = try_to_meet(id, i + 1, 8); });
    for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.met) << outcome.message;
    EXPECT_EQ(exit_status(server), 0);
  }
}

TEST(RendezvousProcesses, ExitDoesNotWaitForAnIdleServer) {
  if (!kChildrenMayHaveThreads) GTEST_SKIP() << "ThreadSanitizer: no threads after a fork";
  const auto start = Clock::now();
  const pid_t child = fork();
  if (child == 0) {
    make_unique_id();
    serve_rendezvous(Rounds::many);
    exit(0);
  }
  EXPECT_EQ(exit_status(child), 0);
  EXPECT_LT(Clock::now() - start, 1s);
}

}  // namespace
}  // namespace tutti
