// A rank of reshards between processes: random pairs of layouts, from memory that the others map
// and in messages; or (die RANK) a rank that dies in the middle, and those that hear of it.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "parallel/reshard/buffers.h"
#include "parallel/reshard/reshard.h"
#include "tests/parallel/reshard_cases.h"
#include "tutti.h"

namespace {

using namespace tutti::parallel::reshard;
using tutti::Communicator;

using Bytes = std::vector<std::vector<std::byte>>;

void copy_in(const Bytes& from, const Buffers& to) {
  for (std::size_t b = 0; b < from.size(); ++b) {
    if (!from[b].empty()) std::memcpy(to.pointers()[b], from[b].data(), from[b].size());
  }
}
void copy_out(const Buffers& from, Bytes& to) {
  for (std::size_t b = 0; b < to.size(); ++b) {
    if (!to[b].empty()) std::memcpy(to[b].data(), from.pointers()[b], to[b].size());
  }
}

/// Pairs for as many ranks as there are.
void run_pairs(Communicator& comm) {
  const int rank = comm.rank();
  int done = 0;
  for (std::uint64_t seed = 0; done < 12; ++seed) {
    const test::Case c = test::random_case(seed);
    if (c.from.ranks != comm.size()) continue;
    ++done;
    ReshardOptions options;
    options.message_bytes = c.options.message_bytes;
    options.host_message_bytes = c.options.host_message_bytes;
    Buffers source(c.from, rank), target(c.to, rank);
    Reshard reshard(comm, c.from, c.to, options);
    reshard.bind(source.sources(), target.pointers());
    for (const std::uint64_t version : {1, 2, 3}) {
      test::RankMemory weights(c.from, rank), result(c.to, rank);
      test::fill(c.from, rank, version, weights);
      copy_in(weights.buffers, source);
      copy_in(result.buffers, target);
      version == 2 ? reshard.run(source.sources(), target.pointers()) : reshard.run();
      copy_out(target, result.buffers);
      const std::string what = test::wrong(c.from, c.to, rank, version, result);
      if (what.empty()) continue;
      fmt::print(stderr, "seed {}, version {}: {}\n", seed, version, what);
      std::exit(1);
    }
  }
  fmt::print("rank {} of {}: {} pairs are right\n", rank, comm.size(), done);
}

/// Runs until the victim is gone, and says who it was.
void run_until(Communicator& comm, int victim) {
  Layout from(comm.size()), to(comm.size());
  const Tensor tensor{"w", tutti::DataType::float32, {1024, 1024}};
  add_sharded(from, tensor, {{comm.size()}, {shard(0)}});
  add_sharded(to, tensor, {{comm.size()}, {shard(1)}});
  Buffers source(from, comm.rank()), target(to, comm.rank());
  Reshard reshard(comm, from, to);
  reshard.bind(source.sources(), target.pointers());
  for (int i = 0;; ++i) {
    if (i == 20 && comm.rank() == victim) raise(SIGKILL);
    try {
      i % 2 == 0 ? reshard.run() : reshard.run(source.sources(), target.pointers());
    } catch (const tutti::Error& e) {
      if (e.code() != tutti::ErrorCode::peer_lost || e.rank() != victim) throw;
      fmt::print("rank {}: rank {} is lost\n", comm.rank(), e.rank());
      return;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Communicator comm = Communicator::from_environment();
    if (argc == 3 && std::string(argv[1]) == "die") {
      run_until(comm, std::atoi(argv[2]));
    } else {
      run_pairs(comm);
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "reshard_rank: %s\n", e.what());
    return 1;
  }
}
