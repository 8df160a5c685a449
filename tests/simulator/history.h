// A history: what a seed makes of the ranks, their program, the network and the faults; and what
// has to be true of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulator/files.h"
#include "tests/simulator/script.h"
#include "tests/simulator/world.h"

namespace tutti::simulator {

struct Fault {
  // restart: it is killed, and another one takes its place later
  enum class Kind : std::uint8_t {
    kill,
    power_off,
    stop,
    reset,
    cut,
    half_cut,
    wall_clock,
    restart
  };
  Kind kind;
  Time at;  // after the start
  int rank;
  int other;   // of a connection, or a cut
  Time lasts;  // of a stop or a cut
};

inline constexpr int kMostRanks = 8;

/// What happens, as far as it is planned.
struct Plan {
  std::uint64_t seed = 0;
  int ranks = 2;
  int ranks_of_a_host = 1;
  std::vector<Step> steps;
  std::vector<Fault> faults;
  Weather weather;
  bool encrypted = false;
  bool by_handles = false;
  std::string algorithm;  // "": the library chooses, which takes it longer than all else of a call
};

Plan plan_of(std::uint64_t seed);
std::string text_of(const Plan& plan);

struct Result {
  std::uint64_t hash = 0;
  std::uint64_t steps = 0;
  Time lasted = 0;
  std::string broken;  // which invariant, and how; "": none
};

/// The ranks' programs, each of them loaded: a copy of the module for each rank.
struct Module {
  RankFunction rank;
  ExitFunction exit;
  WarmFunction warm;
};

/// Runs it. The state of the modules is used up.
Result run_history(const Plan& plan, const std::vector<Module>& modules, bool tells);

}  // namespace tutti::simulator
