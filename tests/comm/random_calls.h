// Random calls whose results are checked: collectives of every kind and size, messages, groups,
// started calls, on several communicators that come and go, with memory that comes and goes. For
// tests that look for what calls do to each other, and for what a fault does to them.
//
// All ranks draw the same calls from one seed; which memory they use, the order in which they start
// and wait, and when they sleep is each rank's own. Data are distinct by call, rank and position.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "comm/communicator.h"
#include "core/memory.h"

namespace tutti::test {

/// What buffers are taken from.
enum class MemoryUse : std::uint8_t {
  kept,        // windows and other memory that was there before
  windows,     // windows that live for one call
  registered,  // memory that is a window for one call
  any,         // all of it, kept or not
};

/// What a step does.
enum class Action : std::uint8_t { call, message, group, start, split, shrink, mixed };

/// A buffer of one kind.
class Block {
 public:
  enum class Kind : std::uint8_t { plain, window, container, registered };
  Block(Kind kind, std::size_t bytes);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();
  Kind kind() const { return kind_; }
  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }

 private:
  Kind kind_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
  std::vector<std::byte> plain_;
  std::vector<std::byte, Allocator<std::byte>> container_;
};

class RandomCalls {
 public:
  /// On `comm` and on communicators made of it.
  RandomCalls(Communicator& comm, unsigned seed, Action action, MemoryUse memory);

  /// Throws what the library throws, and std::runtime_error for a wrong result. An Error's rank is
  /// one of `comm`, whichever communicator has failed.
  void step();
  /// After an Error: makes the communicators of this object fail, so that nobody waits there for a
  /// rank that has stopped making calls.
  void stop();

 private:
  using Random = std::mt19937;

  /// A communicator, and which ranks of `comm` it consists of. Not a member: an empty one.
  struct Team {
    Communicator comm;
    std::vector<int> ranks;
    std::uint64_t salt = 0;
  };
  struct Prepared;  // a call, its memory, and what is to come out

  void act(Action action);
  void call();
  void message();
  void group_of_calls();
  void start();
  void split();
  void shrink();

  Team& draw_team();
  std::unique_ptr<Prepared> prepare(Team& team, Collective collective, std::uint32_t draw);
  std::unique_ptr<Prepared> prepare_any(Team& team);
  void check(const Prepared& prepared) const;
  /// Runs `body`, whose calls are on `team`.
  template <class Body>
  void on(const Team& team, Body&& body) const;

  std::unique_ptr<Block> take(std::size_t bytes, bool all_windows);
  void give_back(std::unique_ptr<Block> block);
  bool own_chance(unsigned of) { return own_() % of == 0; }

  Communicator& comm_;
  Action action_;
  MemoryUse memory_;
  Random same_;  // draws the same on all ranks
  Random own_;
  std::array<Team, 4> teams_;  // the first is all ranks
  std::vector<std::unique_ptr<Block>> kept_;
  std::uint64_t steps_ = 0;
};

/// The seed of a stress test: TUTTI_TEST_SEED, or one that never changes.
unsigned stress_seed();
/// Makes mixed calls on `comm` for so long; returns how many steps. Collective.
std::uint64_t make_random_calls(Communicator& comm, unsigned seed, MemoryUse memory,
                                double seconds);

}  // namespace tutti::test
