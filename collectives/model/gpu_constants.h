// The costs of protocols, kernels and copies on GPUs: the one table of numbers behind predictions
// of clusters, each with its source. Links' and GPUs' rates stand in topology/constants.cpp,
// networks' in topology/network.cpp. Each can be overridden by name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/model/constant.h"

namespace tutti {

/// How data and the word that they are there travel. Simple: data, a fence, a counter. LL: with
/// each 4 bytes 4 of a flag. LL128: 8 bytes of flag with each 120. Copy: by copy engines, with all
/// ranks meeting before and after.
enum class GpuProtocol : std::uint8_t { ll, ll128, simple, copy };
/// The protocols of kernels.
inline constexpr std::array kGpuProtocols{GpuProtocol::ll, GpuProtocol::ll128, GpuProtocol::simple};
std::string_view name(GpuProtocol p);

/// How two GPUs reach each other.
enum class GpuWay : std::uint8_t { gpu_links, pci, staged, network };

struct GpuConstants {
  // us of a call before and after its messages, by protocol.
  double call_ll = 6.6, call_ll128 = 14, call_simple = 8.4, call_copy = 15.2;
  double launch_more = 2.75;
  // us of a message from GPU to GPU.
  double link_ll = 0.6, link_ll128 = 1.9, link_simple = 3.4;
  double pci_ll = 1.0, pci_simple = 5.7;
  double staged_ll = 4.3, staged_simple = 4.5;
  double net_ll = 2.7, net_ll128 = 4.0, net_simple = 14;
  double tree_ll = 2.3, tree_ll128 = 4.5;
  // The part of what is sent that is data.
  double data_ll = 0.5, data_ll128 = 0.9375, data_simple = 1;
  double alone_ll128 = 0.7;
  double staging = 21.5;
  double gpu_ll = 87.7, port_ll = 5.6;
  double slice = 512, turn = 0.25;
  double copy_command = 4.8;
  double switch_call = 25, switch_part = 0.85, switch_net = 18;

  double call(GpuProtocol p) const;
  /// Infinite where the protocol does not go that way.
  double message(GpuProtocol p, GpuWay way) const;
  /// What a tree's message between hosts takes more than message().
  double tree_more(GpuProtocol p) const;
  double data(GpuProtocol p) const;
};

/// All of them, with their sources.
std::span<const Constant<GpuConstants>> gpu_constants();

/// "staging=18". Throws Error(invalid_argument) for a name that there is not, and for a value that
/// is no number above 0.
void override_constant(GpuConstants& constants, std::string_view text);

}  // namespace tutti
