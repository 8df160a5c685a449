// See constants.h.
#include "topology/constants.h"

#include <algorithm>
#include <array>

namespace tutti::topology {
namespace {

constexpr std::uint16_t kNvidia = 0x10de, kAmd = 0x1002;

// Links and rates: NVIDIA's and AMD's data sheets and white papers (NVLink 1: 20 GB/s a link and
// direction; 2, 3 and 4: 25; 3 on GA10x: 14; 5: 50. Infinity Fabric: 46 on MI50/60/100, 50 on
// MI200, 64 on MI300). Reached: NCCL's and RCCL's graph/topo.h (SMnn_NVLINK_BW, *_XGMI_WIDTH).
// Memory and peaks: their data sheets; of GeForce, the architecture's white paper, with sums in
// float32. What has several sizes under one name has the least.
constexpr std::array kModels{
    // Architectures: what is known without a device id.
    GpuModel{"sm60", kNvidia, 0, 60, {}, 4, 20, 18, 8},
    GpuModel{"sm61", kNvidia, 0, 61, {}, 0, 0, 0, 8},
    GpuModel{"sm70", kNvidia, 0, 70, {}, 6, 25, 20, 8},
    GpuModel{"sm75", kNvidia, 0, 75, {}, 2, 25, 20, 8},
    GpuModel{"sm80", kNvidia, 0, 80, {}, 12, 25, 20, 16},
    GpuModel{"sm86", kNvidia, 0, 86, {}, 4, 14, 12, 16},
    GpuModel{"sm89", kNvidia, 0, 89, {}, 0, 0, 0, 16},
    GpuModel{"sm90", kNvidia, 0, 90, {}, 18, 25, 20.6, 32},
    GpuModel{"sm100", kNvidia, 0, 100, {}, 18, 50, 40.1, 32},
    GpuModel{"sm103", kNvidia, 0, 103, {}, 18, 50, 40.1, 64},
    GpuModel{"sm120", kNvidia, 0, 120, {}, 0, 0, 0, 32},
    GpuModel{"gfx906", kAmd, 0, 0, "906", 2, 46, 24, 16},
    GpuModel{"gfx908", kAmd, 0, 0, "908", 3, 46, 24, 16},
    GpuModel{"gfx90a", kAmd, 0, 0, "90a", 8, 50, 36, 16},
    GpuModel{"gfx940", kAmd, 0, 0, "940", 7, 64, 48, 32},
    GpuModel{"gfx942", kAmd, 0, 0, "942", 7, 64, 48, 32},
    GpuModel{"gfx950", kAmd, 0, 0, "950", 7, 76, 64, 32},
    // Devices.
    GpuModel{"K80", kNvidia, 0x102d, 37, {}, 0, 0, 0, 8, 12, 4.4},
    GpuModel{"P100 SXM2", kNvidia, 0x15f9, 60, {}, 4, 20, 18, 8, 16, 21.2},
    GpuModel{"P100 PCIe", kNvidia, 0x15f8, 60, {}, 0, 0, 0, 8, 16, 18.7},
    GpuModel{"P40", kNvidia, 0x1b38, 61, {}, 0, 0, 0, 8, 24, 11.8},
    GpuModel{"P4", kNvidia, 0x1bb3, 61, {}, 0, 0, 0, 8, 8, 5.5},
    GpuModel{"GTX 1080 Ti", kNvidia, 0x1b06, 61, {}, 0, 0, 0, 8, 11, 11.3},
    GpuModel{"GTX 1080", kNvidia, 0x1b80, 61, {}, 0, 0, 0, 8, 8, 8.9},
    GpuModel{"V100 SXM2 16GB", kNvidia, 0x1db1, 70, {}, 6, 25, 20, 8, 16, 125},
    GpuModel{"V100 SXM2 32GB", kNvidia, 0x1db5, 70, {}, 6, 25, 20, 8, 32, 125},
    GpuModel{"V100 SXM3 32GB", kNvidia, 0x1db8, 70, {}, 6, 25, 20, 8, 32, 125},
    GpuModel{"V100 PCIe 16GB", kNvidia, 0x1db4, 70, {}, 0, 0, 0, 8, 16, 112},
    GpuModel{"V100 PCIe 32GB", kNvidia, 0x1db6, 70, {}, 0, 0, 0, 8, 32, 112},
    GpuModel{"V100S PCIe 32GB", kNvidia, 0x1df6, 70, {}, 0, 0, 0, 8, 32, 130},
    GpuModel{"RTX 2080 Ti", kNvidia, 0x1e04, 75, {}, 2, 25, 20, 8, 11, 53.8},
    GpuModel{"RTX 2080 Ti", kNvidia, 0x1e07, 75, {}, 2, 25, 20, 8, 11, 53.8},
    GpuModel{"Quadro RTX 6000", kNvidia, 0x1e30, 75, {}, 2, 25, 20, 8, 24, 130.5},
    GpuModel{"Quadro RTX 8000", kNvidia, 0x1e78, 75, {}, 2, 25, 20, 8, 48, 130.5},
    GpuModel{"T4", kNvidia, 0x1eb8, 75, {}, 0, 0, 0, 8, 16, 65},
    GpuModel{"A100 SXM4 40GB", kNvidia, 0x20b0, 80, {}, 12, 25, 20, 16, 40, 312},
    GpuModel{"A100 SXM4 80GB", kNvidia, 0x20b2, 80, {}, 12, 25, 20, 16, 80, 312},
    GpuModel{"A100 SXM4 80GB", kNvidia, 0x20b3, 80, {}, 12, 25, 20, 16, 80, 312},
    GpuModel{"A800 SXM4 80GB", kNvidia, 0x20f3, 80, {}, 8, 25, 20, 16, 80, 312},
    GpuModel{"A800 PCIe 80GB", kNvidia, 0x20f5, 80, {}, 8, 25, 20, 16, 80, 312},
    GpuModel{"A100 PCIe 80GB", kNvidia, 0x20b5, 80, {}, 12, 25, 20, 16, 80, 312},
    GpuModel{"A100 PCIe 40GB", kNvidia, 0x20f1, 80, {}, 12, 25, 20, 16, 40, 312},
    GpuModel{"A30", kNvidia, 0x20b7, 80, {}, 4, 25, 20, 16, 24, 165},
    GpuModel{"RTX 3090 Ti", kNvidia, 0x2203, 86, {}, 4, 14, 12, 16, 24, 80},
    GpuModel{"RTX 3090", kNvidia, 0x2204, 86, {}, 4, 14, 12, 16, 24, 71},
    GpuModel{"RTX A5000", kNvidia, 0x2231, 86, {}, 4, 14, 12, 16, 24, 111},
    GpuModel{"RTX A4000", kNvidia, 0x24b0, 86, {}, 0, 0, 0, 16, 16, 76.7},
    GpuModel{"RTX 3080", kNvidia, 0x2206, 86, {}, 0, 0, 0, 16, 10, 59.5},
    GpuModel{"RTX A6000", kNvidia, 0x2230, 86, {}, 4, 14, 12, 16, 48, 154.8},
    GpuModel{"A40", kNvidia, 0x2235, 86, {}, 4, 14, 12, 16, 48, 149.7},
    GpuModel{"A10", kNvidia, 0x2236, 86, {}, 0, 0, 0, 16, 24, 125},
    GpuModel{"A10G", kNvidia, 0x2237, 86, {}, 0, 0, 0, 16, 24, 70},
    GpuModel{"RTX 4090", kNvidia, 0x2684, 89, {}, 0, 0, 0, 16, 24, 165.2},
    GpuModel{"RTX 4090D", kNvidia, 0x2685, 89, {}, 0, 0, 0, 16, 24, 147},
    GpuModel{"RTX 4080", kNvidia, 0x2704, 89, {}, 0, 0, 0, 16, 16, 97.5},
    GpuModel{"RTX 6000 Ada", kNvidia, 0x26b1, 89, {}, 0, 0, 0, 16, 48, 364.2},
    GpuModel{"RTX 5000 Ada", kNvidia, 0x26b2, 89, {}, 0, 0, 0, 16, 32, 261},
    GpuModel{"L40", kNvidia, 0x26b5, 89, {}, 0, 0, 0, 16, 48, 181},
    GpuModel{"L40S", kNvidia, 0x26b9, 89, {}, 0, 0, 0, 16, 48, 362},
    GpuModel{"L20", kNvidia, 0x26ba, 89, {}, 0, 0, 0, 16, 48, 119.5},
    GpuModel{"L4", kNvidia, 0x27b8, 89, {}, 0, 0, 0, 16, 24, 121},
    GpuModel{"RTX 4000 Ada", kNvidia, 0x27b2, 89, {}, 0, 0, 0, 16, 20, 81.9},
    GpuModel{"H100 SXM5", kNvidia, 0x2330, 90, {}, 18, 25, 20.6, 32, 80, 989},
    GpuModel{"H100 PCIe", kNvidia, 0x2331, 90, {}, 12, 25, 20.6, 32, 80, 756},
    GpuModel{"H100 NVL", kNvidia, 0x2321, 90, {}, 12, 25, 20.6, 32, 94, 835},
    GpuModel{"H800 SXM", kNvidia, 0x2324, 90, {}, 8, 25, 20.6, 32, 80, 989},
    GpuModel{"H800 PCIe", kNvidia, 0x2322, 90, {}, 8, 25, 20.6, 32, 80, 756},
    GpuModel{"H20", kNvidia, 0x2329, 90, {}, 18, 25, 20.6, 32, 96, 148},
    GpuModel{"H20", kNvidia, 0x232c, 90, {}, 18, 25, 20.6, 32, 96, 148},
    GpuModel{"H200 SXM", kNvidia, 0x2335, 90, {}, 18, 25, 20.6, 32, 141, 989},
    GpuModel{"H200 NVL", kNvidia, 0x233b, 90, {}, 18, 25, 20.6, 32, 141, 835},
    GpuModel{"GH200", kNvidia, 0x2342, 90, {}, 18, 25, 20.6, 32, 96, 989},
    GpuModel{"B200", kNvidia, 0x2901, 100, {}, 18, 50, 40.1, 32, 180, 2250},
    GpuModel{"GB200", kNvidia, 0x2941, 100, {}, 18, 50, 40.1, 32, 186, 2500},
    GpuModel{"B300", kNvidia, 0x3182, 103, {}, 18, 50, 40.1, 64, 270, 2250},
    GpuModel{"GB300", kNvidia, 0x31c2, 103, {}, 18, 50, 40.1, 64, 279, 2500},
    GpuModel{"RTX 5090", kNvidia, 0x2b85, 120, {}, 0, 0, 0, 32, 32, 209.5},
    GpuModel{"RTX 5080", kNvidia, 0x2c02, 120, {}, 0, 0, 0, 32, 16, 112.6},
    GpuModel{"RTX PRO 6000", kNvidia, 0x2bb1, 120, {}, 0, 0, 0, 32, 96, 503.8},
    GpuModel{"RTX PRO 6000", kNvidia, 0x2bb5, 120, {}, 0, 0, 0, 32, 96, 503.8},
    GpuModel{"MI50/MI60", kAmd, 0x66a1, 0, "906", 2, 46, 24, 16, 16, 26.5},
    GpuModel{"MI100", kAmd, 0x738c, 0, "908", 3, 46, 24, 16, 32, 184.6},
    GpuModel{"MI250X", kAmd, 0x7408, 0, "90a", 8, 50, 36, 16, 64, 191.5},
    GpuModel{"MI250X/MI250", kAmd, 0x740c, 0, "90a", 8, 50, 36, 16, 64, 181},
    GpuModel{"MI210", kAmd, 0x740f, 0, "90a", 3, 50, 36, 16, 64, 181},
    GpuModel{"MI300A", kAmd, 0x74a0, 0, "942", 7, 64, 48, 32, 128, 980.6},
    GpuModel{"MI300X", kAmd, 0x74a1, 0, "942", 7, 64, 48, 32, 192, 1307.4},
    GpuModel{"MI308X", kAmd, 0x74a2, 0, "942", 7, 64, 48, 32, 192, 188.5},
    GpuModel{"MI325X", kAmd, 0x74a5, 0, "942", 7, 64, 48, 32, 256, 1307.4},
    GpuModel{"MI350X", kAmd, 0x75a0, 0, "950", 7, 76, 64, 32, 288, 2309.6},
    GpuModel{"MI355X", kAmd, 0x75a3, 0, "950", 7, 76, 64, 32, 288, 2516.6},
};
constexpr GpuModel kUnknown{"unknown GPU", 0, 0, 0, {}, 0, 0, 0, 0};

struct NicModel {
  std::uint16_t vendor, device;
  std::int64_t speed;  // Mbit/s of the fastest port that is sold with it
};
constexpr std::array kNics{
    NicModel{0x15b3, 0x1013, 100'000},                                     // ConnectX-4
    NicModel{0x15b3, 0x1017, 100'000}, NicModel{0x15b3, 0x1018, 100'000},  // ConnectX-5
    NicModel{0x15b3, 0x1019, 100'000}, NicModel{0x15b3, 0x101a, 100'000},
    NicModel{0x15b3, 0x101b, 200'000}, NicModel{0x15b3, 0x101c, 200'000},  // ConnectX-6
    NicModel{0x15b3, 0x101d, 200'000}, NicModel{0x15b3, 0x101e, 200'000},
    NicModel{0x15b3, 0x1021, 400'000},                                     // ConnectX-7
    NicModel{0x15b3, 0x1023, 800'000},                                     // ConnectX-8
    NicModel{0x15b3, 0xa2d6, 100'000}, NicModel{0x15b3, 0xa2dc, 400'000},  // BlueField-2 and -3
    NicModel{0x17db, 0x0501, 200'000},                                     // Slingshot 11
    NicModel{0x1d0f, 0xefa0, 100'000}, NicModel{0x1d0f, 0xefa1, 100'000},  // EFA
    NicModel{0x1d0f, 0xefa2, 200'000}, NicModel{0x1d0f, 0xefa3, 400'000},
};

/// "gfx90a", "90a" and what RCCL wrote at first, "910".
std::string_view architecture(std::string_view gcn) {
  if (gcn.starts_with("gfx")) gcn.remove_prefix(3);
  gcn = gcn.substr(0, gcn.find(':'));
  return gcn == "910" ? "90a" : gcn;
}

}  // namespace

std::span<const GpuModel> gpu_models() { return kModels; }

const GpuModel& gpu_model(std::uint16_t vendor, std::uint16_t device, int sm,
                          std::string_view gcn) {
  for (const GpuModel& m : kModels) {
    if (device != 0 && m.device == device && m.vendor == vendor) return m;
  }
  const std::string_view amd = architecture(gcn);
  const GpuModel* best = &kUnknown;
  for (const GpuModel& m : kModels) {
    if (m.device != 0) continue;
    if (!amd.empty() && m.gcn == amd) return m;
    // Of a capability that is not in the table, the next lower one.
    if (amd.empty() && vendor != kAmd && sm >= 60 && m.sm != 0 && m.sm <= sm && m.sm > best->sm) {
      best = &m;
    }
  }
  return *best;
}

const GpuModel* gpu_model_named(std::string_view name) {
  const auto found = std::ranges::find(kModels, name, &GpuModel::name);
  return found == kModels.end() ? nullptr : &*found;
}

double shared_memory(const GpuModel& model) {
  // Four fifths of the data sheet's 5.3 TB/s (MI300), 6 (MI325X), 8 (MI350): copies on HBM do.
  if (model.device == 0x74a5) return 4800;
  if (model.gcn.starts_with("94")) return 4240;
  return model.gcn.starts_with("95") ? 6400 : 0;
}

double pci_bandwidth(double transfers, int width) {
  // 0.094 GB/s of a GT/s and lane: 12 GB/s of generation 3 x16.
  return transfers * width * (transfers < 6 ? 0.75 : 0.9375) / 10;
}

double socket_bandwidth(std::string_view arch, std::string_view vendor, int family, int model) {
  if (arch.starts_with("arm") || arch == "aarch64") return 6;
  if (arch.starts_with("ppc")) return 32;
  if (vendor == "AuthenticAMD" || vendor == "HygonGenuine") return 16;
  if (vendor == "GenuineIntel" && family == 6) {
    if (model == 0xcf || model == 0x8f) return 22;  // Sapphire and Emerald Rapids
    if (model == 0xad || model == 0xae) return 40;  // Granite Rapids
    if (model >= 0x55) return 10;                   // Skylake and later
    return 6;
  }
  return 10;
}

std::int64_t nic_speed(std::uint16_t vendor, std::uint16_t device) {
  for (const NicModel& n : kNics) {
    if (n.vendor == vendor && n.device == device) return n.speed;
  }
  return 0;
}

}  // namespace tutti::topology
