// The table of `tutti predict`: that of nccl-tests, with measured times and errors beside it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/cluster/cluster.h"
#include "collectives/model/predict.h"
#include "tools/cluster/cluster_setup.h"
#include "tools/cluster/nccl_log.h"

namespace tutti {

/// A size, and a row of a log if there is one.
struct Line {
  double bytes = 0;
  Prediction predicted;
  std::optional<LogRow> measured;
  bool known = true;  // logs of such calls were at hand

  Line(double size, std::optional<LogRow> row) : bytes(size), measured(std::move(row)) {}
  double error() const { return 100 * (predicted.us() / measured->us - 1); }
};

/// "ring LL128", "switch".
std::string protocol_of(const Prediction& p);
/// `log`: null if there is none. Times of what is not known have two digits.
void print_table(const std::vector<Line>& lines, const cluster::Cluster& c, Collective collective,
                 const ClusterSetup& setup, const NcclLog* log);
/// Of the rows of 1 KiB and more.
void print_errors(const std::vector<Line>& lines);

}  // namespace tutti
