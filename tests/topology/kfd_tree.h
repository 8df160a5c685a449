// A topology folder of AMD's kernel driver (KFD), as it writes it for GPUs of one hive: two
// processors, and each MI300X, or each part of one, linked to all others over xGMI. Between parts
// the driver says bandwidths of its own: 819.2 GB/s inside of a device, and none from one to
// another.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::test {

struct KfdHost {
  int devices = 8, parts = 8;
  bool in_function = false;  // which part it is: as older drivers say it
};

inline void write_kfd_tree(const std::string& folder, const KfdHost& host) {
  const auto file = [&](const std::string& name, const std::string& text) {
    const auto path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  for (int cpu = 0; cpu < 2; ++cpu) {
    file(fmt::format("nodes/{}/properties", cpu), "cpu_cores_count 96\nsimd_count 0\n");
  }
  const int gpus = host.devices * host.parts;
  for (int g = 0; g < gpus; ++g) {
    const int device = g / host.parts;
    const auto part = static_cast<std::uint32_t>(g % host.parts);
    const std::uint32_t place =
        static_cast<std::uint32_t>(5 + 16 * device) << 8U | (host.in_function ? part : part << 28U);
    const std::string node = fmt::format("nodes/{}/", 2 + g);
    file(node + "properties",
         fmt::format("cpu_cores_count 0\nsimd_count 152\nsimd_per_cu 4\ngfx_target_version 90402\n"
                     "vendor_id 4098\ndevice_id 29857\nlocation_id {}\ndomain 0\n",
                     place));
    file(node + "io_links/0/properties",
         fmt::format("type 2\nnode_from {}\nnode_to {}\n", 2 + g, device * 2 / host.devices));
    for (int to = 0; to < gpus; ++to) {
      if (to == g) continue;
      const int bandwidth = host.parts == 1 ? 64000 : to / host.parts == device ? 819200 : 0;
      file(node + fmt::format("io_links/{}/properties", 1 + to),
           fmt::format("type 11\nnode_from {}\nnode_to {}\nmax_bandwidth {}\n", 2 + g, 2 + to,
                       bandwidth));
    }
  }
}

}  // namespace tutti::test
