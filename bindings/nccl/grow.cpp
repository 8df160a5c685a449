// ncclCommGrow: members and newcomers form a communicator. One member (the root) and all newcomers
// have an id.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>

#include "bindings/nccl/encryption.h"
#include "bindings/nccl/export.h"
#include "bindings/nccl/lifecycle.h"

namespace tutti::nccl {
namespace {

/// The root's id, on all members. `mine`: null but on the root.
ncclUniqueId id_of_root(Communicator& members, const ncclUniqueId* mine) {
  struct Said {
    std::array<std::uint32_t, NCCL_UNIQUE_ID_BYTES / sizeof(std::uint32_t)> id{};
    std::uint32_t roots = 0;
  };
  static_assert(sizeof(Said) % sizeof(std::uint32_t) == 0);
  Said said;
  if (mine != nullptr) {
    std::memcpy(said.id.data(), mine->internal, sizeof mine->internal);
    said.roots = 1;
  }
  // With one root, the sum is the id that the root has.
  members.all_reduce(&said, &said, sizeof said / sizeof(std::uint32_t), DataType::uint32);
  if (said.roots != 1) {
    refuse_usage(
        fmt::format("{} members have passed a uniqueId: the one that has called "
                    "ncclCommGetUniqueId passes it, the others pass NULL",
                    said.roots));
  }
  ncclUniqueId id;
  std::memcpy(id.internal, said.id.data(), sizeof id.internal);
  return id;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId)) {
  return guarded("ncclCommGetUniqueId", [&] {
    ncclComm& c = made(comm);
    if (c.finalized) refuse_usage("the communicator was finalized");
    require(uniqueId, "uniqueId");
    const std::lock_guard lock(c.mutex);
    if (c.id_to_grow) {
      refuse_usage(
          "the communicator has made an id before, with which ncclCommGrow has not succeeded yet");
    }
    c.id_to_grow = fresh_unique_id();
    *uniqueId = *c.id_to_grow;
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclCommGrow,
         (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
          ncclConfig_t* config)) {
  constexpr std::string_view kName = "ncclCommGrow";
  if (comm == nullptr) {
    const ncclResult_t checked = guarded_in_group(kName, [&] {
      require(newcomm, "newcomm");
      *newcomm = nullptr;
      require(uniqueId, "uniqueId");
      return ncclSuccess;
    });
    return checked != ncclSuccess ? checked
                                  : init_rank(kName, newcomm, nRanks, *uniqueId, rank, config);
  }
  return guarded_in_group(kName, [&] {
    ncclComm& parent = made(comm);
    if (parent.finalized) refuse_usage("the communicator was finalized");
    refuse_suspended(parent);
    require(newcomm, "newcomm");
    *newcomm = nullptr;
    if (rank != -1) {
      refuse_argument(fmt::format("rank is {}, but members keep theirs: pass -1", rank));
    }
    if (nRanks <= parent.size) {
      refuse_argument(
          fmt::format("nRanks is {}, but counts members and newcomers, and there are {} members",
                      nRanks, parent.size));
    }
    std::optional<ncclUniqueId> mine;
    if (uniqueId != nullptr) {
      const std::lock_guard lock(parent.mutex);
      if (!parent.id_to_grow || std::memcmp(&*parent.id_to_grow, uniqueId, sizeof *uniqueId) != 0) {
        refuse_argument("the uniqueId is not the newest of ncclCommGetUniqueId, or was used");
      }
      mine = *uniqueId;
    }
    const Config child_config = parse_config(config, parent.config);
    const tutti::Options options = options_for(child_config);
    return open_child(kName, parent, newcomm, true, parent.rank, nRanks, child_config,
                      [&parent, mine, nRanks, options] {
                        const Use held(parent);
                        tutti::Communicator renewed = renewed_if_stopped(parent, options);
                        tutti::Communicator& members = renewed ? renewed : parent.communicator;
                        const ncclUniqueId id = id_of_root(members, mine ? &*mine : nullptr);
                        tutti::Communicator child = members.grow(
                            resolve_unique_id(id, 0, nRanks, options), nRanks, options);
                        const std::lock_guard lock(parent.mutex);
                        if (mine) parent.id_to_grow.reset();
                        return child;
                      });
  });
}
