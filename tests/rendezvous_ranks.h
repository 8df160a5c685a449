// Ranks for the tests of the rendezvous: threads that try to meet, and what became of it.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "transport/socket.h"

namespace tutti {

/// A card that differs in every byte by rank and position.
inline Card card_of(int rank) {
  Card card;
  for (std::size_t i = 0; i < card.bytes.size(); ++i) {
    card.bytes[i] = static_cast<std::byte>((static_cast<std::size_t>(rank) * 151 + i * 7) % 251);
  }
  return card;
}

inline void expect_roster(const Roster& roster, int size) {
  ASSERT_EQ(roster.cards.size(), static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(roster.cards[static_cast<std::size_t>(rank)].bytes, card_of(rank).bytes) << rank;
  }
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

inline void expect_all_met(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.met) << outcome.message;
    expect_roster(outcome.roster, static_cast<int>(outcomes.size()));
    EXPECT_EQ(outcome.roster.session_secret, outcomes.front().roster.session_secret);
    if (testing::Test::HasFailure()) return;
  }
}

inline FileDescriptor connect_raw(const UniqueId& id) {
  return connect_to(wire::decode(id).address, deadline_after(std::chrono::seconds(5)));
}

}  // namespace tutti
