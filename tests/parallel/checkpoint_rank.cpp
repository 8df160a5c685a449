// A rank of a job that saves what its engines say, and loads it with other mixes, for process ranks
// and several hosts: 4 ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tests/parallel/checkpoint_engines.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;
using test::EngineRank;
using test::Grid;

int save_and_load(Communicator& comm, const std::string& path) {
  CommunicatorAxis axis(comm);
  const Grid grids[] = {{2, 2, 1}, {1, 2, 2}, {1, 4, 1}, {4, 1, 1}, {2, 1, 2}};
  for (std::size_t g = 0; g < std::size(grids); ++g) {
    const std::string folder = fmt::format("{}/{}", path, g);
    {
      EngineRank rank(comm, grids[g], Policy::fsdp());
      rank.set(test::value_at, 3);
      CheckpointFolder checkpoints(folder, axis, {.keep = 1});
      for (const std::uint64_t step : {1, 2, 3}) checkpoints.start(step, rank.state().saved());
      checkpoints.wait();
      // Each rank as if it were alone.
      float x = 1;
      const std::vector parts{TensorPart::whole("x", DataType::float32, {}, &x)};
      try {
        checkpoints.start(4, parts);
        return fmt::print("rank {}: what all ranks have was saved\n", comm.rank()), 1;
      } catch (const Error& e) {
        if (e.code() != ErrorCode::mismatch) throw;
      }
    }
    comm.barrier();  // all have written
    if (whole_checkpoints(folder).size() != 2) {
      return fmt::print("{} checkpoints\n", whole_checkpoints(folder).size()), 1;
    }
    for (const Grid& grid : grids) {
      EngineRank rank(comm, grid, Policy::zero1());
      std::vector<TensorPart> wanted = rank.state().wanted();
      if (CheckpointFolder(folder, axis).load(wanted) != 3) {
        return fmt::print("no step 3\n"), 1;
      }
      rank.state().loaded();
      if (const std::size_t wrong = rank.wrong(test::value_at, 3); wrong > 0) {
        return fmt::print("rank {}: {} elements are wrong\n", comm.rank(), wrong), 1;
      }
    }
  }
  return 0;
}

}  // namespace

int main() {
  try {
    Communicator comm = Communicator::from_environment();
    char path[] = "/tmp/tutti-checkpoint-XXXXXX";
    if (comm.rank() == 0 && mkdtemp(path) == nullptr) return std::perror(path), 1;
    comm.broadcast(path, path, sizeof path, DataType::uint8, 0);
    const int result = save_and_load(comm, path);
    comm.barrier();
    std::error_code ignored;
    if (comm.rank() == 0) std::filesystem::remove_all(path, ignored);
    return result;
  } catch (const std::exception& e) {
    fmt::print("checkpoint_rank: {}\n", e.what());
    return 1;
  }
}
