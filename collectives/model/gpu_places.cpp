// See gpu_places.h.
#include "collectives/model/gpu_places.h"

#include <algorithm>

#include "collectives/model/lanes.h"
#include "topology/graph.h"

namespace tutti {

using topology::Graph;

GpuPlace gpu_place(const Graph& graph, int gpu) {
  GpuPlace place;
  if (gpu < 0) return place;
  const int host = graph.node(gpu).host;
  std::vector<int> gpus = graph.gpus();
  std::erase_if(gpus, [&](int g) { return graph.node(g).host != host; });
  const auto index = static_cast<int>(std::ranges::find(gpus, gpu) - gpus.begin());
  place.domain = domains_of(graph, gpus).number_of(index);
  LanesRequest request;
  request.most_lanes = static_cast<int>(kOwnChannels);
  const Lanes found = find_equal_rings(graph, host, request);
  if (found.lanes.empty()) return place;
  const auto orders = orders_of(found, gpus);
  place.lanes = static_cast<std::int32_t>(orders.size());
  for (std::size_t l = 0; l < orders.size(); ++l) {
    place.turn[l] = static_cast<std::uint16_t>(orders[l].place_of(index));
  }
  return place;
}

std::vector<Domains> gpu_layouts(std::span<const GpuPlace> places, const Domains& hosts) {
  std::vector<std::vector<int>> of_host(static_cast<std::size_t>(hosts.count()));
  std::vector<int> host_of, domain_of;
  std::size_t orders = kOwnChannels;
  for (int r = 0; r < static_cast<int>(places.size()); ++r) {
    const GpuPlace& p = places[static_cast<std::size_t>(r)];
    if (p.domain < 0) return {};
    host_of.push_back(hosts.number_of(r));
    of_host[static_cast<std::size_t>(host_of.back())].push_back(r);
    domain_of.push_back(p.domain);
    orders = std::min(orders, static_cast<std::size_t>(std::max(p.lanes, 1)));
  }
  const Domains near = Domains::on_hosts(host_of, domain_of);
  const bool several = hosts.count() > 1;
  // Between hosts each ring begins at another GPU, so that it goes out by another port.
  const auto most = static_cast<std::size_t>(hosts.most(static_cast<int>(places.size())));
  const std::size_t lanes =
      several ? std::max(orders, std::min<std::size_t>(most, kOwnChannels)) : orders;
  std::vector<Domains> layouts;
  bool any = near.count() > hosts.count();
  for (std::size_t l = 0; l < lanes; ++l) {
    std::vector<int> ranks;
    for (std::vector<int> here : of_host) {
      std::ranges::stable_sort(
          here, {}, [&](int r) { return places[static_cast<std::size_t>(r)].turn[l % orders]; });
      if (several) {
        std::ranges::rotate(here,
                            here.begin() + static_cast<std::ptrdiff_t>(l * here.size() / lanes));
      }
      ranks.insert(ranks.end(), here.begin(), here.end());
    }
    any = any || !std::ranges::is_sorted(ranks);
    const Domains order = Domains::in_order(ranks);
    layouts.push_back(several            ? hosts.refined(order)
                      : near.count() > 1 ? near.refined(order)
                                         : order);
  }
  if (!any) layouts.clear();
  return layouts;
}

}  // namespace tutti
