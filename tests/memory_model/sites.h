// The places in the code under test where it uses atomic words, and mutants of them: weaker orders,
// fences that are left out. A mutant is made as the program runs, since the compiler's calls carry
// their orders (hooks.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tutti::model {

enum class Kind : std::uint8_t { load, store, modify, fence, light_fence };

/// An operation of the code under test as a line of its source has it.
struct Site {
  std::string place;  // "transport/host/connection.h:256"
  Kind kind = Kind::load;
  std::memory_order order = std::memory_order_relaxed;
  std::set<std::uintptr_t> calls;  // where the compiler has put it
};

struct Mutant {
  Site site;
  std::memory_order order = std::memory_order_relaxed;  // instead; of fences: relaxed is none

  std::string text() const;
};

/// The order of an operation that is called from `call`: its own, or that of the mutant that runs.
std::memory_order order_of(std::uintptr_t call, Kind kind, std::memory_order order);

/// From now on sites are noted, each once; and until when.
void note_sites();
/// The calls that have been noted.
std::set<std::uintptr_t> noted_calls();
/// Those of the library that have run since: by their places, which addr2line(1) says.
std::vector<Site> noted_sites();
/// Each weaker order of each site.
std::vector<Mutant> mutants_of(const std::vector<Site>& sites);

/// While it lives, this mutant runs.
class Mutated {
 public:
  explicit Mutated(const Mutant& mutant);
  ~Mutated();
  Mutated(const Mutated&) = delete;
  Mutated& operator=(const Mutated&) = delete;
};

}  // namespace tutti::model
