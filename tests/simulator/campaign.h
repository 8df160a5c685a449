// Many histories, one after the other; and what makes one that breaks an invariant shorter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulator/history.h"

namespace tutti::simulator {

/// Loads a copy of the module for each rank that a history may have: the dynamic linker loads a
/// file once. Throws std::runtime_error.
std::vector<Module> load_modules(const std::string& file);

struct Verdict {
  Result result;
  std::string crash;  // how its process ended, where that was no end of a history
  bool is_right() const { return crash.empty() && result.broken.empty(); }
  const std::string& text() const { return crash.empty() ? result.broken : crash; }
};

/// Runs a history in a process of its own, forked from this one: so all begin with the same memory,
/// and a crash ends one alone.
Verdict try_plan(const Plan& plan, const std::vector<Module>& modules, bool tells);

/// The shortest plan that still breaks an invariant, as far as leaving out a fault, a step or a
/// rank, one by one, leads to it.
Plan shortened(Plan plan, const std::vector<Module>& modules);

}  // namespace tutti::simulator
