// A rank of sharded training, for process ranks:
//
//     sharded_rank            trains in every stage, and compares with one rank
//     sharded_rank endless    trains until it fails; prints "READY", then the error, and ends with
//     0
//                             where that names a unit
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/parallel/sharded_model.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;
using test::Mlp;
using test::ShardedCase;
using test::Trained;

int compare(Communicator& comm) {
  const Mlp mlp({7, 13, 11, 9, 5});
  const Trained expected = test::train_alone(mlp, 5, false);
  const Precision type = Precision::of(DataType::float64);
  double worst = 0;
  for (const Policy& policy :
       {Policy::zero1(type), Policy::zero2(type), Policy::zero3(type), Policy::fsdp(type)}) {
    for (const int replicas : {1, 2}) {
      if (comm.size() % replicas != 0) continue;
      ShardedCase c;
      c.policy = policy;
      c.replicas = replicas;
      c.micro_batches = comm.size() > 4 ? 2 : 3;
      const Trained got = test::train_sharded(comm, mlp, c);
      worst = std::max(worst, test::difference(got.parameters, expected.parameters));
      // The same bits on all ranks.
      const std::size_t n = got.parameters.size();
      std::vector<double> all(n * static_cast<std::size_t>(comm.size()));
      comm.all_gather(got.parameters.data(), all.data(), n, DataType::float64);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != got.parameters[i % n]) return fmt::print("rank {} differs\n", i / n), 1;
      }
    }
  }
  if (comm.rank() == 0) fmt::print("{} ranks: {:.1e}\n", comm.size(), worst);
  return worst <= 1e-12 ? 0 : 1;
}

int train_until_it_fails(Communicator& comm) {
  const Mlp mlp({7, 13, 11, 9, 5});
  ShardedCase c;
  c.steps = 1'000'000;
  c.policy.reductions_in_flight = 2;
  c.after_step = [&](std::size_t step) {
    if (step == 1) fmt::print("READY {}\n", comm.rank());
    std::fflush(stdout);
  };
  try {
    test::train_sharded(comm, mlp, c);
  } catch (const Error& e) {
    const std::string what = e.what();
    fmt::print("rank {} got {} of rank {}: {}\n", comm.rank(), name(e.code()), e.rank(), what);
    const bool names_unit = what.find("of unit 'layer") != std::string::npos ||
                            what.find("of all units") != std::string::npos ||
                            what.find("the norm of all gradients") != std::string::npos;
    return e.code() == ErrorCode::peer_lost && names_unit ? 0 : 1;
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Communicator comm = Communicator::from_environment();
  return argc > 1 && argv[1] == std::string("endless") ? train_until_it_fails(comm) : compare(comm);
}
