// The fixture of tests over RDMA: the first port that can be used; where there is none, the test is
// skipped.
#pragma once

#include <gtest/gtest.h>

#include "tests/transport/verbs_ends.h"

namespace tutti::test {

class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = usable_port();
    if (!found) GTEST_SKIP() << "no RDMA device that could be used (`make test-rdma` has some)";
    port = *found;
  }
  VerbsPort port;
};

}  // namespace tutti::test
