// A library with NCCL's interface, measured beside Tutti on the same buffers. An error in it ends
// its measurements alone.
#pragma once

#include <chrono>
#include <cstdint>

#include "bench/nccl/communicator.h"
#include "bench/nccl/functions.h"
#include "bench/perf/library.h"
#include "bench/perf/options.h"

namespace tutti::perf {

/// The place of one thread's ranks in the job.
struct NcclRanks {
  int first = 0;                 // of the thread; the others follow
  int count = 1;                 // of the thread
  int size = 1;                  // of the job
  std::span<const int> devices;  // each rank's GPU; empty: host memory
};

class Nccl : public Library {
 public:
  /// Joins the ranks: all threads of the job do so at the same time, `control` has a rank for each.
  /// If that fails, failure() says why.
  Nccl(const bench::NcclFunctions& functions, const PerfOptions& options, Communicator& control,
       const NcclRanks& ranks);
  ~Nccl() override;

  /// A buffer of rank `local`, registered as --local_register says. All ranks, in the same order.
  struct Memory {
    std::size_t local;
    std::byte* data;
    std::size_t bytes;
  };
  void register_memory(std::span<const Memory> memory);

  void run(std::size_t local, const Call& call) override;
  void group_start() override;
  void group_end() override;
  void finish() override;
  void check() override;

  /// Gives up if another thread has.
  void stop(const std::string& why);

 protected:
  void fail(const Error& error) override { stop(error.what()); }

 private:
  struct Registered {
    ncclComm_t comm;
    void* handle;
  };

  void join(Communicator& control, const NcclRanks& ranks);

  const bench::NcclFunctions& nccl_;
  int local_register_;
  std::chrono::seconds timeout_;
  std::vector<bench::NcclCommunicator> ranks_;  // none once it has failed
  std::vector<Registered> registered_;
  int open_groups_ = 0;
};

}  // namespace tutti::perf
