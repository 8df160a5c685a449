// The GPUs as NVIDIA's driver describes them: NVLink by link and peer, NVSwitch, C2C, MIG, names.
// This file declares the part of NVML that Tutti uses: its headers come with CUDA, which is not
// needed to build Tutti. Types and values are those of NVML's interface, which does not change.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "topology/readers.h"

namespace tutti::topology {
namespace {

using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kMostLinks = 36;  // NVML_NVLINK_MAX_LINKS is 18, twice that for what is to come

struct PciInfo {  // nvmlPciInfo_t, version 3
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double d;
    int si;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
  } value;
};
constexpr unsigned kC2cCount = 170, kC2cBandwidth = 172;  // NVML_FI_DEV_C2C_LINK_*

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    find("nvmlInit_v2", init);
    find("nvmlShutdown", shutdown);
    find("nvmlDeviceGetCount_v2", count);
    find("nvmlDeviceGetHandleByIndex_v2", handle);
    find("nvmlDeviceGetPciInfo_v3", pci);
    find("nvmlDeviceGetName", name);
    find("nvmlDeviceGetUUID", uuid);
    find("nvmlDeviceGetCudaComputeCapability", capability);
    find("nvmlDeviceGetMigMode", mig);
    find("nvmlDeviceGetMaxMigDeviceCount", most_instances);
    find("nvmlDeviceGetMigDeviceHandleByIndex", instance);
    find("nvmlDeviceGetNvLinkState", link_state);
    find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_peer);
    find("nvmlDeviceGetNvLinkRemoteDeviceType", link_type);
    find("nvmlDeviceGetFieldValues", fields);
    const bool usable = init != nullptr && count != nullptr && handle != nullptr && pci != nullptr;
    running_ = usable && init() == kSuccess;
  }
  ~Nvml() {
    if (running_ && shutdown != nullptr) shutdown();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool found() const { return library_ != nullptr; }
  bool running() const { return running_; }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*mig)(Device, unsigned*, unsigned*) = nullptr;
  int (*most_instances)(Device, unsigned*) = nullptr;
  int (*instance)(Device, unsigned, Device*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_peer)(Device, unsigned, PciInfo*) = nullptr;
  int (*link_type)(Device, unsigned, int*) = nullptr;
  int (*fields)(Device, int, FieldValue*) = nullptr;

 private:
  template <typename F>
  void find(const char* symbol, F& function) {
    function = reinterpret_cast<F>(dlsym(library_, symbol));
  }

  void* library_;
  bool running_ = false;
};

BusId bus_of(const PciInfo& info) {
  return {info.domain, static_cast<std::uint8_t>(info.bus), static_cast<std::uint8_t>(info.device),
          0};
}

DeviceRecord& device_at(Records& records, const BusId& bus, const PciInfo& info) {
  for (DeviceRecord& d : records.devices) {
    if (d.bus == bus) return d;
  }
  DeviceRecord d;  // the driver shows it, /sys does not: a container
  d.bus = bus;
  d.pci_class = 0x030200;
  d.vendor = "0x10de";
  d.device = fmt::format("{:#06x}", info.device_id >> 16);
  d.origin = {"NVML", 0};
  records.unseen.push_back(
      fmt::format("where {} is: the driver shows it and /sys does not", text_of(bus)));
  records.devices.push_back(std::move(d));
  return records.devices.back();
}

void add_links(const Nvml& nvml, Device device, GpuRecord& gpu) {
  if (nvml.link_state == nullptr || nvml.link_peer == nullptr) return;
  for (unsigned l = 0; l < kMostLinks; ++l) {
    unsigned active = 0;
    if (nvml.link_state(device, l, &active) != kSuccess || active == 0) continue;
    constexpr int kToProcessor = 1, kToSwitch = 2;
    int type = 0;
    const bool typed = nvml.link_type != nullptr && nvml.link_type(device, l, &type) == kSuccess;
    PciInfo peer{};
    const bool known = nvml.link_peer(device, l, &peer) == kSuccess && peer.bus_id[0] != '\0';
    GpuLinkRecord record;
    record.count = 1;
    record.origin = {fmt::format("NVML: link {}", l), 0};
    record.target = known ? bus_of(peer) : BusId{0xfffffff, 0xff, 0xff, 0};
    record.target_class = !known || (typed && type == kToSwitch) ? 0x068000
                          : typed && type == kToProcessor        ? 0x068001
                                                                 : 0x030200;
    const auto same = std::ranges::find_if(
        gpu.links, [&](const GpuLinkRecord& o) { return o.target == record.target; });
    if (same == gpu.links.end()) {
      gpu.links.push_back(record);
    } else {
      ++same->count;
    }
  }
}

void add_c2c(const Nvml& nvml, Device device, GpuRecord& gpu) {
  if (nvml.fields == nullptr) return;
  FieldValue values[2]{};
  values[0].field = kC2cCount;
  values[1].field = kC2cBandwidth;
  if (nvml.fields(device, 2, values) != kSuccess) return;
  if (values[0].result != kSuccess || values[1].result != kSuccess) return;
  if (values[0].value.ui == 0) return;
  GpuLinkRecord record;
  record.kind = GpuLinkRecord::Kind::c2c;
  record.count = values[0].value.ui;
  record.bandwidth = values[1].value.ui;
  record.origin = {"NVML: C2C", 0};
  gpu.links.push_back(record);
}

/// MIG's instances of a GPU: the first one is the record that is there, the others are beside it,
/// with its address but for the function (divided.h).
void add_instances(const Nvml& nvml, Device device, const BusId& bus, Records& records) {
  if (nvml.most_instances == nullptr || nvml.instance == nullptr) return;
  unsigned most = 0;
  if (nvml.most_instances(device, &most) != kSuccess) return;
  const auto at = std::ranges::find(records.devices, bus, &DeviceRecord::bus);
  const DeviceRecord whole = *at;
  std::uint8_t function = 0;
  for (unsigned i = 0; i < std::min(most, 16U); ++i) {
    Device instance = nullptr;
    if (nvml.instance(device, i, &instance) != kSuccess) continue;
    DeviceRecord part = whole;
    part.bus->function = function;
    char text[96]{};
    if (nvml.name != nullptr && nvml.name(instance, text, sizeof text - 1) == kSuccess) {
      part.gpu->model = text;
    }
    if (nvml.uuid != nullptr && nvml.uuid(instance, text, sizeof text - 1) == kSuccess) {
      part.gpu->uuid = text;
    }
    if (function++ == 0) {
      *std::ranges::find(records.devices, bus, &DeviceRecord::bus) = part;
      continue;
    }
    part.gpu->dev = -1;  // it gets a number that is free
    part.nets.clear();
    records.devices.push_back(std::move(part));
  }
}

void add_gpu(const Nvml& nvml, Device device, int number, Records& records) {
  PciInfo info{};
  if (nvml.pci(device, &info) != kSuccess) return;
  DeviceRecord& d = device_at(records, bus_of(info), info);
  if (!d.gpu) d.gpu = GpuRecord();
  GpuRecord& g = *d.gpu;
  g.dev = number;
  g.origin = d.origin;
  char text[96]{};
  if (nvml.name != nullptr && nvml.name(device, text, sizeof text - 1) == kSuccess) g.model = text;
  if (nvml.uuid != nullptr && nvml.uuid(device, text, sizeof text - 1) == kSuccess) g.uuid = text;
  int major = 0, minor = 0;
  if (nvml.capability != nullptr && nvml.capability(device, &major, &minor) == kSuccess) {
    g.sm = major * 10 + minor;
  }
  unsigned current = 0, pending = 0;
  g.mig = nvml.mig != nullptr && nvml.mig(device, &current, &pending) == kSuccess && current != 0;
  if (g.mig) {
    records.unseen.push_back(
        fmt::format("NVLink of gpu{}: MIG divides it, and its instances have none", number));
    add_instances(nvml, device, bus_of(info), records);
    return;  // what of its links is up, no instance uses
  }
  add_links(nvml, device, g);
  add_c2c(nvml, device, g);
}

}  // namespace

void add_nvml(Records& records) {
  const Nvml nvml;
  const bool nvidia = std::ranges::any_of(
      records.devices, [](const DeviceRecord& d) { return d.gpu && d.vendor == "0x10de"; });
  if (!nvml.running()) {
    if (nvidia) {
      records.unseen.push_back(fmt::format(
          "NVLink: {}", nvml.found() ? "NVIDIA's driver library does not start"
                                     : "there is no NVIDIA driver library (libnvidia-ml.so.1)"));
    }
    return;
  }
  records.format += ", NVML";
  // Numbers are the driver's, as CUDA's are with CUDA_DEVICE_ORDER=PCI_BUS_ID.
  for (DeviceRecord& d : records.devices) {
    if (d.gpu && d.vendor == "0x10de") d.gpu->dev = -1;
  }
  unsigned count = 0;
  if (nvml.count(&count) != kSuccess) return;
  for (unsigned i = 0; i < std::min(count, 1024U); ++i) {
    Device device = nullptr;
    if (nvml.handle(i, &device) == kSuccess) add_gpu(nvml, device, static_cast<int>(i), records);
  }
}

}  // namespace tutti::topology
