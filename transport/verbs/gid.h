// Which of a port's addresses (GIDs) to use. A RoCE port has many: for each IP address of its
// network device one for RoCE v1, which no router forwards, and one for v2. On InfiniBand the first
// is the port's own.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

using VerbsGidBytes = std::array<std::uint8_t, 16>;

struct VerbsGid {
  VerbsGidBytes bytes{};
  int index = -1;
  enum class Type : std::uint8_t { infiniband, roce_v1, roce_v2 } type = Type::infiniband;
};

/// The valid entries of a port's table. Those that belong to another network namespace (of another
/// container) are left out.
std::vector<VerbsGid> valid_gids(ibv_context* context, std::uint8_t port);

/// The best one: RoCE v2 before v1; of each, IPv4 before global IPv6 before link-local; of equal
/// ones the first. With an `index` of 0 or more, that one. Null: there is none.
const VerbsGid* choose_gid(std::span<const VerbsGid> gids, int index);

/// "::ffff:10.0.0.1"
std::string gid_text(const VerbsGidBytes& gid);

}  // namespace tutti
