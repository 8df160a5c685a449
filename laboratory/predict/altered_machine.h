// A machine with something taken from it, for predictions of what is wrong with one (causes.h).
#pragma once

#include "laboratory/predict/causes.h"

namespace tutti {

bool is_gpu_link(const topology::Link& link);

/// Their links carry `part` of their rate.
topology::Graph with_gpu_links(const topology::Graph& host, double part);
topology::Graph with_pci(const topology::Graph& host, double part);
/// GPUs have their way over PCI alone; without `peers` through memory of the host, as GeForce have.
topology::Graph without_gpu_links(const topology::Graph& host, bool peers);

/// The ports that data use, and Gbit/s of each, where the network's description does not say it.
int ports_of(const PredictedMachine& m);
double rate_of(const PredictedMachine& m);

/// Calls and messages take so many times longer.
void slow_down(GpuConstants& constants, double times);

}  // namespace tutti
