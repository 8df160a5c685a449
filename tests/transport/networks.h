// The networks that can have both sides in one process, for tests of all of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/transport/wire_ends.h"

namespace tutti::test {

struct NetworkCase {
  const char* name;
  /// Null, and why: it cannot be used here.
  std::function<std::unique_ptr<TestNetwork>(std::string& why_not)> make;
};

inline std::ostream& operator<<(std::ostream& out, const NetworkCase& network) {
  return out << network.name;
}

std::vector<NetworkCase> network_cases();

/// A test that runs over each of them.
class OfNetworks : public testing::TestWithParam<NetworkCase> {
 protected:
  void SetUp() override {
    std::string why_not;
    network = GetParam().make(why_not);
    if (!network) GTEST_SKIP() << why_not;
  }
  std::unique_ptr<TestNetwork> network;
};

}  // namespace tutti::test
