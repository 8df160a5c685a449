#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "core/number.h"
#include "transport/network/wire_choice.h"
#include "transport/verbs/library.h"
#include "transport/verbs/verbs_endpoint.h"

namespace tutti {
namespace {

// Links to a handful of ranks; with less, one would fail sooner or later.
constexpr rlim_t kLeastLocked = rlim_t{64} << 20;
constexpr unsigned kMayLock = 14;  // CAP_IPC_LOCK

bool has_capability(unsigned number) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    std::string_view rest = line;
    if (take_word(rest) != "CapEff:") continue;
    const auto set = parse_number<std::uint64_t>(take_word(rest), 16);
    return set && (*set >> number & 1) != 0;
  }
  return false;
}

/// Those that can be used, as many as are offered at most.
std::vector<VerbsPort> usable_ports() {
  std::vector<VerbsPort> ports;
  for (VerbsPort& port : verbs_ports()) {
    if (port.objection.empty() && ports.size() < kMostRdmaPorts) ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

VerbsState verbs_state() {
  VerbsState state;
  bool any = false;
  for (const VerbsPort& port : verbs_ports()) {
    state.ports.push_back({describe(port), port.objection.empty()});
    any = any || port.objection.empty();
  }
  rlimit locked{};
  getrlimit(RLIMIT_MEMLOCK, &locked);
  if (const std::string& why = why_no_verbs_library(); !why.empty() && has_rdma_devices()) {
    state.why_not = why;
    state.advice = "install libibverbs1, and ibverbs-providers with the drivers of devices";
  } else if (state.ports.empty()) {
    state.why_not = "this host has no RDMA device, or this process cannot see it";
    state.advice = "in a container, pass /dev/infiniband on";
  } else if (!any) {
    state.why_not = "no RDMA port can be used: " + state.ports.front().text;
  } else if (locked.rlim_cur < kLeastLocked && !has_capability(kMayLock)) {
    state.why_not = fmt::format("this process may lock {} KiB of memory only, and RDMA needs {}",
                                locked.rlim_cur >> 10, kLeastLocked >> 10);
    state.advice =
        "ulimit -l unlimited, LimitMEMLOCK= of a service, --ulimit memlock=-1 of a container";
  }
  return state;
}

std::shared_ptr<EndpointMaker> make_verbs_endpoints(WireOffer& offer, const NearestPorts& nearest) {
  std::vector<VerbsPort> ports = usable_ports();
  std::vector<std::string> names;
  for (std::size_t p = 0; p < ports.size(); ++p) {
    names.push_back(fmt::format("{}:{}", ports[p].device, ports[p].port));
    offer.ports[p].fabric = !ports[p].ethernet   ? RdmaPort::infiniband
                            : ports[p].roce == 2 ? RdmaPort::roce_v2
                                                 : RdmaPort::roce_v1;
    offer.ports[p].gid = ports[p].gid;
  }
  if (ports.size() > 1) offer.near = nearest(names);
  return std::make_shared<VerbsEndpoints>(std::move(ports));
}

std::unique_ptr<Endpoint> VerbsEndpoints::make(Endpoint::Sink& sink, int peer, int port) {
  std::shared_ptr<VerbsWindows>& windows = windows_[port];
  if (!windows) {
    windows = std::make_shared<VerbsWindows>(
        VerbsDevice::open(ports_.at(static_cast<std::size_t>(port))));
  }
  return std::make_unique<VerbsEndpoint>(sink, windows, peer);
}

}  // namespace tutti
