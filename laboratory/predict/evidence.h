// What measured logs say of predictions: how much longer calls take than the simulation says
// (`ramp`), and within which band the measured times then lie. Both by the kind of a call, which is
// what limits it, and by its size. bench/prediction_evidence.py makes the table from logs
// (evidence_table.h).
//
// A ramp stands for what no plan has: between the sizes that are all latency and those that are all
// rate, NCCL's kernels have few slices under way, use fewer channels, and copy data inside of the
// GPU. NCCL corrects its own estimate of trees in the same way, by a table over sizes.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/cluster/cluster.h"
#include "collectives/model/predict.h"

namespace tutti {

enum class CallKind : std::uint8_t {
  one_switch,      // one host: its switch reduces
  one_links,       // ... links of the GPUs' own
  one_host,        // ... PCI, and memory of the host
  one_all_to_all,  // ... messages to all peers
  several_sums,    // several hosts with several GPUs: by trees, and switches that reduce
  several_rings,   // ... around rings
  several_alone,   // hosts with one GPU
  several_all_to_all,
  one_sends,       // each rank to the next one, over links
  several_sends,   // ... of which some are of another host
  several_unlike,  // over networks that differ most, TCP in all its forms and Slingshot
  unmeasured,      // nothing was measured of it
};
std::string_view name(CallKind kind);

CallKind kind_of(const cluster::Cluster& c, Collective collective, const Prediction& p);

/// The size of a call of the measured machines' that has messages as large. Two hosts had eight
/// GPUs each: a ring has a share of the data for each rank, and trees and switches have one for
/// each GPU of a host.
double measured_bytes(const cluster::Cluster& c, const Prediction& p, CallKind kind, double bytes);

/// The time that such calls take, divided by the simulated one. 1 for `unmeasured`. By
/// measured_bytes(), here and below.
double ramp(CallKind kind, double bytes);

/// 90 % of measured times lie between these, as multiples of the predicted time.
struct Band {
  double low = 1, high = 1;
  int machines = 0, rows = 0;  // of this kind and about this size; 0: it is the band of like ones
};
Band band_of(CallKind kind, double bytes);

}  // namespace tutti
