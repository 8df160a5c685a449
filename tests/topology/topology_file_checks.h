// What tests on real topology files share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "tests/topology/topology_data.h"
#include "topology/graph.h"

namespace tutti::topology {

inline std::string base(const std::string& path) { return std::filesystem::path(path).filename(); }

/// What every graph has to be, whatever it was made from.
inline void expect_valid(const Graph& g) {
  for (const Link& l : g.links()) {
    ASSERT_TRUE(std::isfinite(l.bandwidth) && l.bandwidth > 0);
    ASSERT_TRUE(std::isfinite(l.latency) && l.latency >= 0);
    ASSERT_TRUE(l.from != l.to && l.from >= 0 && l.to >= 0);
  }
  for (int n = 0; n < static_cast<int>(g.nodes().size()); ++n) ASSERT_LT(g.node(n).parent, n);
  const auto gpus = g.gpus();
  if (gpus.empty()) return;
  const auto paths = g.paths(gpus.front());
  for (const int other : gpus) {
    if (other == gpus.front() || g.node(other).host != g.node(gpus.front()).host) continue;
    ASSERT_NE(paths[static_cast<std::size_t>(other)].near, Near::apart);
  }
}

}  // namespace tutti::topology
