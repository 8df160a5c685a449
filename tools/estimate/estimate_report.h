// What `tutti estimate` prints and draws.
#pragma once

#include <string>

#include "parallel/estimate/recommend.h"

namespace tutti {

struct EstimateReport {
  const parallel::estimate::Model& model;
  const parallel::estimate::Cluster& cluster;
  const parallel::estimate::Job& job;
  const parallel::estimate::Recommendation& result;
  std::string said;  // of the cluster
};

/// For a terminal of so many columns (0: for a file): where the table is wider, memory and time are
/// tables of their own, of numbered mixes.
std::string estimate_table(const EstimateReport& report, int columns);
std::string estimate_json(const EstimateReport& report);
/// SVG: the memory of each kind of mix as a bar, and time against memory of the best ones.
std::string estimate_picture(const EstimateReport& report);
/// Which formula each column is made by.
std::string estimate_formulas();

}  // namespace tutti
