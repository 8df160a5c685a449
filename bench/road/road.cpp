// A rank that makes calls, for road.py, which looks at what runs inside of road_of_a_call().
//
//     road MODE CALLS        MODE: same, varied or started; built with WITH_NCCL also nccl
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "tutti.h"
#ifdef WITH_NCCL
#include "bindings/nccl/nccl.h"
#endif

/// Where the counting begins and ends.
extern "C" __attribute__((noinline)) void road_of_a_call(const std::function<void()>& call) {
  call();
  asm volatile("");  // no tail call
}

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "road MODE CALLS\n"), 2;
  const std::string_view mode = argv[1];
  const int calls = std::atoi(argv[2]);
  constexpr std::size_t kCount = 256;
  std::vector<float> in(kCount, 1), out(kCount), other(kCount);
  auto comm = tutti::Communicator::from_environment();
  std::function<void()> call = [&] { comm.all_reduce(in, out); };
  if (mode == "varied") {
    call = [&] {
      comm.all_reduce(in, out);
      out.swap(other);
    };
  } else if (mode == "started") {
    call = [&] { comm.start().all_reduce(in, out).wait(); };
  }
#ifdef WITH_NCCL
  ncclComm_t nccl = nullptr;
  if (mode == "nccl") {
    ncclUniqueId id{};
    if (comm.rank() == 0) ncclGetUniqueId(&id);
    comm.broadcast(&id, &id, sizeof id, tutti::DataType::uint8, 0);
    ncclCommInitRank(&nccl, comm.size(), id, comm.rank());
    call = [&] { ncclAllReduce(in.data(), out.data(), kCount, ncclFloat, ncclSum, nccl, nullptr); };
  }
#endif
  for (int i = 0; i < calls; ++i) call();
  comm.barrier();
  for (int i = 0; i < calls; ++i) road_of_a_call(call);
  comm.barrier();
  if (out.front() != static_cast<float>(comm.size())) return std::fputs("wrong sum\n", stderr), 1;
#ifdef WITH_NCCL
  if (nccl != nullptr) ncclCommDestroy(nccl);
#endif
  return 0;
} catch (const tutti::Error& error) {
  std::fprintf(stderr, "road: %s\n", error.what());
  return 1;
}
