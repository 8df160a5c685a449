// The unchecked statements of a source (a file, a tree of files, a driver) about a machine: one
// record for each thing that it names, in its order, with the line. The readers fill the records,
// check.h doubts and repairs them, build.h makes the graph, write_nccl.h writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/bus_id.h"

namespace tutti::topology {

/// The origin of a record: a line of a file, or a file of a tree.
struct Origin {
  std::string source;
  int line = 0;  // 0: it is the whole of `source`
  std::string text() const { return line == 0 ? source : source + ":" + std::to_string(line); }
};

/// A statement that cannot be true, or that could not be read: its text, its place, and the repair.
struct Doubt {
  std::string what;
  friend bool operator==(const Doubt&, const Doubt&) = default;
};

/// A number that a source may leave out.
template <typename T>
using Maybe = std::optional<T>;

/// Links of a GPU: to another GPU, to a switch, to a processor.
struct GpuLinkRecord {
  enum class Kind : std::uint8_t { nvlink, xgmi, c2c };
  Kind kind = Kind::nvlink;
  Maybe<BusId> target;             // none for c2c: the processor
  std::uint32_t target_class = 0;  // PCI class; 0: not said
  std::int64_t count = 0;
  std::int64_t bandwidth = 0;  // MB/s of each, if said (c2c, KFD)
  Origin origin;
};

struct GpuRecord {
  int dev = -1, rank = -1;
  int sm = 0;        // compute capability times ten; compute units on AMD
  std::string gcn;   // AMD's architecture, "gfx90a" or, in old files, "910"
  std::string arch;  // AMD: a number that RCCL writes
  Maybe<int> gdr;
  std::string model, uuid;
  bool mig = false;
  bool lost = false;  // the source has no record of it: its class and the others describe it
  std::vector<GpuLinkRecord> links;
  Origin origin;
};

/// One port of a network interface, as libraries use it.
struct NetRecord {
  std::string name;
  int dev = -1;
  Maybe<std::int64_t> speed;  // Mbit/s
  Maybe<double> latency;      // us
  int port = 0;
  std::string guid;
  Maybe<std::int64_t> max_connections;
  Maybe<int> gdr, coll;
  bool up = true;
  Origin origin;
};

/// A PCI device; also a network interface without one, and a host bridge.
struct DeviceRecord {
  int cpu = -1;     // index of its processor (NUMA domain)
  int parent = -1;  // index of the bridge above it
  Maybe<BusId> bus;
  std::uint32_t pci_class = 0;                                     // 24 bits, 0x030200; 0: not said
  std::string vendor, device, subsystem_vendor, subsystem_device;  // "0x10de"
  Maybe<double> speed;                                             // GT/s of one lane, as it is now
  Maybe<double> possible_speed;
  Maybe<int> width;
  Maybe<int> possible_width;
  std::string speed_text;  // as it was written
  bool host_bridge = false;
  Maybe<GpuRecord> gpu;
  bool has_nic = false;  // it has network interfaces, even if no port is named
  int nic_elements = 0;
  std::vector<NetRecord> nets;
  std::vector<BusId> peer_switches;  // links between PCI switches
  Origin origin;
};

/// A processor as NCCL counts them: one NUMA domain.
struct CpuRecord {
  int host = 0;  // index into Records::hosts
  int numa = -1;
  int package = -1;
  std::string affinity;  // mask of cores, in groups of 32 bits, highest first
  int cores = 0;         // hardware threads; 0: not said
  std::string arch, vendor;
  Maybe<int> family, model;
  Origin origin;
};

struct Records {
  std::string source;              // for messages
  std::string format;              // "NCCL system XML version 1", ...
  int version = 0;                 // of NCCL's system XML
  std::int64_t elements = 0;       // of XML; files of a tree
  std::vector<std::string> hosts;  // by a name or hash; at least one
  std::vector<CpuRecord> cpus;
  std::vector<DeviceRecord> devices;  // parents before their children
  int caches = 0;                     // last-level caches; 0: not said
  std::vector<Doubt> doubts;          // of reading
  std::vector<std::string> unseen;    // what such a source, or this one, cannot tell
};

bool is_gpu_class(std::uint32_t pci_class);
bool is_nic_class(std::uint32_t pci_class);
bool is_bridge_class(std::uint32_t pci_class);
/// A GPU by its record, or by its class where the source has no records of GPUs.
bool is_gpu(const DeviceRecord& device);

}  // namespace tutti::topology
