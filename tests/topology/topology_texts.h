// What tests of topologies in text share: the graph of a text, and why one is refused.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "tests/topology/topology_samples.h"
#include "topology/discover.h"
#include "topology/show/text.h"

namespace tutti::topology {

inline Graph graph_of_text(const std::string& text, Records* kept = nullptr) {
  Records records = records_of(text, "sample");
  Graph graph = graph_of(records);
  if (kept != nullptr) *kept = records;
  return graph;
}

inline std::string refusal(const std::string& text) {
  try {
    records_of(text, "sample");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "";
}

inline std::string near(const Graph& g, const char* a, const char* b) {
  return near_text(g, g.path(g.find(a), g.find(b)));
}

}  // namespace tutti::topology
