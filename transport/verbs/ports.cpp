#include "transport/verbs/ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <sstream>
#include <system_error>

#include "core/error.h"
#include "core/host.h"
#include "core/number.h"
#include "core/settings.h"
#include "transport/verbs/gid.h"
#include "transport/verbs/library.h"

namespace tutti {
namespace {

/// The names in TUTTI_VERBS_DEVICES; none: all devices.
std::vector<std::string> wanted_devices() {
  std::vector<std::string> names;
  std::istringstream list(setting_text("TUTTI_VERBS_DEVICES"));
  for (std::string name; std::getline(list, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

double gigabits_of(const ibv_port_attr& attributes) {
  double lane = 0;
  switch (attributes.active_speed) {
    case 1:  // SDR
      lane = 2.5;
      break;
    case 2:  // DDR
      lane = 5;
      break;
    case 4:  // QDR
    case 8:  // FDR10
      lane = 10;
      break;
    case 16:  // FDR
      lane = 14;
      break;
    case 32:  // EDR
      lane = 25;
      break;
    case 64:  // HDR
      lane = 50;
      break;
    case 128:  // NDR
      lane = 100;
      break;
    default:
      return 0;
  }
  switch (attributes.active_width) {
    case 1:
      return lane;
    case 2:
      return lane * 4;
    case 4:
      return lane * 8;
    case 8:
      return lane * 12;
    case 16:
      return lane * 2;
    default:
      return 0;
  }
}

int numa_node_of(const ibv_device& device) {
  const std::string node = first_line(std::string(device.ibdev_path) + "/device/numa_node");
  return parse_number<int>(trimmed(node)).value_or(-1);
}

VerbsPort port_of(ibv_context* context, const ibv_device_attr& limits, std::uint8_t number) {
  VerbsPort port;
  port.device = ibv_get_device_name(context->device);
  port.port = number;
  port.numa_node = numa_node_of(*context->device);
  port.most_requests = static_cast<std::size_t>(std::max(limits.max_qp_wr, 0));
  port.most_completions = static_cast<std::size_t>(std::max(limits.max_cqe, 0));
  ibv_port_attr attributes{};
  if (const int error = ibv_query_port(context, number, &attributes); error != 0) {
    port.objection = "it cannot be queried: " + std::generic_category().message(error);
    return port;
  }
  port.ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.lid = attributes.lid;
  port.mtu = 128 << attributes.active_mtu;
  port.gigabits = gigabits_of(attributes);
  port.most_bytes = attributes.max_msg_sz;
  const int wanted = static_cast<int>(setting_integer("TUTTI_VERBS_GID_INDEX"));
  const std::vector<VerbsGid> gids = valid_gids(context, number);
  // On InfiniBand the table's first entry is the port's own address.
  const VerbsGid* const gid = choose_gid(gids, wanted < 0 && !port.ethernet ? 0 : wanted);
  if (gid != nullptr) {
    port.gid_index = gid->index;
    port.gid = gid->bytes;
    if (port.ethernet) port.roce = gid->type == VerbsGid::Type::roce_v2 ? 2 : 1;
  }
  if (context->device->transport_type != IBV_TRANSPORT_IB) {
    port.objection = "it has no reliable connections of the InfiniBand kind";
  } else if (attributes.state != IBV_PORT_ACTIVE) {
    port.objection = fmt::format("its state is {}", ibv_port_state_str(attributes.state));
  } else if (gid == nullptr && wanted >= 0) {
    port.objection = fmt::format("it has no GID {} (TUTTI_VERBS_GID_INDEX)", wanted);
  } else if (gid == nullptr && port.ethernet) {
    port.objection = "it has no GID that this process may use (has its network device an address?)";
  } else if (attributes.link_layer == IBV_LINK_LAYER_UNSPECIFIED) {
    port.objection = "its link layer is neither InfiniBand nor Ethernet";
  }
  return port;
}

}  // namespace

std::vector<VerbsPort> verbs_ports() {
  const std::vector<std::string> wanted = wanted_devices();
  int count = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> devices(
      why_no_verbs_library().empty() ? ibv_get_device_list(&count) : nullptr, ibv_free_device_list);
  if (devices == nullptr) count = 0;  // the kernel has no RDMA
  std::vector<VerbsPort> ports;
  std::vector<std::string> names;
  for (int d = 0; d < count; ++d) {
    ibv_device* const device = devices.get()[d];
    names.emplace_back(ibv_get_device_name(device));
    if (!wanted.empty() && std::ranges::find(wanted, names.back()) == wanted.end()) continue;
    const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(ibv_open_device(device),
                                                                      ibv_close_device);
    ibv_device_attr limits{};
    if (context == nullptr || ibv_query_device(context.get(), &limits) != 0) {
      VerbsPort port;
      port.device = names.back();
      port.objection =
          fmt::format("it cannot be opened: {} (may this process use /dev/infiniband/{}?)",
                      std::generic_category().message(errno), device->dev_name);
      ports.push_back(port);
      continue;
    }
    for (int number = 1; number <= limits.phys_port_cnt; ++number) {
      ports.push_back(port_of(context.get(), limits, static_cast<std::uint8_t>(number)));
    }
  }
  for (const std::string& name : wanted) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("TUTTI_VERBS_DEVICES names the RDMA device \"{}\", which this host "
                    "does not have; it has: {}",
                    name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return ports;
}

std::string describe(const VerbsPort& port) {
  std::string line = fmt::format("{} port {}: ", port.device, port.port);
  if (!port.objection.empty()) return line + "not usable, as " + port.objection;
  line += port.ethernet ? fmt::format("RoCE v{}", port.roce)
                        : fmt::format("InfiniBand, LID {}", port.lid);
  if (port.gigabits > 0) line += fmt::format(", {} Gb/s", port.gigabits);
  line += fmt::format(", MTU {}", port.mtu);
  if (port.gid_index >= 0) line += fmt::format(", GID {} {}", port.gid_index, gid_text(port.gid));
  if (port.numa_node >= 0) line += fmt::format(", NUMA node {}", port.numa_node);
  return line;
}

}  // namespace tutti
