// How long a step takes, and on what it is spent: computing, communication that nothing hides, and
// waiting for the pipeline.
#pragma once

#include <functional>
#include <string_view>

#include "memory.h"
#include "traffic.h"

namespace tutti::parallel::estimate {

/// Of one call along an axis: latency + bytes sent / rate.
struct CallCost {
  double latency_us = 0, gb_per_s = 1;
};
/// Ranks of an axis: so many on each host, on so many hosts.
struct AxisPlace {
  int in_host = 1, hosts = 1;
  int sharing = 1;  // such groups of ranks of a host use its network at the same time
  friend auto operator<=>(const AxisPlace&, const AxisPlace&) = default;
};

struct Cluster {
  int gpus = 1, gpus_of_a_host = 1;
  double memory = 80e9;   // bytes of a GPU
  double flops = 400e12;  // that a GPU reaches with such models
  std::function<CallCost(Collective, const AxisPlace&)> cost;
};

/// Which limit a mix meets first: of memory if it does not fit, else of time.
enum class Wall : unsigned char { none, state, activations, layer, bandwidth, latency, bubble };
std::string_view name(Wall wall);

struct StepTime {  // seconds
  double compute = 0;
  double tensor = 0;                  // all of it is exposed
  double context = 0;                 // rows for heads, and what attention does not hide of a ring
  double experts = 0;                 // rows to experts and back: all of it is exposed
  double data = 0, data_exposed = 0;  // what backward and forward do not hide
  double bubble = 0;
  double latency =
      0;  // the part of the exposed communication that more bandwidth would not shorten

  double exposed() const { return tensor + context + experts + data_exposed; }
  double total() const { return compute + exposed() + bubble; }
};

struct Estimate {
  Mix mix;
  MemoryByKind memory;
  StepTraffic traffic;  // of the rank that carries the most
  StepTime time;
  bool fits = false;
  Wall wall = Wall::none;

  double tokens_per_second() const;  // of all ranks
};

/// Throws as check() does.
Estimate estimate(const Mix& mix, const Model& model, const Cluster& cluster);

}  // namespace tutti::parallel::estimate
