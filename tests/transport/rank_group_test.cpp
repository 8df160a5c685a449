// The parts of a RankGroup, each by itself: who the ranks are, the first failure, and what a rank
// learns of the others. Threads stand for ranks, and names for hosts; no network is involved.
#include "transport/rank_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collectives/model/findings.h"
#include "transport/host/failure.h"
#include "transport/sockets/handshake.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// The ranks of a job: rank r is on host `hosts[r]`.
std::vector<std::shared_ptr<HostPeers>> job(const std::vector<std::string>& hosts) {
  std::vector<std::shared_ptr<HostPeers>> peers;
  std::vector<HostPeerAddress> addresses;
  for (const std::string& host : hosts) {
    peers.push_back(std::make_shared<HostPeers>(host));
    addresses.push_back(peers.back()->listen());
  }
  protocol::Bytes32 secret;
  protocol::fill_random(secret);
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers[r]->meet(static_cast<int>(r), addresses, 1, secret, deadline_after(10s));
  }
  return peers;
}

// --- Members -------------------------------------------------------------------------------------

TEST(Members, ArriveInTheOrderOfTheCommunicatorNotOfTheJob) {
  const auto peers = job({"a", "b", "a", "b", "a"});
  const Members members(peers[4], {1, {2, 4, 3}, {12, 14, 13}, 77});
  EXPECT_EQ(members.rank(), 1);
  EXPECT_EQ(members.size(), 3);
  EXPECT_EQ(members.id(), 77U);
  EXPECT_EQ(members.key(2), 13U);
  EXPECT_EQ(members.member(0), 2);
  EXPECT_EQ(members.rank_of(3), 2);
  EXPECT_EQ(members.rank_of(0), -1) << "it is in the job, but not here";
  const std::vector<int> some{4, 1, 2};
  EXPECT_EQ(members.ranks_among(some), (std::vector<int>{1, 0}));
}

TEST(Members, KnowTheirHosts) {
  const auto peers = job({"a", "b", "a", "b"});
  const Members mixed(peers[1], {1, {0, 1, 3}, {1, 2, 3}, 7});
  EXPECT_FALSE(mixed.one_host());
  EXPECT_TRUE(std::ranges::equal(mixed.ranks_here(), std::vector<int>{1, 2}));
  EXPECT_FALSE(mixed.same_host(0));
  EXPECT_NE(mixed.host(0), mixed.host(2));
  const Members together(peers[1], {0, {1, 3}, {2, 3}, 8});
  EXPECT_TRUE(together.one_host());
  EXPECT_TRUE(together.one_process());
  EXPECT_FALSE(together.alone_in_process());
  EXPECT_FALSE(together.is_inherited());
}

TEST(Members, AreNamedByTheirNumberInTheJobWhereThatDiffers) {
  const auto peers = job({"a", "a", "a"});
  const Members members(peers[0], {0, {0, 2}, {1, 2}, 7});
  EXPECT_EQ(members.process_text(0), "pid " + std::to_string(getpid()));
  EXPECT_EQ(members.process_text(1), "rank 2 of the job, pid " + std::to_string(getpid()));
}

// --- Failures ------------------------------------------------------------------------------------

TEST(FirstFailure, StaysTheFirst) {
  FailureRecord record{};
  EXPECT_FALSE(record.is_there());
  EXPECT_FALSE(record.read());
  EXPECT_TRUE(record.write({ErrorCode::peer_lost, 3, "rank 3 died", true}));
  EXPECT_FALSE(record.write({ErrorCode::timed_out, 4, "too late", false}));
  EXPECT_TRUE(record.is_there());
  const auto failure = record.read();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::peer_lost);
  EXPECT_EQ(failure->rank, 3);
  EXPECT_EQ(failure->text, "rank 3 died");
  EXPECT_TRUE(failure->cut_off);
}

TEST(FirstFailure, IsCutToItsRoom) {
  FailureRecord record{};
  const std::string text(record.text.size() + 10, 'x');
  record.write({ErrorCode::internal, -1, text, false});
  EXPECT_EQ(record.read()->text, text.substr(0, record.text.size() - 1));
}

TEST(FirstFailure, IsThereButCannotBeReadWhileItIsBeingWritten) {
  FailureRecord record{};
  record.state.store(1);
  EXPECT_TRUE(record.is_there());
  EXPECT_FALSE(record.read());
}

TEST(FirstFailure, ComesBackFromItsBytes) {
  const auto bytes = to_bytes({ErrorCode::mismatch, 2, "calls do not match", true});
  const auto failure = failure_from(bytes, 3);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::mismatch);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->text, "calls do not match");
  EXPECT_TRUE(failure->cut_off);
  EXPECT_EQ(failure_from(bytes, 2)->rank, -1) << "there is no such rank";
  EXPECT_FALSE(failure_from(std::span(bytes).first(8), 3));
  auto other = bytes;
  other[0] = std::byte{200};
  EXPECT_EQ(failure_from(other, 3)->code, ErrorCode::internal) << "there is no such code";
}

// --- What one finds for all ---

TEST(Findings, AreFoundByTheFirstThatAsks) {
  const auto findings = std::make_unique<Findings>();
  EXPECT_EQ(findings->ask(5, 1), 0) << "this rank is to find it";
  std::vector<std::thread> others;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    others.emplace_back([&] { right += findings->ask(5, 1) == 200 ? 1 : 0; });
  }
  std::this_thread::sleep_for(20ms);
  findings->say(5, 200);
  for (std::thread& other : others) other.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(findings->ask(5, 1), 200);
  EXPECT_EQ(findings->ask(6, 1), 0) << "another question";
}

TEST(Findings, AreFoundAgainWhereTheFirstSaysNothing) {
  const auto findings = std::make_unique<Findings>();
  EXPECT_EQ(findings->ask(5, 1), 0);
  const auto start = Clock::now();
  EXPECT_EQ(findings->ask(5, 1), 0);
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST(Findings, KeepAsManyAsHaveRoom) {
  const auto findings = std::make_unique<Findings>();
  // Numbers that want the same place, too.
  for (std::uint64_t q = 1; q <= 100; ++q) {
    EXPECT_EQ(findings->ask(64 * q + q % 3, 1), 0) << q;
    findings->say(64 * q + q % 3, static_cast<std::uint8_t>(q));
  }
  int kept = 0;
  for (std::uint64_t q = 1; q <= 100; ++q) {
    const int found = findings->ask(64 * q + q % 3, 1);
    EXPECT_TRUE(found == 0 || found == static_cast<int>(q)) << q;
    kept += found > 0 ? 1 : 0;
  }
  EXPECT_EQ(kept, 64);
}

// --- What a rank learns of the others ------------------------------------------------------------

/// Communicators of as many ranks as there are `host_peers`, all on one host.
std::vector<std::unique_ptr<RankGroup>> communicator(
    const std::vector<std::shared_ptr<HostPeers>>& host_peers, std::uint64_t first_key) {
  std::vector<std::unique_ptr<RankGroup>> groups(host_peers.size());
  std::vector<int> members;
  std::vector<std::uint64_t> keys;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    members.push_back(static_cast<int>(r));
    keys.push_back(first_key + r);
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    threads.emplace_back([&, r] {
      groups[r] = std::make_unique<RankGroup>(
          host_peers[r], nullptr, Members::Ranks{static_cast<int>(r), members, keys, first_key},
          ConnectionShape{2, kCacheLine}, RankCard{true, {}}, deadline_after(10s));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

class ThreeRanks : public testing::Test {
 protected:
  Diagnostics& diagnostics(int rank) { return group(rank).diagnostics(); }
  RankGroup& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }

  std::vector<std::shared_ptr<HostPeers>> host_peers_ = job({"a", "a", "a"});
  std::vector<std::unique_ptr<RankGroup>> groups_ = communicator(host_peers_, 0x7573f00);
};

TEST_F(ThreeRanks, SayWhatTheyHaveFinishedLast) {
  ControlBlock& control = group(1).control();
  control.records[0][12 % kRecords].sequence.store(12);
  control.progress.store(progress_of(12, 3));
  EXPECT_EQ(diagnostics(0).progress_text(1), "step 3 of its operation #12");
  // More steps than there are bits for count on into the next operation's number.
  control.progress.store(progress_of(13, 5));
  EXPECT_EQ(diagnostics(0).progress_text(1), "step 16777221 of its operation #12");
  // Another series does not count.
  control.records[1][13 % kRecords].sequence.store(13);
  EXPECT_EQ(diagnostics(0).progress_text(1), "step 16777221 of its operation #12");
}

TEST_F(ThreeRanks, HearOfARefusedCallUntilThereIsANewerOne) {
  EXPECT_EQ(diagnostics(2).refusal_text(1), "");
  group(1).control().refused.say(5, "count is wrong");
  EXPECT_EQ(diagnostics(2).refusal_text(1), "; a call of rank 1 was refused: count is wrong");
  group(1).control().records[0][5 % kRecords].sequence.store(5);
  EXPECT_EQ(diagnostics(2).refusal_text(1), "");
}

TEST_F(ThreeRanks, FollowALineOfWaitsToItsEnd) {
  const auto now = Clock::now();
  EXPECT_EQ(diagnostics(0).end_of_line(1, now - 1s), 1);
  diagnostics(1).publish_wait(2, now);
  EXPECT_EQ(diagnostics(0).end_of_line(1, now - 1s), 2);
  EXPECT_EQ(diagnostics(0).end_of_line(1, now + 1s), 1) << "it has not waited since";
  diagnostics(2).publish_wait(1, now);
  EXPECT_EQ(diagnostics(0).end_of_line(1, now - 1s), 1) << "the two wait for each other";
}

TEST_F(ThreeRanks, ShowTheirWaitsUntilTheseEnd) {
  const ControlBlock& block = group(1).control();
  EXPECT_EQ(block.nameplate.magic.load(), Nameplate::kMagic);
  EXPECT_EQ(block.nameplate.rank, 1);
  EXPECT_EQ(block.nameplate.size, 3);
  EXPECT_EQ(block.nameplate.communicator, group(2).control().nameplate.communicator);
  EXPECT_NE(block.nameplate.identity, group(2).control().nameplate.identity);
  const auto now = Clock::now();
  const auto shown = [&] {
    std::set<std::string> calls;
    for (const ShownWait& w : block.shown_waits) {
      if (w.since.load() != 0) calls.insert(w.call.read().value().text);
    }
    return calls;
  };
  diagnostics(1).show_wait(2, "one", false, now - 3s, now - 1s);
  diagnostics(1).show_wait(0, "two", true, now - 2s, now);
  diagnostics(1).show_wait(2, "one", false, now - 3s, now);  // the same again
  EXPECT_EQ(shown(), (std::set<std::string>{"one", "two"}));
  diagnostics(1).end_wait(now - 3s);
  EXPECT_EQ(shown(), std::set<std::string>{"two"});
  // More than there are places for: the one that nobody has looked at for longest gives way.
  for (int i = 1; i <= static_cast<int>(ControlBlock::kShownWaits); ++i) {
    diagnostics(1).show_wait(0, std::to_string(i), true, now + i * 1s, now + i * 1s);
  }
  EXPECT_EQ(shown(), (std::set<std::string>{"1", "2", "3", "4"}));
}

TEST_F(ThreeRanks, HearForWhatARankWaitsInItsOtherCommunicators) {
  EXPECT_EQ(diagnostics(0).waiting_text(1), "");
  EXPECT_EQ(diagnostics(1).own_doing_text(), "");
  const auto other = communicator(host_peers_, 0x7573f80);
  diagnostics(1).say_waiting("waiting for rank 2");
  EXPECT_EQ(diagnostics(1).own_doing_text(), " while waiting for rank 2");
  EXPECT_EQ(diagnostics(0).waiting_text(1), "; that rank is itself waiting for rank 2");
  const std::string elsewhere = other[0]->diagnostics().waiting_text(1);
  EXPECT_NE(elsewhere.find("in another communicator: waiting for rank 2"), std::string::npos)
      << elsewhere;
  EXPECT_EQ(other[0]->diagnostics().waiting_text(2), "") << "rank 2 does not wait";
}

TEST_F(ThreeRanks, ShareTheFirstFailure) {
  EXPECT_NO_THROW(group(2).liveness().throw_if_failed());
  group(1).liveness().fail({ErrorCode::aborted, 1, "rank 1 aborted", false});
  group(0).liveness().fail({ErrorCode::timed_out, 2, "too late", false});
  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(group(r).liveness().failed());
    try {
      group(r).liveness().throw_if_failed();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_EQ(error.rank(), 1);
      EXPECT_STREQ(error.what(), "rank 1 aborted");
    }
  }
}

// The word that ends a meeting may be there a moment before the record that says why.
TEST_F(ThreeRanks, WaitForTheReasonOfAFailure) {
  std::thread late([&] {
    std::this_thread::sleep_for(20ms);
    group(1).liveness().fail({ErrorCode::peer_lost, 2, "rank 2 died", false});
  });
  try {
    group(0).liveness().throw_failure();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    EXPECT_STREQ(error.what(), "rank 2 died");
  }
  late.join();
}

TEST_F(ThreeRanks, SayThatNobodyHasGivenAReason) {
  const Failure failure = group(0).liveness().failure();
  EXPECT_EQ(failure.code, ErrorCode::peer_lost);
  EXPECT_NE(failure.text, "");
}

TEST_F(ThreeRanks, SeeThatARankHasLeftWhichIsNoFailure) {
  EXPECT_FALSE(group(0).liveness().has_left(2));
  groups_[2].reset();
  EXPECT_TRUE(group(0).liveness().has_left(2));
  group(0).liveness().check_peers("looking");
  EXPECT_FALSE(group(0).liveness().failed());
  EXPECT_TRUE(group(0).liveness().dead_ranks().empty());
}

TEST_F(ThreeRanks, LayOutTheirAreaBeforeTheOthersSeeIt) {
  // Zeros where nobody has laid anything out.
  EXPECT_TRUE(
      std::ranges::all_of(group(0).control(1).area, [](std::byte b) { return b == std::byte{0}; }));
  RankGroup alone(host_peers_[0], nullptr, Members::Ranks{0, {0}, {0x7573ff0}, 1},
                  ConnectionShape{2, kCacheLine},
                  RankCard{true,
                           [](ControlBlock& own) {
                             EXPECT_EQ(own.state.load(), 0U) << "the rank has joined before";
                             own.area[3] = std::byte{9};
                           }},
                  deadline_after(10s));
  EXPECT_EQ(alone.control().area[3], std::byte{9});
}

}  // namespace
}  // namespace tutti
