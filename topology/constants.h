// The capacity of links, by model: the one table of numbers that no topology file has. Each line
// has its source. `reached` is the rate of transfers, and plans use it; `rate` is the data sheet's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::topology {

/// A GPU: by PCI device id, or by architecture where `device` is 0.
struct GpuModel {
  std::string_view name;
  std::uint16_t vendor = 0;  // 0x10de NVIDIA, 0x1002 AMD
  std::uint16_t device = 0;
  int sm = 0;            // NVIDIA's compute capability times ten
  std::string_view gcn;  // AMD's architecture without "gfx"
  int links = 0;         // its NVLink or xGMI links; 0: none
  double rate = 0;       // GB/s of a link, in each direction
  double reached = 0;
  double pci_speed = 0;  // GT/s of a lane, at most
  double memory = 0;     // GB; 0: not known, as of an architecture
  double teraflops =
      0;  // of matrices of 16-bit floats without zeros to skip, at most; 0: not known
};
std::span<const GpuModel> gpu_models();
/// The device's line, else its architecture's, else an empty line.
const GpuModel& gpu_model(std::uint16_t vendor, std::uint16_t device, int sm, std::string_view gcn);
/// By GpuModel::name; null if the table does not have it.
const GpuModel* gpu_model_named(std::string_view name);
/// The rate of its memory that transfers reach, in GB/s, reads and writes together. Only for GPUs
/// with parts that reach each other (AMD's SPX, DPX, TPX, QPX, CPX); 0 for all others.
double shared_memory(const GpuModel& model);
/// The rate of a lane of a C2C link, for records that do not give it.
constexpr double kC2cLink = 44.7;  // GB/s; GH200 and GB200 say 5 x 44.712 and 10 x 44.712

/// GB/s that a PCI link reaches, in each direction. 8b/10b up to 5 GT/s, 128b/130b from 8 on, minus
/// headers: 12, 24 and 48 GB/s of x16 are measured on generations 3, 4 and 5 (as NCCL counts).
double pci_bandwidth(double transfers, int width);

/// Between sockets, by processor (NCCL's graph/topo.h, in GB/s): arch of uname, the CPU's vendor.
double socket_bandwidth(std::string_view arch, std::string_view vendor, int family, int model);

/// An interface's speed in Mbit/s, for a record without one; 0: not known.
std::int64_t nic_speed(std::uint16_t vendor, std::uint16_t device);
/// No port is faster: 1.6 Tb/s, the next generation of Ethernet.
constexpr std::int64_t kFastestPort = 1'600'000;
constexpr std::int64_t kUsualPort = 10'000;  // NCCL takes the same where a speed is missing

/// Latency of one hop, in ns. NVLink and PCI: NCCL's hwLat for LL is 0.6 us from GPU to GPU over
/// NVLink and 1.0 us over PCI (graph/tuning.cc), two hops or more. A socket crossing adds about a
/// remote load; a port the share of the NICs on one side, out of 2.7 us from host to host.
constexpr double kGpuLinkHop = 300;
constexpr double kPciHop = 250;
constexpr double kSocketHop = 120;
constexpr double kPortHop = 1000;

}  // namespace tutti::topology
