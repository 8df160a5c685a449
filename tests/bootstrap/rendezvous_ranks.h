// Ranks for the tests of the rendezvous: threads that try to meet, and what became of it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/frames.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// A card that differs in length by rank, and in every byte by rank and position.
inline std::vector<std::byte> card_of(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  std::vector<std::byte> card(rank == 5 ? kMaxCardBytes : r * 37 % 301);  // rank 0: none at all
  for (std::size_t i = 0; i < card.size(); ++i) {
    card[i] = static_cast<std::byte>((r * 151 + i * 7) % 251);
  }
  return card;
}

inline bool is_right(const Roster& roster, int size) {
  if (roster.size() != size) return false;
  for (int rank = 0; rank < size; ++rank) {
    if (!std::ranges::equal(roster.card(rank), card_of(rank))) return false;
  }
  return true;
}

struct Outcome {
  bool met = false;
  Roster roster;
  ErrorCode code{};
  std::string message;
  int culprit = -1;
  double seconds = 0;
};

inline Outcome try_to_meet(const UniqueId& id, int rank, int size,
                           std::chrono::nanoseconds timeout = std::chrono::seconds(20)) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    outcome.roster = rendezvous(id, rank, size, card_of(rank), timeout);
    outcome.met = true;
  } catch (const Error& error) {
    outcome.code = error.code();
    outcome.message = error.what();
    outcome.culprit = error.rank();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

/// Runs `body(i)` on `count` threads with small stacks, and waits for them.
inline void on_threads(int count, const std::function<void(int)>& body) {
  struct Argument {
    const std::function<void(int)>* body;
    int index;
  };
  std::vector<Argument> arguments(static_cast<std::size_t>(count));
  std::vector<pthread_t> threads(static_cast<std::size_t>(count));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    arguments[i] = {&body, static_cast<int>(i)};
    const auto run = [](void* argument) -> void* {
      const auto* call = static_cast<const Argument*>(argument);
      (*call->body)(call->index);
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&threads[i], &attributes, run, &arguments[i]), 0);
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

inline std::vector<Outcome> meet_as_threads(
    const UniqueId& id, int size, std::chrono::nanoseconds timeout = std::chrono::seconds(20)) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  on_threads(size, [&](int rank) {
    outcomes[static_cast<std::size_t>(rank)] = try_to_meet(id, rank, size, timeout);
  });
  return outcomes;
}

/// All ranks but `played`, which is the test's; `play` runs beside them.
inline std::vector<Outcome> meet_but_for(const UniqueId& id, int played, int size,
                                         std::chrono::nanoseconds patience,
                                         const std::function<void()>& play) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  on_threads(size, [&](int rank) {
    if (rank == played) {
      play();
    } else {
      outcomes[static_cast<std::size_t>(rank)] = try_to_meet(id, rank, size, patience);
    }
  });
  outcomes.erase(outcomes.begin() + played);
  return outcomes;
}

inline void expect_all_met(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.met) << outcome.message;
    EXPECT_TRUE(is_right(outcome.roster, static_cast<int>(outcomes.size())));
    EXPECT_EQ(outcome.roster.session_secret, outcomes.front().roster.session_secret);
    if (testing::Test::HasFailure()) return;
  }
}

inline FileDescriptor connect_raw(const UniqueId& id) {
  return connect_to(protocol::decode(id).address, deadline_after(std::chrono::seconds(5)));
}

// --- ranks that the test plays by hand ---

inline protocol::Hello hello_of(int rank, int size, std::int64_t patience_ms) {
  protocol::Hello hello;
  hello.rank = rank;
  hello.size = size;
  hello.patience_ms = patience_ms;
  return hello;
}

/// Connects and proves itself.
inline FileDescriptor introduce(const SocketAddress& address, const protocol::Bytes32& secret,
                                protocol::Session& session) {
  const Deadline deadline = deadline_after(std::chrono::seconds(10));
  Introduction attempt(address, secret);
  while (!attempt.ended() && wait_for(attempt.descriptor(), attempt.events(), deadline)) {
    attempt.step();
  }
  EXPECT_EQ(attempt.state(), Introduction::State::done);
  session = attempt.session();
  return std::move(attempt.socket());
}

inline FileDescriptor introduce(const UniqueId& id, protocol::Session& session) {
  const protocol::Ticket ticket = protocol::decode(id);
  return introduce(ticket.address, ticket.secret, session);
}

/// Whether the next frame is of `type`; false also when the connection ends.
inline bool wait_for_frame(const FileDescriptor& socket, const protocol::Session& session,
                           protocol::FrameReader& reader, protocol::FrameType type) {
  const Deadline deadline = deadline_after(std::chrono::seconds(10));
  while (true) {
    const protocol::FrameResult result = reader.read(socket, session);
    if (result == protocol::FrameResult::whole) return reader.type() == type;
    if (result != protocol::FrameResult::more || !wait_for(socket.fd(), POLLIN, deadline))
      return false;
  }
}

}  // namespace tutti
