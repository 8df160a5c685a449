// See nccl_constants.h.
#include "laboratory/predict/nccl_constants.h"

#include <fmt/format.h>

#include <array>

#include "core/error.h"
#include "core/number.h"
#include "topology/constants.h"
#include "topology/source.h"

namespace tutti {
namespace {

using Line = Constant<NcclConstants>;

constexpr std::array kLines{
    Line{"kernel_hopper", "", &NcclConstants::kernel_hopper,
         "times the latencies of calls and GPU links, which NCCL's graph/tuning.cc has from older "
         "GPUs (calibrated: short all_reduces of 8 H100)"},
    Line{"kernel_blackwell", "", &NcclConstants::kernel_blackwell,
         "as kernel_hopper (calibrated: short calls of 8 B200, all_reduce and all_to_all; of two "
         "hosts with one each, all_gather)"},
    Line{"net_peer", "us", &NcclConstants::net_peer,
         "for each rank of other hosts that a GPU sends to: the thread of the network (calibrated: "
         "short all_to_alls of 16 GPUs with a port each)"},
    Line{"launch_hopper", "us", &NcclConstants::launch_hopper,
         "launch_more for Hopper and later: short all_reduces of 16 H100 on two hosts, 39 us by a "
         "thread for each host and 28 us, on another cluster, by one for each GPU"},
};

}  // namespace

std::span<const Constant<NcclConstants>> nccl_constants() { return kLines; }

bool override_constant(NcclConstants& constants, std::string_view text) {
  const auto equals = text.find('=');
  for (const Line& line : kLines) {
    if (line.name != text.substr(0, equals)) continue;
    const auto value =
        equals == text.npos ? std::nullopt : parse_number<double>(text.substr(equals + 1));
    if (!value || !(*value > 0) || *value > 1e9) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("'{}': {} is to be a number above 0{}{}", topology::printable(text),
                              line.name, line.unit.empty() ? "" : ", in ", line.unit));
    }
    constants.*line.value = *value;
    return true;
  }
  return false;
}

GpuConstants of_generation(const GpuConstants& constants, const NcclConstants& nccl,
                           const topology::Graph& host) {
  GpuConstants c = constants;
  const auto gpus = host.gpus();
  if (gpus.empty()) return c;
  const topology::GpuModel* model = topology::gpu_model_named(host.node(gpus.front()).model);
  const int sm = model == nullptr ? 0 : model->sm;
  const double times = sm >= 100 ? nccl.kernel_blackwell : sm >= 90 ? nccl.kernel_hopper : 1;
  for (double GpuConstants::*latency :
       {&GpuConstants::call_ll, &GpuConstants::call_ll128, &GpuConstants::call_simple,
        &GpuConstants::link_ll, &GpuConstants::link_ll128, &GpuConstants::link_simple}) {
    c.*latency *= times;
  }
  if (sm >= 90) c.launch_more = nccl.launch_hopper;
  // Data cross PCI twice on their way through memory of the host; the constant is of generation 4.
  if (model != nullptr && model->pci_speed > 0 && model->pci_speed < 16) {
    c.staging *= model->pci_speed / 16;
  }
  return c;
}

}  // namespace tutti
