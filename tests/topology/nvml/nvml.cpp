// A libnvidia-ml.so.1 for machines without NVIDIA's driver: two GPUs that are joined by four
// NVLinks; with FAKE_MIG=n, MIG divides the first one into n instances. It has what
// topology/nvml.cpp asks for, and nothing else.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kNotFound = 6;
constexpr unsigned kLinks = 4, kMostInstances = 7;

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

/// Handles are numbers: GPUs 1 and 2, instances 100 and up.
std::uintptr_t number(void* device) { return reinterpret_cast<std::uintptr_t>(device); }

unsigned instances() {
  const char* const text = std::getenv("FAKE_MIG");
  return text == nullptr ? 0 : static_cast<unsigned>(std::atoi(text));
}

void fill(PciInfo* info, unsigned gpu) {
  std::memset(info, 0, sizeof *info);
  info->bus = 0x10 * gpu;
  info->device_id = 0x20b010de;
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  fill(info, static_cast<unsigned>(number(device)));
  return kSuccess;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  std::snprintf(name, length, "NVIDIA A100-SXM4-40GB%s",
                number(device) >= 100 ? " MIG 2g.10gb" : "");
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = number(device) == 1 && instances() > 0 ? 1 : 0;
  return kSuccess;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = kMostInstances;
  return kSuccess;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned index, void** device) {
  // Places are not filled from the first one on.
  if (index == 0 || index > instances()) return kNotFound;
  *device = reinterpret_cast<void*>(std::uintptr_t{100} + index);
  return kSuccess;
}
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  if (link >= kLinks) return kNotFound;
  *active = 1;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* info) {
  fill(info, number(device) == 1 ? 2 : 1);
  return kSuccess;
}

}  // extern "C"
