// Strangers at the rendezvous: garbage, silence, replays, wrong secrets, impostors. None of them
// may join, crash or hold up the ranks that know the secret.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/frames.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "tests/bootstrap/rendezvous_ranks.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

TEST(RendezvousStrangers, AWrongSecretIsRefused) {
  const UniqueId id = make_unique_id();
  protocol::Ticket ticket = protocol::decode(id);
  ticket.secret[17] ^= std::byte{1};
  const Outcome stranger = try_to_meet(protocol::encode(ticket), 0, 2);
  EXPECT_EQ(stranger.code, ErrorCode::system);
  EXPECT_NE(stranger.message.find("does not share the secret"), std::string::npos)
      << stranger.message;
  EXPECT_LT(stranger.seconds, 2);
  expect_all_met(meet_as_threads(id, 2));
}

TEST(RendezvousStrangers, AnImpostorServerIsRefused) {
  FileDescriptor listener = listen_at(*parse_address("127.0.0.1", 0));
  protocol::Ticket ticket{bound_address(listener), {}};
  std::atomic<bool> stop{false};
  std::thread impostor([&] {
    // Greets properly, and then returns the rank's own proof, for want of the secret.
    while (!stop) {
      const FileDescriptor socket = accept_from(listener);
      if (!socket) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      const protocol::Greeting greeting;
      protocol::Proof proof;
      write_exactly(socket, protocol::bytes_of(greeting), deadline_after(1s));
      read_exactly(socket, protocol::writable_bytes_of(proof), deadline_after(1s));
      write_exactly(socket, proof.mac, deadline_after(1s));
    }
  });
  const Outcome outcome = try_to_meet(protocol::encode(ticket), 0, 1);
  stop = true;
  impostor.join();
  EXPECT_EQ(outcome.code, ErrorCode::system);
  EXPECT_NE(outcome.message.find("does not share the secret"), std::string::npos)
      << outcome.message;
}

TEST(RendezvousStrangers, AServerOfAnotherVersionIsRefused) {
  const FileDescriptor listener = listen_at(*parse_address("127.0.0.1", 0));
  const UniqueId id = protocol::encode({bound_address(listener), {}});
  const auto meet_it = [&](const protocol::Greeting& greeting) {
    std::thread server([&] {
      ASSERT_TRUE(wait_for(listener.fd(), POLLIN, deadline_after(5s)));
      const FileDescriptor socket = accept_from(listener);
      write_exactly(socket, protocol::bytes_of(greeting), deadline_after(1s));
      std::byte more{};  // nothing is said to it
      EXPECT_EQ(read_exactly(socket, std::span(&more, 1), deadline_after(5s)), IoResult::closed);
    });
    const Outcome outcome = try_to_meet(id, 0, 1);
    server.join();
    return outcome;
  };
  protocol::Greeting newer;
  ++newer.version;
  const Outcome outcome = meet_it(newer);
  EXPECT_EQ(outcome.code, ErrorCode::mismatch);
  EXPECT_NE(outcome.message.find("all ranks need the same Tutti"), std::string::npos)
      << outcome.message;
  EXPECT_EQ(outcome.message.find('\n'), std::string::npos);

  protocol::Greeting stranger;
  stranger.magic[0] = 'T';
  EXPECT_NE(meet_it(stranger).message.find("is not a rendezvous of Tutti"), std::string::npos);
}

TEST(RendezvousStrangers, ASilentServerCannotOutlastTheDeadline) {
  const FileDescriptor listener = listen_at(*parse_address("127.0.0.1", 0));
  const Outcome outcome = try_to_meet(protocol::encode({bound_address(listener), {}}), 0, 1, 300ms);
  EXPECT_EQ(outcome.code, ErrorCode::timed_out);
  EXPECT_LT(outcome.seconds, 2);
}

TEST(RendezvousStrangers, AReplayedConversationIsRefused) {
  const UniqueId id = make_unique_id();
  const protocol::Ticket ticket = protocol::decode(id);
  // A whole conversation, as an eavesdropper has it: rank 0 of 2 proves itself.
  protocol::Proof proof;
  protocol::Bytes32 answer{};
  FileDescriptor honest = connect_raw(id);
  protocol::Greeting greeting;
  ASSERT_EQ(read_exactly(honest, protocol::writable_bytes_of(greeting), deadline_after(5s)),
            IoResult::done);
  protocol::fill_random(proof.nonce);
  const protocol::Session session(ticket.secret, greeting.nonce, proof.nonce);
  proof.mac = session.connector_proof();
  const protocol::Hello hello = hello_of(0, 2, 20'000);
  const auto request =
      protocol::frame(session, protocol::FrameType::hello, {protocol::bytes_of(hello), card_of(0)});
  write_exactly(honest, protocol::bytes_of(proof), deadline_after(5s));
  ASSERT_EQ(read_exactly(honest, answer, deadline_after(5s)), IoResult::done);
  EXPECT_TRUE(protocol::equal(answer, session.acceptor_proof()));
  write_exactly(honest, *request, deadline_after(5s));

  // The same bytes again, on another connection: the server's nonce is another one.
  FileDescriptor replay = connect_raw(id);
  protocol::Greeting other;
  ASSERT_EQ(read_exactly(replay, protocol::writable_bytes_of(other), deadline_after(5s)),
            IoResult::done);
  EXPECT_NE(other.nonce, greeting.nonce);
  write_exactly(replay, protocol::bytes_of(proof), deadline_after(5s));
  write_exactly(replay, *request, deadline_after(5s));
  EXPECT_EQ(read_exactly(replay, answer, deadline_after(5s)), IoResult::closed);

  // The honest rank goes on by itself. Its roster comes behind its placement.
  Outcome other_rank;
  std::thread rank_1([&] { other_rank = try_to_meet(id, 1, 2); });
  protocol::FrameReader reader;
  ASSERT_TRUE(wait_for_frame(honest, session, reader, protocol::FrameType::placement));
  const auto placement = reader.payload_as<protocol::Placement>();
  ASSERT_TRUE(placement);
  std::vector<std::byte> roster(placement->roster_bytes);
  EXPECT_EQ(read_exactly(honest, roster, deadline_after(5s)), IoResult::done);
  write_exactly(honest, *protocol::frame(session, protocol::FrameType::have, {}),
                deadline_after(5s));
  EXPECT_TRUE(wait_for_frame(honest, session, reader, protocol::FrameType::go));
  rank_1.join();
  EXPECT_TRUE(other_rank.met) << other_rank.message;
}

TEST(RendezvousStrangers, ChangedHellosAndImpossibleRanksAreRefused) {
  const UniqueId id = make_unique_id();
  const auto say = [&](const std::vector<std::byte>& frame_of_it, auto change) {
    protocol::Session session;
    FileDescriptor socket = introduce(id, session);
    std::vector<std::byte> bytes =
        *protocol::frame(session, protocol::FrameType::hello, {std::span(frame_of_it)});
    change(bytes);
    write_exactly(socket, bytes, deadline_after(5s));
    protocol::FrameReader reader;
    if (!wait_for_frame(socket, session, reader, protocol::FrameType::failed)) return ErrorCode{};
    return protocol::failure_in(reader.payload(), 1)->code();
  };
  const auto as_it_is = [](std::vector<std::byte>&) {};
  const auto payload_of = [](const protocol::Hello& hello, std::size_t card = 0) {
    const auto bytes = protocol::bytes_of(hello);
    std::vector<std::byte> payload(bytes.begin(), bytes.end());
    payload.resize(payload.size() + card);
    return payload;
  };
  const std::vector<std::byte> right = payload_of(hello_of(0, 2, 1000), 100);
  // Each bit counts: of the type, the length, the payload and the MAC. Closed without a word.
  for (const std::size_t at : {0U, 8U, 12U, 16U, 60U, 147U, 148U, 179U}) {
    const auto flip = [&](std::vector<std::byte>& bytes) { bytes.at(at) ^= std::byte{4}; };
    EXPECT_EQ(say(right, flip), ErrorCode{}) << at;
  }
  const auto too_long = [](std::vector<std::byte>& bytes) { bytes[6] = std::byte{1}; };
  EXPECT_EQ(say(right, too_long), ErrorCode{});
  // A hello that is cut short, though its MAC is right.
  EXPECT_EQ(say(std::vector<std::byte>(sizeof(protocol::Hello) - 1), as_it_is), ErrorCode{});

  const std::vector<protocol::Hello> impossible{hello_of(-1, 2, 1000),
                                                hello_of(2, 2, 1000),
                                                hello_of(0, 0, 1000),
                                                hello_of(INT32_MIN, INT32_MIN, 1000),
                                                hello_of(INT32_MAX - 1, INT32_MAX, 1000),
                                                hello_of(0, 2, -1)};
  for (const auto& hello : impossible) {
    EXPECT_EQ(say(payload_of(hello), as_it_is), ErrorCode::invalid_argument)
        << hello.rank << "/" << hello.size;
  }
  // Too long a card, and children that could not find their parent.
  EXPECT_EQ(say(payload_of(hello_of(0, 2, 1000), kMaxCardBytes + 1), as_it_is),
            ErrorCode::internal);
  EXPECT_EQ(say(payload_of(hello_of(0, 100, 1000)), as_it_is), ErrorCode::internal);
  expect_all_met(meet_as_threads(id, 2));
}

TEST(RendezvousStrangers, AFloodIsCutOff) {
  const UniqueId id = make_unique_id();
  FileDescriptor socket = connect_raw(id);
  protocol::Greeting greeting;
  ASSERT_EQ(read_exactly(socket, protocol::writable_bytes_of(greeting), deadline_after(5s)),
            IoResult::done);
  const std::vector<std::byte> flood(1 << 20, std::byte{0x5a});
  // The kernel may take it all; the server has closed after the first 64 bytes.
  write_exactly(socket, flood, deadline_after(10s));
  std::byte more{};
  EXPECT_EQ(read_exactly(socket, std::span(&more, 1), deadline_after(10s)), IoResult::closed);
  EXPECT_TRUE(try_to_meet(id, 0, 1).met);
}

TEST(RendezvousStrangers, AThousandVisitorsDoNoHarm) {
  const UniqueId id = make_unique_id();
  Outcome outcome;
  on_threads(2, [&](int i) {
    if (i == 0) {
      outcome = try_to_meet(id, 0, 2);
      return;
    }
    for (int visit = 0; visit < 1000; ++visit) connect_raw(id);
    EXPECT_TRUE(try_to_meet(id, 1, 2).met);
  });
  EXPECT_TRUE(outcome.met) << outcome.message;
}

TEST(RendezvousStrangers, RanksMeetWhileOthersAttack) {
  const UniqueId id = make_unique_id();
  std::atomic<bool> stop{false};
  std::atomic<int> attacks{0};
  std::vector<Outcome> outcomes;
  on_threads(25, [&](int i) {
    if (i == 24) {
      std::this_thread::sleep_for(300ms);
      outcomes = meet_as_threads(id, 12);
      stop = true;
      return;
    }
    std::mt19937 random(static_cast<unsigned>(i));
    std::vector<FileDescriptor> held;
    while (!stop) {
      FileDescriptor socket = connect_raw(id);
      if (!socket) return;  // the server has done its work
      ++attacks;
      std::vector<std::byte> noise(1 + random() % 200);
      for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
      switch (i % 4) {
        case 0:  // random bytes
          write_exactly(socket, noise, deadline_after(100ms));
          break;
        case 1:  // a byte at a time, for ever
          write_exactly(socket, std::span(noise).first(1), deadline_after(100ms));
          held.push_back(std::move(socket));
          std::this_thread::sleep_for(10ms);
          break;
        case 2:  // half open
          held.push_back(std::move(socket));
          std::this_thread::sleep_for(10ms);
          break;
        default:  // a fixed wrong proof
          write_exactly(socket, protocol::bytes_of(protocol::Proof{}), deadline_after(100ms));
          break;
      }
    }
  });
  ASSERT_EQ(outcomes.size(), 12U);
  expect_all_met(outcomes);
  for (const Outcome& outcome : outcomes) EXPECT_LT(outcome.seconds, 10);
  EXPECT_GT(attacks, 100);
}

/// The addresses at which this process listens.
std::vector<SocketAddress> listening_addresses() {
  std::vector<SocketAddress> result;
  for (int fd = 3; fd < 4096; ++fd) {
    int listens = 0;
    socklen_t length = sizeof listens;
    SocketAddress address;
    address.length = sizeof address.storage;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
        getsockname(fd, address.get(), &address.length) == 0 && address.family() == AF_INET) {
      result.push_back(address);
    }
  }
  return result;
}

TEST(RendezvousStrangers, FiftyThousandStrangersAtEveryDoorDoNoHarm) {
  constexpr int kRanks = 100;  // more than a star: ranks 0 to 11 have children
  constexpr int kLeaf = 99;
  constexpr int kAttackers = 4;
  constexpr int kVisits = 50'000;
  const auto undisturbed = [] {
    const UniqueId id = make_unique_id();
    const auto start = std::chrono::steady_clock::now();
    expect_all_met(meet_as_threads(id, kRanks));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }();
  const UniqueId id = make_unique_id();
  std::atomic<int> visits{0};
  std::atomic<bool> over{false};
  std::vector<std::thread> attackers;
  double last_rank_took = 0;
  // All but rank 99 wait; it comes while the attack is under way.
  const auto outcomes = meet_but_for(id, kLeaf, kRanks, 100s, [&] {
    std::vector<SocketAddress> doors;
    while ((doors = listening_addresses()).size() < 13) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(doors.size(), 13U);  // the server's, and those of ranks 0 to 11
    for (int i = 0; i < kAttackers; ++i) {
      attackers.emplace_back([&, i, doors] {
        std::mt19937 random(static_cast<unsigned>(i));
        std::vector<FileDescriptor> held(50 * doors.size());
        std::size_t next = 0;
        while (!over || visits < kVisits) {
          if (over && listening_addresses().empty()) break;
          FileDescriptor socket = start_connecting(doors[random() % doors.size()]);
          if (!socket) break;
          ++visits;
          std::vector<std::byte> noise(1 + random() % 100);
          for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
          switch (random() % 3) {
            case 0:
              write_exactly(socket, noise, Deadline{});
              break;
            case 1:
              write_exactly(socket, protocol::bytes_of(protocol::Proof{}), Deadline{});
              break;
            default:  // half open
              break;
          }
          held[next++ % held.size()] = std::move(socket);
        }
      });
    }
    while (visits < kVisits) std::this_thread::sleep_for(1ms);
    const Outcome last = try_to_meet(id, kLeaf, kRanks, 100s);
    EXPECT_TRUE(last.met) << last.message;
    last_rank_took = last.seconds;
    over = true;
    for (auto& attacker : attackers) attacker.join();
  });
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.met) << outcome.message;
    ASSERT_TRUE(is_right(outcome.roster, kRanks));
  }
  fmt::print("{} visits; a start takes {:.3f} s alone; the last rank took {:.3f} s\n",
             visits.load(), undisturbed, last_rank_took);
  // The attackers want the cores as well, so there is some leeway beyond the tenth.
  EXPECT_LT(last_rank_took, 1.1 * undisturbed + 1);
}

}  // namespace
}  // namespace tutti
