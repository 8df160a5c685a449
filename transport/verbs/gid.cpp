#include "transport/verbs/gid.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "transport/sockets/socket.h"

namespace tutti {
namespace {

constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // ::ffff:0:0/96

constexpr std::uint32_t kMostIndex = 255;  // that a queue pair can be given

bool is_ipv4(const VerbsGidBytes& gid) {
  return std::equal(std::begin(kMapped), std::end(kMapped), gid.begin());
}

bool is_link_local(const VerbsGidBytes& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

/// Less is better.
std::tuple<bool, int, int> order(const VerbsGid& gid) {
  const int family = is_ipv4(gid.bytes) ? 0 : is_link_local(gid.bytes) ? 2 : 1;
  return {gid.type == VerbsGid::Type::roce_v1, family, gid.index};
}

/// The kernel refuses to say what an entry is (EINVAL) where it belongs to a network device of
/// another namespace.
bool is_foreign(ibv_context* context, std::uint8_t port, std::uint32_t index) {
  const std::string path =
      fmt::format("{}/ports/{}/gid_attrs/types/{}", context->device->ibdev_path, port, index);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  char type[32];
  return read(file.fd(), type, sizeof(type)) < 0 && errno == EINVAL;
}

VerbsGid::Type type_of(std::uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
      return VerbsGid::Type::roce_v1;
    case IBV_GID_TYPE_ROCE_V2:
      return VerbsGid::Type::roce_v2;
    default:
      return VerbsGid::Type::infiniband;
  }
}

}  // namespace

std::vector<VerbsGid> valid_gids(ibv_context* context, std::uint8_t port) {
  ibv_port_attr attributes{};
  if (ibv_query_port(context, port, &attributes) != 0) return {};
  // Of all ports.
  ibv_device_attr device{};
  if (ibv_query_device(context, &device) != 0) return {};
  std::vector<ibv_gid_entry> table(static_cast<std::size_t>(attributes.gid_tbl_len) *
                                   device.phys_port_cnt);
  const ssize_t found = ibv_query_gid_table(context, table.data(), table.size(), 0);
  std::vector<VerbsGid> result;
  for (ssize_t i = 0; i < found; ++i) {
    const ibv_gid_entry& entry = table[static_cast<std::size_t>(i)];
    if (entry.port_num != port || entry.gid_index > kMostIndex) continue;
    VerbsGid gid;
    std::memcpy(gid.bytes.data(), entry.gid.raw, sizeof(entry.gid.raw));
    gid.index = static_cast<int>(entry.gid_index);
    gid.type = type_of(entry.gid_type);
    if (gid.bytes == VerbsGidBytes{}) continue;
    if (gid.type != VerbsGid::Type::infiniband && is_foreign(context, port, entry.gid_index)) {
      continue;
    }
    result.push_back(gid);
  }
  return result;
}

const VerbsGid* choose_gid(std::span<const VerbsGid> gids, int index) {
  const VerbsGid* best = nullptr;
  for (const VerbsGid& gid : gids) {
    if (index >= 0 ? gid.index == index : best == nullptr || order(gid) < order(*best)) best = &gid;
  }
  return best;
}

std::string gid_text(const VerbsGidBytes& gid) {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(AF_INET6, gid.data(), text, sizeof(text)) != nullptr ? text : "?";
}

}  // namespace tutti
