// The classic small programs of memory models, with what each may come to.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/memory_model/explorer.h"

namespace tutti::model {

struct Litmus {
  std::string name;
  // Makes a program that adds what its loads have found to `outcomes`, as "0 1".
  Program (*program)(std::set<std::string>& outcomes);
  std::set<std::string> allowed;  // all of these occur, and no other one
};
const std::vector<Litmus>& litmus();

/// A program whose plain accesses race, unless its flag orders them.
Program passes_plain_data(bool ordered);
/// A thread that waits for what nobody does.
Program waits_for_ever();

}  // namespace tutti::model
