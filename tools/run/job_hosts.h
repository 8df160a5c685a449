// The hosts of a job: as the user lists them, or as a file or a batch system does; and which ranks
// each of them gets.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/unique_id.h"
#include "tools/run/agent_messages.h"
#include "transport/sockets/socket.h"

namespace tutti {

struct JobHost {
  std::string name;
  int slots = 0;  // ranks that it takes; 0: not said
};

/// "node1:4,node2:4", "node1,[fd00::2]:4". This function and the next ones throw
/// Error(invalid_argument) for what is none. The slots of a host that is named twice add up.
std::vector<JobHost> hosts_in_list(std::string_view list);
/// A host a line: "node1", "node1:4", "node1 slots=4"; # begins a comment.
std::vector<JobHost> hosts_in_file(const std::string& path);
/// Slurm's notation: "node[1-3,07],login" is node1, node2, node3, node07, login.
std::vector<std::string> expand_node_list(std::string_view list);
/// Those of the Slurm or PBS job in which this process runs; none: it runs in none.
std::vector<JobHost> hosts_of_allocation();

/// The ranks of each host, in order; hosts without ranks are left out. `ranks` 0: one for each
/// slot. Where no host has slots, they get equal shares. Throws Error(invalid_argument) where there
/// are more ranks than slots.
std::vector<HostShare> share_ranks(const std::vector<JobHost>& hosts, int ranks);

/// Whether `name` is a name or an address of this host. Of a name that begins as the own one does,
/// and goes on differently, the resolver knows whether it stands for an address of this host; one
/// that it does not know is another host's.
bool is_this_host(const std::string& name);
/// The same on a host that is called `own`; `addresses` asks the resolver, and is empty where that
/// knows nothing.
using Resolver = std::function<std::vector<SocketAddress>(const std::string& name)>;
bool is_host(const std::string& name, const std::string& own, const Resolver& addresses);
/// Where the ranks of these hosts meet: the address of this one by which the others reach it.
MeetingPlace meeting_place_for(const std::vector<HostShare>& hosts);

}  // namespace tutti
