// What tests of started calls share: ranks that are threads, once as they are and once as if they
// were processes, and a look at the threads that run what was started.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "tests/support/clean_environment.h"

namespace tutti::test {

/// With the parameter, thread ranks treat each other as processes.
class TogetherOrApart : public testing::TestWithParam<bool> {
 private:
  Environment environment_{{{"TUTTI_APART", GetParam() ? "1" : "0"}}};
};
inline std::string together_or_apart(const testing::TestParamInfo<bool>& of) {
  return of.param ? "apart" : "together";
}

/// How many threads of this process run what was started.
inline int engine_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == "tutti-progress") ++count;
  }
  return count;
}

/// Communicators of all ranks of `c`, made of it.
inline std::vector<Communicator> parts_of(Communicator& c, int count) {
  std::vector<Communicator> parts;
  for (int i = 0; i < count; ++i) parts.push_back(c.split(0, c.rank()));
  return parts;
}

}  // namespace tutti::test
