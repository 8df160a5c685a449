// See abilities.h.
#include "topology/abilities.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tutti::topology {
namespace {

constexpr std::uint16_t kNvidia = 0x10de, kAmd = 0x1002;

}  // namespace

bool has_peer_access(std::string_view model) {
  // GeForce since Turing, over PCI.
  constexpr std::array<std::string_view, 9> kNone{"RTX 2080 Ti", "RTX 3080", "RTX 3090",
                                                  "RTX 3090 Ti", "RTX 4080", "RTX 4090",
                                                  "RTX 4090D",   "RTX 5080", "RTX 5090"};
  return std::ranges::find(kNone, model) == kNone.end();
}

bool for_slots(const GpuModel& model) {
  return model.name.find("PCIe") != model.name.npos || model.name.find("NVL") != model.name.npos ||
         model.name == "A30";
}

bool switch_reduces(std::string_view model) {
  const GpuModel* const m = gpu_model_named(model);
  return m != nullptr && m->vendor == kNvidia && m->sm >= 90 && m->links > 0 && !for_slots(*m);
}

bool has_ll128(std::string_view model) {
  const GpuModel* const m = gpu_model_named(model);
  return m == nullptr || m->vendor != kAmd || m->gcn == "90a";
}

}  // namespace tutti::topology
