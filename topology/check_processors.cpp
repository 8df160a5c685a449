// Processors: which hosts they are of, and what they are; see check.h.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "topology/check.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

std::string name_of(const CpuRecord& cpu) { return fmt::format("NUMA domain {}", cpu.numa); }

/// A host with one processor that goes on where another host ends is a part of that one: each host
/// counts its NUMA domains, GPUs, and addresses anew.
void join_hosts(Records& r, Doubts& doubts) {
  if (r.hosts.size() < 2 || r.hosts.size() > 1024) return;  // more would take minutes
  std::vector<int> processors(r.hosts.size());
  std::vector<std::set<std::tuple<char, int, BusId>>> numbers(r.hosts.size());
  for (const CpuRecord& cpu : r.cpus) {
    ++processors[static_cast<std::size_t>(cpu.host)];
    numbers[static_cast<std::size_t>(cpu.host)].emplace('n', cpu.numa, BusId{});
  }
  for (const DeviceRecord& d : r.devices) {
    if (d.cpu >= static_cast<int>(r.cpus.size())) continue;
    auto& own = numbers[static_cast<std::size_t>(host_of(r, d))];
    if (d.gpu && d.gpu->dev >= 0) own.emplace('g', d.gpu->dev, BusId{});
    if (d.bus) own.emplace('b', 0, *d.bus);
  }
  std::set<int> gone;
  for (CpuRecord& cpu : r.cpus | std::views::reverse) {
    const auto from = static_cast<std::size_t>(cpu.host);
    if (cpu.numa < 0 || processors[from] > 1) continue;
    for (std::size_t to = 0; to < numbers.size(); ++to) {
      const auto is_there = [&](const auto& n) { return numbers[to].contains(n); };
      const bool any = processors[to] == 0 || std::ranges::any_of(numbers[from], is_there);
      if (to == from || any) continue;
      doubts.add(name_of(cpu), cpu.origin,
                 fmt::format("goes on where host {} ends; it is taken as a part of that",
                             printable(r.hosts[to])));
      gone.insert(std::exchange(cpu.host, static_cast<int>(to)));
      ++processors[to];
      processors[from] = 0;
      break;
    }
  }
  for (const int host : gone | std::views::reverse) {
    r.hosts.erase(r.hosts.begin() + host);
    for (CpuRecord& cpu : r.cpus) cpu.host -= cpu.host > host ? 1 : 0;
  }
}

/// Processors of a host are alike: what fewer say is wrong, and of two that differ the slower one.
void compare(Records& r, Doubts& doubts) {
  if (!r.format.starts_with("NCCL")) return;  // other sources leave out what they do not know
  const auto kind = [](const CpuRecord& c) {
    return std::tuple(c.arch, c.vendor, c.family, c.model);
  };
  using Kind = decltype(kind(r.cpus[0]));
  std::map<int, std::map<Kind, int>> votes;
  for (const CpuRecord& cpu : r.cpus) ++votes[cpu.host][kind(cpu)];
  std::map<int, Kind> usual;
  for (const auto& [host, of_host] : votes) {
    const auto weight = [](const auto& vote) {
      const auto& [arch, vendor, family, m] = vote.first;
      const double fast = socket_bandwidth(arch, vendor, family.value_or(0), m.value_or(0));
      return std::pair(vote.second, fast);
    };
    usual.emplace(host, std::ranges::max_element(of_host, {}, weight)->first);
  }
  for (CpuRecord& cpu : r.cpus) {
    if (usual.at(cpu.host) == kind(cpu)) continue;
    std::tie(cpu.arch, cpu.vendor, cpu.family, cpu.model) = usual.at(cpu.host);
    doubts.add(name_of(cpu), cpu.origin,
               fmt::format("is not like the host's other processors; {} {} is taken",
                           printable(cpu.arch), printable(cpu.vendor)));
  }
}

/// Processors of one number on one host are one. Returns the second's devices, named by now.
std::set<int> join_processors(Records& r, Doubts& doubts) {
  std::map<std::pair<int, int>, int> known;
  std::vector<int> place;
  std::vector<bool> twice;
  std::vector<CpuRecord> kept;
  for (const CpuRecord& cpu : r.cpus) {
    const auto [at, is_new] =
        known.try_emplace({cpu.host, cpu.numa}, static_cast<int>(kept.size()));
    place.push_back(at->second);
    twice.push_back(!is_new && cpu.numa >= 0);
    if (is_new) {
      kept.push_back(cpu);
    } else if (cpu.numa >= 0) {
      doubts.add(name_of(cpu), cpu.origin, "is there twice; both are taken as one");
    } else {
      // Without numbers they are told apart by their order.
      place.back() = static_cast<int>(kept.size());
      kept.push_back(cpu);
    }
  }
  r.cpus = std::move(kept);
  std::set<int> moved;
  for (std::size_t i = 0; i < r.devices.size(); ++i) {
    DeviceRecord& d = r.devices[i];
    if (d.cpu >= static_cast<int>(place.size())) d.cpu = -1;
    if (d.cpu < 0) continue;
    if (twice[static_cast<std::size_t>(d.cpu)]) moved.insert(static_cast<int>(i));
    d.cpu = place[static_cast<std::size_t>(d.cpu)];
  }
  return moved;
}

}  // namespace

std::set<int> check_processors(Records& records, Doubts& doubts) {
  if (records.hosts.empty()) records.hosts.emplace_back("");
  if (records.cpus.empty()) records.cpus.emplace_back();
  join_hosts(records, doubts);
  compare(records, doubts);
  return join_processors(records, doubts);
}

}  // namespace tutti::topology
