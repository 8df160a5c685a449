// Communicators from nothing: ncclCommInitRank and its relatives.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bindings/nccl/export.h"
#include "bindings/nccl/lifecycle.h"
#include "bindings/nccl/log.h"
#include "transport/gpu/cuda_module.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti::nccl {
namespace {

/// The GPU of each rank. Without a list ranks take turns on those there are, so that there may be
/// more ranks.
std::vector<int> devices_for(int ranks, const int* list) {
  std::vector<int> devices;
  const int gpus = list == nullptr ? gpu_count() : 0;
  for (int i = 0; i < ranks; ++i) {
    devices.push_back(list != nullptr ? list[i] : gpus > 0 ? i % gpus : i);
  }
  return devices;
}

}  // namespace

ncclResult_t init_rank(std::string_view function, ncclComm_t* out, int size, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* given) {
  return guarded_in_group(function, [&] {
    require(out, "comm");
    log_start();
    *out = nullptr;
    if (size < 1 || rank < 0 || rank >= size) {
      refuse_argument(
          fmt::format("rank {} of {} ranks makes no sense: ranks are 0 to nranks - 1", rank, size));
    }
    const Config config = parse_config(given);
    Options options = options_for(config);
    options.gpu = current_gpu();  // of this thread: another one may open it
    Opening opening;
    opening.open = [id, rank, size, options] {
      return Communicator::create(resolve_unique_id(id, rank, size, options), rank, size, options);
    };
    opening.out = out;
    opening.child = *out = new_handle(config, rank, size, std::max(options.gpu, 0));
    return submit(function, std::move(opening), config.blocking);
  });
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclCommInitRank,
         (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return init_rank("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

NCCL_API(ncclResult_t, ncclCommInitRankConfig,
         (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)) {
  return init_rank("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

// Several ids spread the load of a rendezvous over several servers; one serves all ranks here.
NCCL_API(ncclResult_t, ncclCommInitRankScalable,
         (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
          ncclConfig_t* config)) {
  constexpr std::string_view kName = "ncclCommInitRankScalable";
  const ncclResult_t checked = guarded_in_group(kName, [&] {
    require(commIds, "commIds");
    if (nId < 1 || nId > nranks) {
      refuse_argument(fmt::format("nId is {}, but must be 1 to nranks, which is {}", nId, nranks));
    }
    return ncclSuccess;
  });
  if (checked != ncclSuccess) return checked;
  return init_rank(kName, newcomm, nranks, commIds[0], myrank, config);
}

NCCL_API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int* devlist)) {
  return guarded_in_group("ncclCommInitAll", [&] {
    require(comm, "comm");
    log_start();
    if (ndev < 1) refuse_argument(fmt::format("ndev is {}, but must be at least 1", ndev));
    for (int i = 0; i < ndev; ++i) {
      if (devlist != nullptr && devlist[i] < 0) {
        refuse_argument(fmt::format("devlist[{}] is {}; devices count from 0", i, devlist[i]));
      }
    }
    const Config config = parse_config(nullptr);
    const std::vector<int> devices = devices_for(ndev, devlist);
    std::vector<tutti::Options> options(devices.size(), options_for(config));
    for (std::size_t i = 0; i < devices.size(); ++i) options[i].gpu = devices[i];
    std::vector<tutti::Communicator> all = tutti::Communicator::create_local(options);
    for (int i = 0; i < ndev; ++i) {
      comm[i] = new_handle(config, i, ndev, devices[static_cast<std::size_t>(i)]);
      comm[i]->communicator = std::move(all[static_cast<std::size_t>(i)]);
      comm[i]->phase.store(Phase::ready, std::memory_order_release);
    }
    return ncclSuccess;
  });
}
