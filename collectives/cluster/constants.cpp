// See constants.h.
#include "collectives/cluster/constants.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"
#include "topology/source.h"

namespace tutti::cluster {
namespace {

constexpr std::string_view kTuning = "NCCL's graph/tuning.cc (baseLat, hwLat)";
constexpr std::string_view kFormat = "NCCL's protocols: 4 of 8 bytes, 120 of 128, all";

constexpr std::array kLines{
    ConstantLine{"call_ll", &Constants::call_ll, "us", kTuning},
    ConstantLine{"call_ll128", &Constants::call_ll128, "us", kTuning},
    ConstantLine{"call_simple", &Constants::call_simple, "us", kTuning},
    ConstantLine{"call_copy", &Constants::call_copy, "us",
                 "call_simple, and all GPUs meet before and after: two messages of Simple"},
    ConstantLine{"launch_more", &Constants::launch_more, "us",
                 "each further GPU of a thread: DGX A100, 8 B, 10 us with 2 and 33.7 us with 8 "
                 "(nccl-tests issue 123), less the messages"},
    ConstantLine{"link_ll", &Constants::link_ll, "us", kTuning},
    ConstantLine{"link_ll128", &Constants::link_ll128, "us", kTuning},
    ConstantLine{"link_simple", &Constants::link_simple, "us", kTuning},
    ConstantLine{"pci_ll", &Constants::pci_ll, "us", kTuning},
    ConstantLine{"pci_simple", &Constants::pci_simple, "us", kTuning},
    ConstantLine{"staged_ll", &Constants::staged_ll, "us",
                 "calibrated: two crossings of PCI and of a cache; published logs of GeForce"},
    ConstantLine{"staged_simple", &Constants::staged_simple, "us", "calibrated, as staged_ll"},
    ConstantLine{"net_ll", &Constants::net_ll, "us", kTuning},
    ConstantLine{"net_ll128", &Constants::net_ll128, "us", kTuning},
    ConstantLine{"net_simple", &Constants::net_simple, "us", kTuning},
    ConstantLine{"tree_ll", &Constants::tree_ll, "us",
                 "more for a tree's message between hosts: NCCL's graph/tuning.cc, 5.0"},
    ConstantLine{"tree_ll128", &Constants::tree_ll128, "us", "as tree_ll: 8.5; Simple: none"},
    ConstantLine{"data_ll", &Constants::data_ll, "", kFormat},
    ConstantLine{"data_ll128", &Constants::data_ll128, "", kFormat},
    ConstantLine{"data_simple", &Constants::data_simple, "", kFormat},
    ConstantLine{"alone_ll128", &Constants::alone_ll128, "",
                 "of a port's rate that LL128 gets where a host has one GPU, so that each step is "
                 "one of the network: NCCL's graph/tuning.cc (ppn < 2)"},
    ConstantLine{"staging", &Constants::staging, "GB/s",
                 "what all GPUs of a host put through its memory without peer access, all together "
                 "(calibrated: published logs of GeForce)"},
    ConstantLine{"gpu_ll", &Constants::gpu_ll, "GB/s",
                 "of LL data that a GPU's blocks store, A100 (NCCL's llMaxBws); others by the rate "
                 "of their links"},
    ConstantLine{
        "port_ll", &Constants::port_ll, "GB/s",
        "of LL data through a port: NCCL's llMaxBws for two hosts, Hopper, 45 GB/s by eight"},
    ConstantLine{"slice", &Constants::slice, "KiB",
                 "of Simple that is whole before the network has it, and there before the GPU has: "
                 "NCCL's buffer of 4 MiB in 8 steps"},
    ConstantLine{
        "turn", &Constants::turn, "",
        "of the time of a chunk's step, once a turn of a ring: the step of NCCL's buffer that "
        "nothing overlaps with (calibrated: published logs of A100, B200, GeForce)"},
    ConstantLine{"copy_command", &Constants::copy_command, "us",
                 "of a GPU's copy engines for each copy besides its bytes: short all_gathers of 8 "
                 "MI300X take 4.5 times what kernels do (arXiv 2511.06605)"},
    ConstantLine{"switch_call", &Constants::switch_call, "us", "NCCL's hwLat of NVLS"},
    ConstantLine{"switch_part", &Constants::switch_part, "",
                 "of the links' rate while switches reduce: NCCL's nvlsEfficiency"},
    ConstantLine{"switch_net", &Constants::switch_net, "us",
                 "a message to another host between reductions in switches: NCCL's hwLat of NVLS"},
};

}  // namespace

std::string_view name(Protocol p) {
  constexpr std::array<std::string_view, 4> kNames{"LL", "LL128", "Simple", "CE"};
  return kNames[static_cast<std::size_t>(p)];
}

double Constants::call(Protocol p) const {
  return std::array{call_ll, call_ll128, call_simple, call_copy}[static_cast<std::size_t>(p)];
}

double Constants::tree_more(Protocol p) const {
  return p == Protocol::ll ? tree_ll : p == Protocol::ll128 ? tree_ll128 : 0;
}

double Constants::data(Protocol p) const {
  return p == Protocol::ll ? data_ll : p == Protocol::ll128 ? data_ll128 : data_simple;
}

double Constants::message(Protocol p, Way way) const {
  constexpr double kNo = std::numeric_limits<double>::infinity();
  // LL128 needs stores of 128 bytes that arrive whole, which PCI does not promise. Copies are seen
  // when all ranks meet, which is the call's.
  const std::array<std::array<double, 4>, 4> table{{{link_ll, link_ll128, link_simple, 0},
                                                    {pci_ll, kNo, pci_simple, 0},
                                                    {staged_ll, kNo, staged_simple, kNo},
                                                    {net_ll, net_ll128, net_simple, kNo}}};
  return table[static_cast<std::size_t>(way)][static_cast<std::size_t>(p)];
}

std::span<const ConstantLine> constant_lines() { return kLines; }

void override_constant(Constants& constants, std::string_view text) {
  const auto equals = text.find('=');
  for (const ConstantLine& line : kLines) {
    if (line.name != text.substr(0, equals)) continue;
    const auto value =
        equals == text.npos ? std::nullopt : topology::whole_number(text.substr(equals + 1));
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

}  // namespace tutti::cluster
