// From Tutti's calls to NCCL's functions; see nccl_library.h.
#include "bench/perf/nccl_library.h"

#include <fmt/format.h>

#include <exception>
#include <thread>

namespace tutti::perf {

namespace {

using Clock = std::chrono::steady_clock;

// Asking NCCL for errors costs time that is none of the call's.
constexpr std::chrono::milliseconds kBetweenLooks{10};

}  // namespace

Nccl::Nccl(const bench::NcclFunctions& functions, const PerfOptions& options, Communicator& control,
           const NcclRanks& ranks)
    : nccl_(functions), local_register_(options.local_register), timeout_(options.timeout_seconds) {
  // A kernel of a rank waits for the others', so each has a stream.
  for (std::size_t local = 0; local < ranks.devices.size(); ++local) {
    gpu::use(ranks.devices[local]);
    streams_.push_back(std::make_unique<gpu::Stream>());
  }
  join(control, ranks);
}

void Nccl::join(Communicator& control, const NcclRanks& ranks) {
  struct Wire {
    ncclUniqueId id;
    bool made = false;
  } wire{};
  if (control.rank() == 0) {
    attempt([&] {
      nccl_.check(nccl_.get_unique_id(&wire.id), "ncclGetUniqueId");
      wire.made = true;
    });
  }
  control.broadcast(&wire, &wire, sizeof wire, DataType::uint8, 0);
  if (!wire.made) return stop("rank 0 could not make an id");
  std::vector<ncclComm_t> made(static_cast<std::size_t>(ranks.count));  // all or none
  attempt([&] {
    if (made.size() > 1) group_start();
    for (std::size_t local = 0; local < made.size(); ++local) {
      if (!ranks.devices.empty()) gpu::use(ranks.devices[local]);
      nccl_.check(nccl_.comm_init_rank(&made[local], ranks.size, wire.id,
                                       ranks.first + static_cast<int>(local)),
                  "ncclCommInitRank");
    }
    if (made.size() > 1) group_end();
    for (std::size_t local = 0; local < made.size(); ++local) {
      auto* const stream = streams_.empty() ? nullptr : streams_[local]->handle();
      ranks_.emplace_back(nccl_, made[local], static_cast<cudaStream_t>(stream));
    }
  });
}

Nccl::~Nccl() {
  for (const Registered& r : registered_) {
    if (local_register_ == 1) {
      nccl_.comm_deregister(r.comm, r.handle);
    } else {
      nccl_.comm_window_deregister(r.comm, static_cast<ncclWindow_t>(r.handle));
    }
  }
  for (bench::NcclCommunicator& rank : ranks_) {
    if (std::uncaught_exceptions() > 0) {  // the other ranks may not come
      nccl_.comm_abort(rank.get());
      continue;
    }
    rank.clear();
    nccl_.comm_destroy(rank.get());
  }
}

void Nccl::stop(const std::string& why) {
  if (failure_) return;
  failure_ = why;
  registered_.clear();
  for (; open_groups_ > 0; --open_groups_) nccl_.group_end();  // or what follows would be in it
  for (bench::NcclCommunicator& rank : ranks_) nccl_.comm_abort(rank.get());
  ranks_.clear();
}

void Nccl::register_memory(std::span<const Memory> memory) {
  if (local_register_ == 0 || streams_.empty()) return;
  attempt([&] {
    const bool windows = local_register_ == 2;
    if (windows ? nccl_.comm_window_register == nullptr : nccl_.comm_register == nullptr) {
      throw Error(ErrorCode::invalid_usage,
                  fmt::format("it cannot register memory (--local_register {})", local_register_));
    }
    std::vector<void*> handles(memory.size());
    std::vector<ncclWindow_t> opened(memory.size());
    if (windows) group_start();  // all ranks have to meet
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const auto& [local, data, bytes] = memory[i];
      if (windows) {
        nccl_.check(nccl_.comm_window_register(ranks_[local].get(), data, bytes, &opened[i],
                                               NCCL_WIN_COLL_SYMMETRIC),
                    "ncclCommWindowRegister");
      } else {
        nccl_.check(nccl_.comm_register(ranks_[local].get(), data, bytes, &handles[i]),
                    "ncclCommRegister");
      }
    }
    if (windows) group_end();
    for (std::size_t i = 0; i < memory.size(); ++i) {
      void* const handle = windows ? static_cast<void*>(opened[i]) : handles[i];
      if (handle != nullptr) registered_.push_back({ranks_[memory[i].local].get(), handle});
    }
  });
}

void Nccl::group_start() {
  nccl_.check(nccl_.group_start(), "ncclGroupStart");
  ++open_groups_;
}

void Nccl::group_end() {
  --open_groups_;
  nccl_.check(nccl_.group_end(), "ncclGroupEnd");
}

void Nccl::run(std::size_t local, const Call& call) { ranks_[local].run(call); }

void Nccl::finish() {
  const Clock::time_point start = Clock::now();
  Clock::time_point look = start + kBetweenLooks;
  while (!streams_are_idle()) {
    std::this_thread::yield();
    const Clock::time_point now = Clock::now();
    if (now < look) continue;
    look = now + kBetweenLooks;
    check();
    if (timeout_.count() > 0 && now - start > timeout_) {
      throw Error(ErrorCode::timed_out,
                  fmt::format("a call has not ended in the {} s of --timeout", timeout_.count()));
    }
  }
}

void Nccl::check() {
  for (const bench::NcclCommunicator& rank : ranks_) {
    ncclResult_t result = ncclSuccess;
    nccl_.check(nccl_.comm_get_async_error(rank.get(), &result), "ncclCommGetAsyncError");
    nccl_.check(result, "a call");
  }
}

}  // namespace tutti::perf
