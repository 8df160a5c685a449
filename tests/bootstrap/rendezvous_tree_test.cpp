// The tree in which the ranks' cards go down: its shape, and what becomes of the job when one of
// its ranks dies, is stopped or lies meanwhile. Ranks that misbehave are played by
// the test, over real connections.
#include "bootstrap/rendezvous_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/frames.h"
#include "bootstrap/rendezvous_children.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "tests/bootstrap/rendezvous_ranks.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 100;  // more than a star: ranks 0 to 11 have children
constexpr int kInner = 3;    // the parent of 32 to 39
constexpr int kLeaf = 99;    // its parent is rank 11

Deadline soon() { return deadline_after(10s); }

TEST(RendezvousTree, EveryRankHasOneParent) {
  for (const int size :
       {1, 2, 63, 64, 65, 71, 72, 73, 100, 584, 585, 4096, 4097, protocol::kMaxRanks}) {
    int next = 0;
    for (int parent = tree::kServer; parent < size; ++parent) {
      ASSERT_EQ(tree::first_child(parent, size), next) << parent << " of " << size;
      next = tree::end_child(parent, size);
      ASSERT_LE(next - tree::first_child(parent, size), tree::fan_out(size));
      ASSERT_EQ(tree::has_children(parent, size), tree::first_child(parent, size) < next);
      for (int child = tree::first_child(parent, size); child < next; ++child) {
        ASSERT_LT(parent, child);
        ASSERT_EQ(tree::parent(child, size), parent) << child << " of " << size;
      }
    }
    EXPECT_EQ(next, size);
  }
}

TEST(RendezvousTree, ARosterIsCheckedByteByByte) {
  const std::vector<std::vector<std::byte>> cards{card_of(1), {}, card_of(5), card_of(3)};
  const auto bytes = protocol::roster_bytes(cards);
  const auto roster = Roster::from(bytes, 4);
  ASSERT_TRUE(roster);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(std::ranges::equal(roster->card(rank), cards[static_cast<std::size_t>(rank)]));
  }
  EXPECT_FALSE(Roster::from(bytes, 3));
  EXPECT_FALSE(Roster::from(bytes, 5));
  EXPECT_FALSE(Roster::from({}, 4));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Roster::from({bytes.begin(), bytes.begin() + static_cast<long>(length)}, 4));
  }
  for (std::size_t at = 0; at < 8; ++at) {  // of the lengths
    auto wrong = bytes;
    wrong[at] ^= std::byte{1};
    EXPECT_FALSE(Roster::from(wrong, 4)) << at;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {  // garbage: whatever is taken for a roster lies within it
    std::vector<std::byte> noise(random() % 200);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    const int size = static_cast<int>(1 + random() % 20);
    const auto read = Roster::from(noise, size);
    if (!read) continue;
    std::size_t sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += read->card(rank).size();
    EXPECT_EQ(sum + 2 * static_cast<std::size_t>(size), noise.size());
  }
}

TEST(RendezvousTree, JobsAroundTheSizesOfAStarMeet) {
  for (const int size : {64, 65, 72, 73, 130})
    expect_all_met(meet_as_threads(make_unique_id(), size));
}

TEST(RendezvousTree, ItGrowsOverIPv6Too) {
  MeetingPlace place;
  place.address = "::1";
  std::optional<UniqueId> id;
  try {
    id = make_unique_id(place);
  } catch (const Error& error) {
    GTEST_SKIP() << "no IPv6 on this machine: " << error.what();
  }
  expect_all_met(meet_as_threads(*id, kRanks));
}

// --- ranks that misbehave ---

/// A rank that the test plays, up to its placement.
struct PlayedRank {
  PlayedRank(const UniqueId& id, int rank, int size, std::int64_t patience_ms = 20'000)
      : secret(protocol::tree_secret(protocol::decode(id).secret)) {
    socket = introduce(id, session);
    protocol::Hello hello = hello_of(rank, size, patience_ms);
    if (tree::has_children(rank, size)) {
      children = std::make_unique<RendezvousChildren>(rank, size, secret, socket);
      hello.listens = children->endpoint();
    }
    const auto frame = protocol::frame(session, protocol::FrameType::hello,
                                       {protocol::bytes_of(hello), card_of(rank)});
    EXPECT_EQ(write_exactly(socket, *frame, soon()), IoResult::done);
  }

  bool hears(protocol::FrameType type) { return wait_for_frame(socket, session, reader, type); }
  protocol::Placement placement() {
    EXPECT_TRUE(hears(protocol::FrameType::placement));
    return reader.payload_as<protocol::Placement>().value_or(protocol::Placement{});
  }
  void say(protocol::FrameType type) {
    EXPECT_EQ(write_exactly(socket, *protocol::frame(session, type, {}), soon()), IoResult::done);
  }
  /// Connects to its parent, as `said`; "": what it gets is the roster.
  std::string roster_as(const protocol::Placement& placement, const protocol::Child& said,
                        protocol::FrameType type = protocol::FrameType::child) {
    protocol::Session own;
    const FileDescriptor parent = introduce(*protocol::address_of(placement.parent), secret, own);
    write_exactly(parent, *protocol::frame(own, type, {protocol::bytes_of(said)}), soon());
    std::vector<std::byte> roster(placement.roster_bytes);
    if (read_exactly(parent, roster, soon()) != IoResult::done) return "closed";
    return protocol::roster_hash(roster) == placement.roster_hash ? "" : "another roster";
  }

  const protocol::Bytes32 secret;  // of the tree
  protocol::Session session;
  FileDescriptor socket;
  protocol::FrameReader reader;
  std::unique_ptr<RendezvousChildren> children;
};

/// That all failed alike: with `code`, a message with `part`, and before `seconds` had passed.
void expect_all_failed(const std::vector<Outcome>& outcomes, ErrorCode code, int culprit,
                       const std::string& part, double seconds) {
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.met);
    EXPECT_EQ(outcome.message, outcomes.front().message);
    EXPECT_EQ(outcome.code, code) << outcome.message;
    EXPECT_EQ(outcome.culprit, culprit);
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
    EXPECT_LT(outcome.seconds, seconds);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RendezvousTree, ARankThatDiesWhileCardsArePassedFailsAllOthers) {
  for (const int victim : {0, kInner, kLeaf}) {
    const UniqueId id = make_unique_id();
    const auto outcomes = meet_but_for(id, victim, kRanks, 20s, [&] {
      PlayedRank rank(id, victim, kRanks);
      rank.placement();  // and is gone
    });
    expect_all_failed(outcomes, ErrorCode::peer_lost, victim,
                      fmt::format("rank {} of 100 joined and then left (its process ended, or it "
                                  "gave up) while the ranks' cards were passed round",
                                  victim),
                      5);
  }
}

TEST(RendezvousTree, ARankThatDiesWithItsCardsFailsAllOthersUntilAllHaveThem) {
  const UniqueId id = make_unique_id();
  std::atomic<bool> gone{false};
  // Rank 99 has told that it has the cards, and goes; rank 98 has not, until then.
  std::vector<Outcome> outcomes(kRanks);
  on_threads(kRanks, [&](int rank) {
    if (rank == kLeaf) {
      PlayedRank played(id, rank, kRanks);
      const auto placement = played.placement();
      EXPECT_EQ(played.roster_as(placement, {kLeaf, placement.nonce}), "");
      played.say(protocol::FrameType::have);
      std::this_thread::sleep_for(200ms);
      played.socket.reset();
      gone = true;
    } else if (rank == kLeaf - 1) {
      PlayedRank played(id, rank, kRanks);
      played.placement();
      while (!gone) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(played.hears(protocol::FrameType::failed));
    } else {
      outcomes[static_cast<std::size_t>(rank)] = try_to_meet(id, rank, kRanks);
    }
  });
  outcomes.resize(kLeaf - 1);
  expect_all_failed(outcomes, ErrorCode::peer_lost, kLeaf, "rank 99 of 100 joined and then left",
                    5);
}

TEST(RendezvousTree, ASilentParentIsNamedByItsChildren) {
  const UniqueId id = make_unique_id();
  std::atomic<bool> over{false};
  std::vector<Outcome> outcomes;
  std::thread played([&] {
    PlayedRank rank(id, kInner, kRanks);
    rank.placement();
    while (!over) std::this_thread::sleep_for(1ms);  // as if it were stopped
  });
  outcomes = meet_but_for(id, kInner, kRanks, 4s, [] {});
  over = true;
  played.join();
  expect_all_failed(outcomes, ErrorCode::system, kInner,
                    "cannot get the ranks' cards from rank 3 at 127.0.0.1:", 4);
  EXPECT_NE(outcomes.front().message.find("it accepted, but says nothing"), std::string::npos)
      << outcomes.front().message;
}

TEST(RendezvousTree, AParentThatKeepsTheCardsIsNamedAtTheDeadline) {
  const UniqueId id = make_unique_id();
  std::atomic<bool> over{false};
  std::thread played([&] {
    PlayedRank rank(id, kInner, kRanks);
    const auto placement = rank.placement();
    std::vector<std::byte> roster(placement.roster_bytes);
    EXPECT_EQ(read_exactly(rank.socket, roster, soon()), IoResult::done);
    rank.say(protocol::FrameType::have);
    while (!over) {
      rank.children->serve(Clock::now());
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto outcomes = meet_but_for(id, kInner, kRanks, 2s, [] {});
  over = true;
  played.join();
  expect_all_failed(outcomes, ErrorCode::timed_out, kInner,
                    "rank 3 of 100 did not take the ranks' cards, or pass them on, in time", 4);
}

TEST(RendezvousTree, ASilentLeafIsNamedAtTheDeadline) {
  const UniqueId id = make_unique_id();
  std::atomic<bool> over{false};
  std::thread played([&] {
    PlayedRank rank(id, kLeaf, kRanks);
    while (!over) std::this_thread::sleep_for(1ms);
  });
  const auto outcomes = meet_but_for(id, kLeaf, kRanks, 2s, [] {});
  over = true;
  played.join();
  expect_all_failed(outcomes, ErrorCode::timed_out, kLeaf,
                    "rank 99 of 100 did not take the ranks' cards", 4);
}

TEST(RendezvousTree, CardsThatWereAlteredAreNoticed) {
  const UniqueId id = make_unique_id();
  const auto outcomes = meet_but_for(id, kInner, kRanks, 20s, [&] {
    PlayedRank rank(id, kInner, kRanks);
    const auto placement = rank.placement();
    std::vector<std::byte> roster(placement.roster_bytes);
    EXPECT_EQ(read_exactly(rank.socket, roster, soon()), IoResult::done);
    roster[roster.size() / 2] ^= std::byte{1};
    rank.children->give(std::make_shared<const std::vector<std::byte>>(roster), placement.nonce);
    while (rank.reader.read(rank.socket, rank.session) == protocol::FrameResult::more) {
      rank.children->serve(Clock::now());
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(rank.reader.type(), protocol::FrameType::failed);
  });
  expect_all_failed(outcomes, ErrorCode::system, kInner,
                    "the ranks' cards were altered on their way from rank 3", 5);
}

TEST(RendezvousTree, OnlyItsChildrenGetAnythingFromARank) {
  const UniqueId id = make_unique_id();
  const auto outcomes = meet_but_for(id, kLeaf, kRanks, 20s, [&] {
    PlayedRank rank(id, kLeaf, kRanks);
    const auto placement = rank.placement();
    protocol::Bytes32 other_nonce = placement.nonce;
    other_nonce[0] ^= std::byte{1};
    EXPECT_EQ(rank.roster_as(placement, {kLeaf, other_nonce}), "closed");
    for (const int other : {-1, 0, 11, 95, 100, INT32_MIN, INT32_MAX}) {
      EXPECT_EQ(rank.roster_as(placement, {other, placement.nonce}), "closed") << other;
    }
    const protocol::Child me{kLeaf, placement.nonce};
    EXPECT_EQ(rank.roster_as(placement, me, protocol::FrameType::hello), "closed");

    // A conversation that went well, played again: the parent's nonce is another one.
    const auto record = [&](const protocol::Proof* old_proof, const protocol::Buffer& old_frame) {
      const FileDescriptor socket = connect_to(*protocol::address_of(placement.parent), soon());
      protocol::Greeting greeting;
      EXPECT_EQ(read_exactly(socket, protocol::writable_bytes_of(greeting), soon()),
                IoResult::done);
      protocol::Proof proof;
      protocol::fill_random(proof.nonce);
      const protocol::Session own(rank.secret, greeting.nonce, proof.nonce);
      proof.mac = own.connector_proof();
      const auto frame = protocol::frame(own, protocol::FrameType::child, {protocol::bytes_of(me)});
      write_exactly(socket, protocol::bytes_of(old_proof != nullptr ? *old_proof : proof), soon());
      write_exactly(socket, old_frame ? *old_frame : *frame, soon());
      std::vector<std::byte> answer(sizeof(protocol::Bytes32) + placement.roster_bytes);
      const IoResult result = read_exactly(socket, answer, soon());
      return std::tuple(result, proof, frame);
    };
    const auto [result, proof, frame] = record(nullptr, nullptr);
    EXPECT_EQ(result, IoResult::done);
    EXPECT_EQ(std::get<0>(record(&proof, frame)), IoResult::closed);
    EXPECT_EQ(std::get<0>(record(nullptr, frame)), IoResult::closed);

    // A child that has lost its connection may come again.
    EXPECT_EQ(rank.roster_as(placement, me), "");
    rank.say(protocol::FrameType::have);
    EXPECT_TRUE(rank.hears(protocol::FrameType::go));
  });
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.met) << outcome.message;
    ASSERT_TRUE(is_right(outcome.roster, kRanks));
  }
}

TEST(RendezvousTree, TheEndOfTheServersProcessFailsAll) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer: no threads after a fork";
#endif
  int id_pipe[2];
  ASSERT_EQ(pipe(id_pipe), 0);
  const pid_t server = fork();
  if (server == 0) {
    const UniqueId id = make_unique_id();
    if (write(id_pipe[1], id.bytes.data(), id.bytes.size()) != 128) _exit(1);
    pause();
    _exit(0);
  }
  close(id_pipe[1]);
  UniqueId id;
  ASSERT_EQ(read(id_pipe[0], id.bytes.data(), id.bytes.size()), 128);
  close(id_pipe[0]);
  const auto outcomes = meet_but_for(id, kLeaf, kRanks, 20s, [&] {
    PlayedRank rank(id, kLeaf, kRanks);
    rank.placement();
    std::this_thread::sleep_for(200ms);
    kill(server, SIGKILL);
  });
  waitpid(server, nullptr, 0);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, ErrorCode::system);
    EXPECT_NE(outcome.message.find("the process that made the unique id has ended"),
              std::string::npos)
        << outcome.message;
    EXPECT_LT(outcome.seconds, 5);
  }
}

}  // namespace
}  // namespace tutti
