// See doctor_network.h.
#include "tools/doctor/doctor_network.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "bootstrap/environment.h"
#include "bootstrap/meeting_place.h"
#include "bootstrap/pmix_store.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/settings_check.h"
#include "topology/place.h"
#include "transport/network/ways.h"
#include "transport/network/wire_choice.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

constexpr std::string_view kUsed = "would be used";

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

/// Runs `check`, which throws where something is wrong. Whether nothing is.
template <class Check>
bool holds(DoctorReport& report, std::string_view what, Check&& check) {
  try {
    check();
    return true;
  } catch (const Error& e) {
    report.bad(what, e.what());
    return false;
  }
}

void need_listener(const SocketAddress& address) {
  if (listen_for_ranks(address)) return;
  throw_system_error(fmt::format("this host cannot listen at {}{}; its addresses: {}",
                                 host_text(address), at_which_ports(), own_addresses_text()));
}

std::string asked_interfaces() { return setting_text("TUTTI_SOCKET_IFNAME"); }

void show_way_out(DoctorReport& report) {
  const SocketAddress own = addresses_for_others({}, asked_interfaces()).front();
  const std::string name = interface_of(own);
  const std::string chosen = fmt::format("{} ({})", host_text(own), name);
  const auto all = network_interfaces();
  const auto is_chosen = [&](const NetworkInterface& i) {
    return i.name == name && host_text(i.address) == host_text(own);
  };
  const auto found = std::ranges::find_if(all, is_chosen);
  if (is_loopback(own)) {
    report.bad(kUsed, chosen,
               fmt::format("other hosts cannot reach this one: {} no other interface that is up "
                           "with an address",
                           asked_interfaces().empty()
                               ? "there is"
                               : fmt::format("TUTTI_SOCKET_IFNAME={} leaves", asked_interfaces())));
  } else if (found != all.end() && found->inside) {
    report.bad(kUsed, chosen + ", which leads no further than this host",
               "other hosts may have the same address (as of a bridge of containers), so they do "
               "not reach this one: see `ip address`; TUTTI_SOCKET_IFNAME chooses another");
  } else if (found != all.end() && !found->carrier) {
    report.bad(kUsed, chosen + ", which has no carrier",
               "nothing is connected to it, or the other end is down: see `ip link`; "
               "TUTTI_SOCKET_IFNAME chooses another");
  } else {
    report.good(kUsed,
                chosen + (asked_interfaces().empty() ? "; TUTTI_SOCKET_IFNAME chooses another"
                                                     : ", by TUTTI_SOCKET_IFNAME"));
    holds(report, "listening", [&] { need_listener(own); });
  }
}

std::string asked_transport() { return setting_text("TUTTI_TRANSPORT"); }

/// How ranks on several hosts would find each other.
void show_way(DoctorReport& report, const Placement& place) {
  constexpr std::string_view kHosts = "on several hosts";
  const std::string way = way_across_hosts(place);
  const std::string path = is_set("TUTTI_UNIQUE_ID") ? "" : setting_text("TUTTI_ID_FILE");
  const auto folder = path.empty() ? "" : std::filesystem::absolute(path).parent_path();
  std::error_code error;
  if (!path.empty() && !std::filesystem::is_directory(folder, error)) {
    report.bad(kHosts,
               fmt::format("TUTTI_ID_FILE is {}, but there is no folder {}", path, folder.string()),
               "name a file in a folder that all hosts see");
  } else if (way.starts_with("PMIx") && !why_no_pmix().empty()) {
    report.bad(kHosts, fmt::format("by {}, but {}", way, why_no_pmix()),
               "install libpmix (Debian: libpmix2), or name its folder in LD_LIBRARY_PATH");
  } else if (!way.empty()) {
    report.good(kHosts, "by " + way);
  } else {
    report.good(kHosts, "by the first of these that is there; now there is none:");
    for (const std::string_view each : kWaysAcrossHosts) report.good("", std::string(each));
  }
}

}  // namespace

std::string ports_text() {
  const PortRange range = port_range();
  if (range.first != 0)
    return fmt::format("TCP ports {}-{} (TUTTI_PORTS)", range.first, range.last);
  std::string any = first_line("/proc/sys/net/ipv4/ip_local_port_range");
  std::ranges::replace(any, '\t', '-');
  return fmt::format("TCP ports {} (TUTTI_PORTS narrows that down)",
                     any.empty() ? "of any number" : any);
}

void show_settings(DoctorReport& report) {
  report.section("Settings in the environment");
  bool any = false;
  for (const Setting& setting : settings()) {
    const char* const value = std::getenv(setting.name.data());
    if (value == nullptr) continue;
    any = true;
    report.good(setting.name, setting.name == "TUTTI_UNIQUE_ID" ? "(a secret)" : value);
  }
  for (const UnknownSetting& unknown : unknown_settings()) {
    any = true;
    report.bad(unknown.name, "is no setting of Tutti and does nothing",
               unknown.nearest.empty() ? "`tutti settings` lists all"
                                       : fmt::format("is {} meant?", unknown.nearest));
  }
  const std::vector<std::string> unreadable = unreadable_settings();
  for (const std::string& problem : unreadable) report.bad("a value", problem);
  if (unreadable.empty()) holds(report, "a value", [] { Options().check(); });
  if (const std::string level = setting_text("TUTTI_LOG"); !is_log_level(level)) {
    report.bad("TUTTI_LOG", "is no level; \"warn\" holds instead",
               "it can be off, error, warn, info, debug");
  }
  holds(report, "TUTTI_TOPO_FILE", [] { topology::host_graph(); });
  if (!any) report.good("none", "`tutti settings` lists them");
}

void show_meeting(DoctorReport& report) {
  report.section("How ranks find each other");
  Placement place;
  holds(report, "launcher", [&] {
    place = placement_from_environment();
    report.good("launcher", place.launcher == "none"
                                ? "none has started this process"
                                : fmt::format("{}: this is rank {} of {}", place.launcher,
                                              place.rank, place.size));
  });
  report.good("on one host", "by themselves, under `tutti run`, torchrun, mpirun and srun");
  holds(report, "on several hosts", [&] { show_way(report, place); });
  if (is_set("TUTTI_ADDRESS")) {
    holds(report, "TUTTI_ADDRESS", [&] {
      const SocketAddress address = listening_address(setting_text("TUTTI_ADDRESS"));
      need_listener(address);
      report.good("TUTTI_ADDRESS",
                  fmt::format("{} ({}{})", host_text(address), interface_of(address),
                              is_loopback(address) ? ", this host only" : ""));
    });
  }
}

/// The further ways on which parts of long messages travel.
void show_further_ways(DoctorReport& report) {
  const SocketAddress own = addresses_for_others({}, asked_interfaces()).front();
  std::string names = interface_of(own);
  std::size_t ways = 1;
  for (const NetworkInterface& i : further_interfaces(own, asked_interfaces())) {
    names += fmt::format(", {} ({})", host_text(i.address), i.name);
    ++ways;
  }
  const auto asked = setting_integer("TUTTI_TCP_STREAMS");
  report.good(
      "long messages",
      asked > 0 ? fmt::format("over up to {} connections to another rank, by TUTTI_TCP_STREAMS; "
                              "ways: {}",
                              asked, names)
      : ways == 1
          ? fmt::format("over one way, {}: no other interface is known to be as fast", names)
          : fmt::format("in parts over up to {} ways, with hosts in the same networks: {}", ways,
                        names));
}

void show_tcp(DoctorReport& report) {
  report.section("Between hosts: TCP");
  const std::string asked = asked_transport();
  holds(report, "TUTTI_TRANSPORT", [&] {
    if (!asked.empty()) wire_named(asked);
  });
  if (is_loopback_down()) {
    report.bad("lo", "is down, so nothing comes from this host to itself",
               "`ip link set lo up`: until then no ranks can meet here");
  }
  holds(report, kUsed, [&] {
    for (const NetworkInterface& i : network_interfaces()) {
      report.good(i.name, fmt::format("{}{}{}{}", host_text(i.address), speed_text(i),
                                      i.loopback ? ", this host only"
                                      : i.inside ? ", leads no further than this host"
                                                 : "",
                                      i.carrier ? "" : ", no carrier"));
    }
    show_way_out(report);
  });
  holds(report, "TUTTI_TCP_STREAMS", [&] { show_further_ways(report); });
  holds(report, "TUTTI_PORTS", [&] {
    report.good("a firewall", "must let the job's other hosts connect to " + ports_text());
  });
  holds(report, "congestion control", [&] {
    check_congestion_control();
    report.good("congestion control",
                fmt::format("{} (the system's default is {})", congestion_control_in_use(),
                            first_line("/proc/sys/net/ipv4/tcp_congestion_control")));
  });
  report.good("the way to a host",
              "`tutti doctor --listen` there, and `tutti doctor --to HOST` here, test it");
}

void show_rdma(DoctorReport& report) {
  report.section("Between hosts: RDMA");
  const std::string asked = asked_transport();
  holds(report, kUsed, [&] {
    const VerbsState state = verbs_state();
    for (const VerbsState::Port& port : state.ports) {
      report.good(port.usable ? "port" : "port, not used", port.text);
    }
    if (state.why_not.empty()) {
      report.good(kUsed, !asked.empty() && asked != "verbs"
                             ? fmt::format("no: TUTTI_TRANSPORT is {}", asked)
                             : "instead of TCP, with hosts that have such ports, too");
    } else if (state.ports.empty() && asked != "verbs") {
      report.good(kUsed, "no: " + state.why_not);
    } else {
      report.bad(kUsed,
                 fmt::format("no: {}{}", state.why_not,
                             asked == "verbs" ? "; but TUTTI_TRANSPORT=verbs asks for it" : ""),
                 state.advice.empty() ? "look at `ip link`, `rdma link` and `ibv_devinfo -v`"
                                      : state.advice);
    }
  });
}

void show_plugin(DoctorReport& report) {
  if (asked_transport() != "plugin") return;
  report.section("Between hosts: network plugin of NCCL");
  holds(report, kUsed, [&] {
    report.good("plugin", plugin_text());
    report.good(kUsed, "instead of TCP, as TUTTI_TRANSPORT=plugin asks");
  });
}

void show_ucx(DoctorReport& report) {
  report.section("Between hosts: UCX");
  const bool asked = asked_transport() == "ucx";
  holds(report, kUsed, [&] {
    const UcxState state = ucx_state();
    if (!state.version.empty()) {
      const auto or_all = [](const std::string& text) { return text.empty() ? "all" : text; };
      report.good("UCX", fmt::format("{}; transports: {}; devices: {}", state.version,
                                     or_all(setting_text("TUTTI_UCX_TLS")),
                                     or_all(setting_text("TUTTI_UCX_NET_DEVICES"))));
    }
    if (state.why_not.empty()) {
      report.good(kUsed, asked ? "instead of TCP, as TUTTI_TRANSPORT=ucx asks; at ports of its own"
                               : "no: TUTTI_TRANSPORT=ucx asks for it");
    } else if (asked) {
      report.bad(kUsed, fmt::format("no: {}; but TUTTI_TRANSPORT=ucx asks for it", state.why_not),
                 "TUTTI_TRANSPORT=tcp does without");
    } else {
      report.good(kUsed, "no: " + state.why_not);
    }
  });
}

}  // namespace tutti
