// What `tutti top` shows: a picture for a terminal, JSON, and Prometheus's text format.
#pragma once

#include <string>
#include <vector>

#include "tools/top/jobs.h"
#include "tools/top/view.h"

namespace tutti::top {

/// `columns` wide. Ranks that do the same share a line.
std::string picture(const std::vector<View>& views, int columns);
/// One document: all that was seen, and which ranks hold others up.
std::string json_text(const std::vector<View>& views);
/// Metrics of the ranks, for node_exporter's textfile collector, say.
std::string prometheus_text(const std::vector<View>& views);

}  // namespace tutti::top
