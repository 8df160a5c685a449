// See job_hosts.h.
#include "tools/run/job_hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "bootstrap/meeting_place.h"
#include "core/error.h"
#include "core/number.h"
#include "core/settings.h"
#include "tools/run/job_report.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/own_addresses.h"

namespace tutti {
namespace {

constexpr int kMostSlots = 100'000;
constexpr std::size_t kMostNodes = 100'000;
constexpr int kMostRanges = 8;                             // in brackets, in a node's name
constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of a file
constexpr std::size_t kLongestName = 320;  // DNS has names of 253, users have names, too

[[noreturn]] void refuse_hosts(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, why);
}

std::optional<int> count_in(std::string_view text) {
  const auto number = parse_number<int>(text);
  return number && *number >= 1 && *number <= kMostSlots ? number : std::nullopt;
}

/// `text` for a person: it may come from a file that is no list of hosts.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string result(text.substr(0, kMost));
  std::ranges::replace_if(
      result, [](unsigned char c) { return std::isprint(c) == 0; }, '?');
  return text.size() > kMost ? result + "..." : result;
}

/// A name is passed to ssh as a word of its own: it must not look like an option.
void check_name(std::string_view name, std::string_view text) {
  const bool right =
      !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
      std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("._-@:%").find(static_cast<char>(c)) != std::string_view::npos;
      });
  if (!right) {
    refuse_hosts(fmt::format("'{}' names no host; expected HOST or HOST:RANKS", shown(text)));
  }
}

/// "node", "node:4", "fd00::1", "[fd00::1]:4".
JobHost host_in(std::string_view text) {
  std::string_view name = text, slots;
  if (name.starts_with('[') && name.find(']') != std::string_view::npos) {
    const std::size_t end = name.find(']');
    slots = name.substr(end + 1);
    name = name.substr(1, end - 1);
  } else if (std::ranges::count(name, ':') == 1) {
    slots = name.substr(name.find(':'));
    name = name.substr(0, name.find(':'));
  }
  check_name(name, text);
  if (slots.empty()) return {std::string(name), 0};
  const auto number = slots.front() == ':' ? count_in(slots.substr(1)) : std::nullopt;
  if (!number) refuse_hosts(fmt::format("'{}': expected HOST or HOST:RANKS", shown(text)));
  return {std::string(name), *number};
}

/// Slots of a host that is named again add up; a name without a number is one more.
void add_host(std::vector<JobHost>& hosts, JobHost host) {
  const bool here = is_this_host(host.name);
  const auto found = std::ranges::find_if(hosts, [&](const JobHost& other) {
    return other.name == host.name || (here && is_this_host(other.name));
  });
  if (found == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    found->slots = std::max(found->slots, 1) + std::max(host.slots, 1);
    if (found->slots > kMostSlots) {
      refuse_hosts(fmt::format("host {} is to take more than {} ranks", host.name, kMostSlots));
    }
  }
}

std::string variable_text(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Slurm's "4(x2),3": 4, 4, 3.
std::vector<int> expand_counts(std::string_view text) {
  std::vector<int> counts;
  while (!text.empty()) {
    std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    int times = 1;
    if (const std::size_t at = item.find("(x");
        at != std::string_view::npos && item.back() == ')') {
      times = count_in(item.substr(at + 2, item.size() - at - 3)).value_or(0);
      item = item.substr(0, at);
    }
    const auto count = count_in(item);
    if (!count || times < 1) return {};
    counts.insert(counts.end(), static_cast<std::size_t>(times), *count);
  }
  return counts;
}

/// Appends what "PREFIX[1-3,07]REST" stands for.
void expand_nodes(std::vector<std::string>& nodes, const std::string& text) {
  const std::size_t open = text.find('['), close = text.find(']', std::min(open, text.size()));
  if (open == std::string::npos) return nodes.push_back(text);
  const auto refuse = [&] { refuse_hosts(fmt::format("'{}' is no list of nodes", text)); };
  // Each has a number at least, so the names bound the work.
  if (close == std::string::npos || close == open + 1 ||
      std::ranges::count(text, '[') > kMostRanges)
    refuse();
  std::istringstream ranges(text.substr(open + 1, close - open - 1));
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::string first = range.substr(0, range.find('-'));
    const std::string last = range.substr(range.find('-') + 1);  // the same, without a '-'
    const auto number = [&](const std::string& digits) {
      const auto n = digits.size() < 10 ? parse_number<long>(digits) : std::nullopt;
      if (!n || *n < 0) refuse();
      return *n;
    };
    const long from = number(first), to = number(last);
    if (to < from) refuse();
    for (long n = from; n <= to; ++n) {
      if (nodes.size() > kMostNodes) refuse();
      expand_nodes(nodes, fmt::format("{}{:0{}}{}", text.substr(0, open), n, first.size(),
                                      text.substr(close + 1)));
    }
  }
}

/// None where nobody knows the name.
std::vector<SocketAddress> known_addresses(const std::string& name) {
  try {
    return addresses_of(name, 0);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::vector<JobHost> hosts_in_list(std::string_view list) {
  std::vector<JobHost> hosts;
  for (bool more = true; more;) {
    const std::size_t comma = list.find(',');
    add_host(hosts, host_in(list.substr(0, comma)));
    more = comma != std::string_view::npos;
    if (more) list.remove_prefix(comma + 1);
  }
  return hosts;
}

std::vector<JobHost> hosts_in_file(const std::string& path) {
  std::ifstream file(path);
  std::string text(kMostBytes + 1, '\0');
  // (A folder can be opened, and not be read.)
  if (!file || (file.read(text.data(), static_cast<std::streamsize>(text.size())), file.bad())) {
    refuse_hosts(fmt::format("cannot read the list of hosts {}", path));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) {
    refuse_hosts(
        fmt::format("{} has more than {} MiB, so it is no list of hosts", path, kMostBytes >> 20));
  }
  std::istringstream lines(std::move(text));
  std::vector<JobHost> hosts;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    try {
      JobHost host = host_in(name);
      while (words >> word) {
        // Open MPI's max_slots= and MPICH's ifname= and the like are about other things.
        if (word.starts_with("slots=")) {
          const auto slots = count_in(std::string_view(word).substr(6));
          if (!slots) refuse_hosts(fmt::format("'{}': expected slots=NUMBER", shown(word)));
          host.slots = *slots;
        } else if (word.find('=') == std::string::npos) {
          refuse_hosts(
              fmt::format("'{}': expected HOST, HOST:RANKS or HOST slots=RANKS", shown(line)));
        }
      }
      add_host(hosts, std::move(host));
    } catch (const Error& error) {
      refuse_hosts(fmt::format("{}, line {}: {}", path, number, error.what()));
    }
  }
  if (hosts.empty()) refuse_hosts(fmt::format("there is no host in {}", path));
  return hosts;
}

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> nodes;
  std::string item;
  int depth = 0;
  for (const char c : list) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == ',' && depth == 0) {
      expand_nodes(nodes, std::exchange(item, {}));
    } else {
      item += c;
    }
  }
  expand_nodes(nodes, item);
  for (const std::string& node : nodes) check_name(node, list);
  return nodes;
}

std::vector<JobHost> hosts_of_allocation() {
  std::vector<JobHost> hosts;
  if (const std::string list = variable_text("SLURM_JOB_NODELIST"); !list.empty()) {
    const auto nodes = expand_node_list(list);
    std::vector<int> counts = expand_counts(variable_text("SLURM_TASKS_PER_NODE"));
    if (counts.size() != nodes.size()) counts.assign(nodes.size(), 1);
    for (std::size_t i = 0; i < nodes.size(); ++i) hosts.push_back({nodes[i], counts[i]});
  } else if (const std::string file = variable_text("PBS_NODEFILE"); !file.empty()) {
    hosts = hosts_in_file(file);  // each host as often as it has slots
    for (JobHost& host : hosts) host.slots = std::max(host.slots, 1);
  }
  return hosts;
}

std::vector<HostShare> share_ranks(const std::vector<JobHost>& hosts, int ranks) {
  const bool no_slots =
      std::ranges::all_of(hosts, [](const JobHost& host) { return host.slots == 0; });
  std::vector<int> slots;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int count = static_cast<int>(hosts.size()), i = static_cast<int>(h);
    const int equal = ranks / count + (i < ranks % count ? 1 : 0);
    slots.push_back(no_slots && ranks > 0 ? equal : std::max(hosts[h].slots, 1));
  }
  std::vector<HostShare> shares;
  int next = 0;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const int here = ranks > 0 ? std::min(slots[h], ranks - next) : slots[h];
    if (here == 0) continue;
    if (next > kMostSlots - here) refuse_hosts(fmt::format("more than {} ranks", kMostSlots));
    shares.push_back({hosts[h].name, static_cast<int>(shares.size()), next, here});
    next += here;
  }
  if (next < ranks) {
    refuse_hosts(
        fmt::format("-n {}: the hosts have room for {} ranks; name more hosts, or give them "
                    "more ranks (HOST:RANKS)",
                    ranks, next));
  }
  return shares;
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  return is_host(name, own.data(), known_addresses);
}

bool is_host(const std::string& name, const std::string& own, const Resolver& addresses) {
  if (name == "localhost" || name == own) return true;
  const auto is_own = [](const SocketAddress& address) {
    return is_loopback(address) || !interface_of(address).empty();
  };
  if (const auto address = parse_address(name, 0)) return is_own(*address);
  // One of the two may have a domain, or both have: then only the resolver knows.
  if (own.substr(0, own.find('.')) != name.substr(0, name.find('.'))) return false;
  return std::ranges::any_of(addresses(name), is_own);
}

MeetingPlace meeting_place_for(const std::vector<HostShare>& hosts) {
  const auto other =
      std::ranges::find_if(hosts, [](const HostShare& host) { return !is_this_host(host.name); });
  if (other == hosts.end()) return MeetingPlace();
  // A name that only ssh knows does not matter: there is the default.
  const std::string name = other->name.substr(other->name.find('@') + 1);
  MeetingPlace place =
      place_among_hosts(known_addresses(name), setting_text("TUTTI_SOCKET_IFNAME"));
  if (const auto address = parse_address(place.address, 0); address && is_loopback(*address)) {
    report_on_job(
        "the ranks are to meet at {}, a loopback address of this host, to which no way "
        "leads from {}: {}",
        place.address, other->name,
        setting_text("TUTTI_ADDRESS").empty()
            ? "no other interface that may be used is up and has an address"
            : "unset TUTTI_ADDRESS, or set it to another address of this host");
  }
  return place;
}

}  // namespace tutti
