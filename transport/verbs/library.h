// libibverbs.so.1, which is looked for when a host has RDMA devices: other processes do not load
// it, nor the two libraries that it needs. It has to be the system's own, as the drivers of devices
// fit that one, so it cannot be linked into a package that serves many systems.
#pragma once

#include <string>

namespace tutti {

/// Why it is not there: the host has no devices, or no library that serves; empty: it is there. The
/// functions of <infiniband/verbs.h> are not to be called without it. Any thread may call it.
const std::string& why_no_verbs_library();
/// Whether that is because the host has no devices.
bool has_rdma_devices();

}  // namespace tutti
