// See gpu_constants.h.
#include "collectives/model/gpu_constants.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"
#include "core/number.h"
#include "topology/source.h"

namespace tutti {
namespace {

constexpr std::string_view kTuning = "NCCL's graph/tuning.cc (baseLat, hwLat)";
constexpr std::string_view kFormat = "NCCL's protocols: 4 of 8 bytes, 120 of 128, all";

using Line = Constant<GpuConstants>;

constexpr std::array kGpuLines{
    Line{"call_ll", "us", &GpuConstants::call_ll, kTuning},
    Line{"call_ll128", "us", &GpuConstants::call_ll128, kTuning},
    Line{"call_simple", "us", &GpuConstants::call_simple, kTuning},
    Line{"call_copy", "us", &GpuConstants::call_copy,
         "call_simple, and all GPUs meet before and after: two messages of Simple"},
    Line{"launch_more", "us", &GpuConstants::launch_more,
         "each further GPU of a thread: DGX A100, 8 B, 10 us with 2 and 33.7 us with 8 "
         "(nccl-tests issue 123), less the messages"},
    Line{"link_ll", "us", &GpuConstants::link_ll, kTuning},
    Line{"link_ll128", "us", &GpuConstants::link_ll128, kTuning},
    Line{"link_simple", "us", &GpuConstants::link_simple, kTuning},
    Line{"pci_ll", "us", &GpuConstants::pci_ll, kTuning},
    Line{"pci_simple", "us", &GpuConstants::pci_simple, kTuning},
    Line{"staged_ll", "us", &GpuConstants::staged_ll,
         "calibrated: two crossings of PCI and of a cache; published logs of GeForce"},
    Line{"staged_simple", "us", &GpuConstants::staged_simple, "calibrated, as staged_ll"},
    Line{"net_ll", "us", &GpuConstants::net_ll, kTuning},
    Line{"net_ll128", "us", &GpuConstants::net_ll128, kTuning},
    Line{"net_simple", "us", &GpuConstants::net_simple, kTuning},
    Line{"tree_ll", "us", &GpuConstants::tree_ll,
         "more for a tree's message between hosts: NCCL's graph/tuning.cc, 5.0"},
    Line{"tree_ll128", "us", &GpuConstants::tree_ll128, "as tree_ll: 8.5; Simple: none"},
    Line{"data_ll", "", &GpuConstants::data_ll, kFormat},
    Line{"data_ll128", "", &GpuConstants::data_ll128, kFormat},
    Line{"data_simple", "", &GpuConstants::data_simple, kFormat},
    Line{"alone_ll128", "", &GpuConstants::alone_ll128,
         "of a port's rate that LL128 gets where a host has one GPU, so that each step is "
         "one of the network: NCCL's graph/tuning.cc (ppn < 2)"},
    Line{"staging", "GB/s", &GpuConstants::staging,
         "what all GPUs of a host put through its memory without peer access, all together "
         "(calibrated: published logs of GeForce)"},
    Line{"gpu_ll", "GB/s", &GpuConstants::gpu_ll,
         "of LL data that a GPU's blocks store, A100 (NCCL's llMaxBws); others by the rate "
         "of their links"},
    Line{"port_ll", "GB/s", &GpuConstants::port_ll,
         "of LL data through a port: NCCL's llMaxBws for two hosts, Hopper, 45 GB/s by eight"},
    Line{"slice", "KiB", &GpuConstants::slice,
         "of Simple that is whole before the network has it, and there before the GPU has: "
         "NCCL's buffer of 4 MiB in 8 steps"},
    Line{"turn", "", &GpuConstants::turn,
         "of the time of a chunk's step, once a turn of a ring: the step of NCCL's buffer that "
         "nothing overlaps with (calibrated: published logs of A100, B200, GeForce)"},
    Line{"copy_command", "us", &GpuConstants::copy_command,
         "of a GPU's copy engines for each copy besides its bytes: short all_gathers of 8 "
         "MI300X take 4.5 times what kernels do (arXiv 2511.06605)"},
    Line{"switch_call", "us", &GpuConstants::switch_call, "NCCL's hwLat of NVLS"},
    Line{"switch_part", "", &GpuConstants::switch_part,
         "of the links' rate while switches reduce: NCCL's nvlsEfficiency"},
    Line{"switch_net", "us", &GpuConstants::switch_net,
         "a message to another host between reductions in switches: NCCL's hwLat of NVLS"},
};

}  // namespace

std::string_view name(GpuProtocol p) {
  constexpr std::array<std::string_view, 4> kNames{"LL", "LL128", "Simple", "CE"};
  return kNames[static_cast<std::size_t>(p)];
}

double GpuConstants::call(GpuProtocol p) const {
  return std::array{call_ll, call_ll128, call_simple, call_copy}[static_cast<std::size_t>(p)];
}

double GpuConstants::tree_more(GpuProtocol p) const {
  return p == GpuProtocol::ll ? tree_ll : p == GpuProtocol::ll128 ? tree_ll128 : 0;
}

double GpuConstants::data(GpuProtocol p) const {
  return p == GpuProtocol::ll ? data_ll : p == GpuProtocol::ll128 ? data_ll128 : data_simple;
}

double GpuConstants::message(GpuProtocol p, GpuWay way) const {
  constexpr double kNo = std::numeric_limits<double>::infinity();
  // LL128 needs stores of 128 bytes that arrive whole, which PCI does not promise. Copies are seen
  // when all ranks meet, which is the call's.
  const std::array<std::array<double, 4>, 4> table{{{link_ll, link_ll128, link_simple, 0},
                                                    {pci_ll, kNo, pci_simple, 0},
                                                    {staged_ll, kNo, staged_simple, kNo},
                                                    {net_ll, net_ll128, net_simple, kNo}}};
  return table[static_cast<std::size_t>(way)][static_cast<std::size_t>(p)];
}

std::span<const Constant<GpuConstants>> gpu_constants() { return kGpuLines; }

void override_constant(GpuConstants& constants, std::string_view text) {
  const auto equals = text.find('=');
  for (const Line& line : kGpuLines) {
    if (line.name != text.substr(0, equals)) continue;
    const auto value =
        equals == text.npos ? std::nullopt : parse_number<double>(text.substr(equals + 1));
    if (!value || !(*value > 0) || *value > 1e9) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("'{}': {} is to be a number above 0{}{}", topology::printable(text),
                              line.name, line.unit.empty() ? "" : ", in ", line.unit));
    }
    constants.*line.value = *value;
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("'{}' is no constant; `tutti predict --constants` lists them",
                          topology::printable(text)));
}

}  // namespace tutti
