// Orders of a host's ranks, one for each lane of a plan: which of them together carry the most,
// inside of hosts and between them.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/cluster/cluster.h"

namespace tutti::cluster {

using Orders = std::vector<std::vector<int>>;

/// Ranks as they are numbered.
std::vector<int> plain_order(const Cluster& c);
/// Each lane's order begins at another rank: it leaves its host by another port.
Orders turned(Orders orders);

/// Rings that carry the same each, as many as together carry the most, `most` at the largest; a
/// ring enters a host at its first rank and leaves it at the last. Plain orders, turned, where no
/// others carry more. The same cluster gives the same orders.
Orders widest_orders(const Cluster& c, std::size_t most);

}  // namespace tutti::cluster
