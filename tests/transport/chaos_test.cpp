// Ranks on hosts of their own, in one process, over real sockets on a network that misbehaves
// (chaos_sockets.h): whatever the pieces in which bytes come, values are right; and when a
// connection breaks, every rank knows soon, and none waits for what cannot come.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "tests/comm/random_calls.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/variable.h"
#include "tests/transport/chaos_sockets.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

unsigned seeds() { return static_cast<unsigned>(test::number_from("TUTTI_TEST_SEEDS", 2)); }

/// Each rank a host.
class OverChaos : public testing::Test {
 protected:
  void TearDown() override { end_chaos(); }
  Environment environment_{{{"TUTTI_TEST_RANKS_PER_HOST", "1"}}};
};

TEST_F(OverChaos, RandomCallsAreRight) {
  for (unsigned seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    begin_chaos({.seed = seed});
    run_thread_ranks(2 + static_cast<int>(seed) % 3, [&](Communicator& comm) {
      make_random_calls(comm, seed, MemoryUse::any, 0.5);
    });
    end_chaos();
  }
}

/// What became of a rank.
struct Outcome {
  std::optional<Error> error;  // what its communicator says
  std::string wrong;           // what was no Error
};

/// What `comm`, on which something has failed, says about that.
Error failure_of(Communicator& comm) {
  for (;;) {
    try {
      comm.barrier();
    } catch (const Error& error) {
      return error;
    }
  }
}

Outcome make_calls(Communicator& comm, unsigned seed) {
  Outcome outcome;
  std::optional<RandomCalls> calls;
  try {
    calls.emplace(comm, seed, Action::mixed, MemoryUse::any);
    for (int step = 0; step < 150; ++step) calls->step();
    comm.barrier();
  } catch (const Error&) {
    if (calls) calls->stop();
    outcome.error = failure_of(comm);
  } catch (const std::exception& e) {
    outcome.wrong = e.what();
    comm.abort("a wrong result");
  }
  return outcome;
}

/// Random calls of three ranks, and a strike after so many bytes. Whether there was one.
bool strike(const Chaos& chaos, std::vector<Outcome>& outcomes) {
  outcomes.assign(3, {});
  begin_chaos(chaos);
  try {
    run_thread_ranks(3, [&](Communicator& comm) {
      outcomes[static_cast<std::size_t>(comm.rank())] = make_calls(comm, chaos.seed);
    });
  } catch (const Error& error) {  // while the ranks met
    for (Outcome& o : outcomes) o.error = error;
  }
  return end_chaos();
}

TEST_F(OverChaos, AConnectionThatBreaksIsToldToAll) {
  int broken = 0;
  for (unsigned seed = 1; seed <= 4 * seeds(); ++seed) {
    std::mt19937 random(seed);
    const bool reset = random() % 2 == 0;
    const std::uint64_t at = 1 + random() % (std::uint64_t{1} << (8 + random() % 15));
    SCOPED_TRACE(fmt::format("seed {}: {} at byte {}", seed, reset ? "reset" : "hang-up", at));
    std::vector<Outcome> outcomes;
    const auto begun = Clock::now();
    const bool struck = strike({.seed = seed,
                                .strikes_at = at,
                                .strike = reset ? Chaos::Strike::reset : Chaos::Strike::hang_up},
                               outcomes);
    EXPECT_LT(Clock::now() - begun, 20s);
    // What breaks before two ranks have met is made again.
    const bool failed = outcomes[0].error.has_value();
    EXPECT_TRUE(struck || !failed);
    if (failed) ++broken;
    for (const Outcome& o : outcomes) {
      EXPECT_EQ(o.wrong, "");
      ASSERT_EQ(o.error.has_value(), failed);
      if (!failed) continue;
      EXPECT_EQ(o.error->code(), ErrorCode::peer_lost) << o.error->what();
      EXPECT_GE(o.error->rank(), 0) << o.error->what();
      if (seed % 8 == 1) fmt::print("{}\n", o.error->what());
    }
  }
  EXPECT_GT(broken, 0);
}

/// What is asked for, for what goes to other hosts.
class Protected : public OverChaos, public testing::WithParamInterface<const char*> {
  Environment environment_{{{GetParam(), "1"}}};
};
INSTANTIATE_TEST_SUITE_P(By, Protected, testing::Values("TUTTI_TCP_CHECKSUM", "TUTTI_ENCRYPT"),
                         [](const auto& by) { return std::string(by.param).substr(6); });

TEST_P(Protected, RandomCallsAreRight) {
  for (unsigned seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    begin_chaos({.seed = seed});
    run_thread_ranks(2 + static_cast<int>(seed) % 3, [&](Communicator& comm) {
      make_random_calls(comm, seed, MemoryUse::any, 0.5);
    });
    end_chaos();
  }
}

TEST_P(Protected, ABitThatIsAlteredIsFoundAndNobodyGetsWrongData) {
  int named = 0;
  for (unsigned seed = 1; seed <= 2 * seeds(); ++seed) {
    std::mt19937 random(seed);
    // Behind most of the handshakes.
    const std::uint64_t at = 8000 + random() % (std::uint64_t{1} << (8 + random() % 14));
    SCOPED_TRACE(fmt::format("seed {}: byte {}", seed, at));
    std::vector<Outcome> outcomes;
    const bool struck =
        strike({.seed = seed, .strikes_at = at, .strike = Chaos::Strike::flip}, outcomes);
    const bool failed = outcomes[0].error.has_value();
    EXPECT_TRUE(struck || !failed);
    for (const Outcome& o : outcomes) {
      EXPECT_EQ(o.wrong, "");
      ASSERT_EQ(o.error.has_value(), failed);
      if (!failed) continue;
      EXPECT_EQ(o.error->code(), ErrorCode::peer_lost) << o.error->what();
      EXPECT_GE(o.error->rank(), 0) << o.error->what();
      const std::string text = o.error->what();
      if (text.find("altered on its way") != std::string::npos) ++named;
      if (seed % 4 == 1) fmt::print("{}\n", text);
    }
  }
  EXPECT_GT(named, 0);
}

/// 256 ranks: a barrier and a small all_reduce. What that takes depends on how many cores there are
/// for so many threads, and one that connects them all.
void meet_in_great_number() {
  constexpr int kRanks = 256;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 20'000) GTEST_SKIP() << "needs 20,000 file descriptors (ulimit -Hn)";
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const auto begun = Clock::now();
  const Environment patient{{{"TUTTI_PEER_TIMEOUT", "60"}}};
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  std::atomic<double> met{0}, done{0};
  run_thread_ranks(kRanks, [&](Communicator& comm) {
    if (comm.rank() == 0) met = seconds();
    comm.barrier();
    const std::array<std::int64_t, 2> in{comm.rank(), 1 - comm.rank() * comm.rank()};
    std::array<std::int64_t, 2> out{};
    comm.all_reduce(in.data(), out.data(), in.size(), DataType::int64);
    constexpr std::int64_t kN = kRanks;
    EXPECT_EQ(out[0], kN * (kN - 1) / 2);
    EXPECT_EQ(out[1], kN - (kN - 1) * kN * (2 * kN - 1) / 6);
    comm.barrier();
    if (comm.rank() == 0) done = seconds();
  });
  fmt::print("{} ranks have met after {:.2f} s, called after {:.2f} s, left after {:.2f} s\n",
             kRanks, met.load(), done.load(), seconds());
}

TEST_F(OverChaos, ManyRanksMeet) {
  begin_chaos({.seed = 1});
  meet_in_great_number();
}

TEST_F(OverChaos, ManyRanksMeetWithoutChaos) { meet_in_great_number(); }

}  // namespace
}  // namespace tutti::test
