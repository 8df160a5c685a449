// A rank of data-parallel training, as a process:
//
//     data_parallel_rank            steps with exact averages, by every kind of reduction
//     data_parallel_rank die RANK   that rank kills itself in the middle of backward; the others
//                                   exit with 0 when they are told who it was, and where they were
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/mesh.h"
#include "tests/parallel/parallel_model.h"
#include "tutti.h"

namespace {

using namespace tutti;
using parallel::DataParallelPolicy;

const std::vector<DataType> kTypes{DataType::float32, DataType::bfloat16, DataType::float16};

bool train(parallel::Axis& axis, const DataParallelPolicy& policy) {
  parallel::DataParallel engine(axis, test::parameters_of(60, kTypes), policy);
  for (std::uint64_t step = 0; step < 5; ++step) {
    test::backward(engine, axis.rank(), axis.size(), step);
    (void)engine.finish();
    const std::string wrong = test::wrong_average(engine, axis.size(), {step});
    if (wrong.empty()) continue;
    fmt::print(stderr, "rank {}, step {}: {}\n", axis.rank(), step, wrong);
    return false;
  }
  return true;
}

int die(parallel::Axis& axis, int victim) {
  constexpr std::uint64_t kLast = 3;
  parallel::DataParallel engine(axis, test::parameters_of(60, kTypes), test::small_buckets());
  try {
    for (std::uint64_t step = 0;; ++step) {
      std::size_t count = 0;
      for (const std::size_t i : test::shuffled(engine.size(), step)) {
        if (axis.rank() == victim && step == kLast && ++count == 30) std::raise(SIGKILL);
        test::add_gradient(engine.parameter(i), i, axis.rank(), axis.size(), step,
                           engine.gradient(i));
        engine.ready(i);
      }
      (void)engine.finish();
      if (step > kLast) return 1;
    }
  } catch (const Error& error) {
    const std::string what = error.what();
    fmt::print("rank {}: {}\n", axis.rank(), what);
    const bool right = error.code() == ErrorCode::peer_lost && error.rank() == victim &&
                       what.find(fmt::format("step {}, bucket ", kLast)) != std::string::npos;
    return right ? 0 : 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto world = Communicator::from_environment();
    parallel::Mesh mesh(world, {{"dp", -1}});
    auto& axis = mesh.axis("dp");
    if (argc == 3 && std::string(argv[1]) == "die") return die(axis, std::atoi(argv[2]));
    DataParallelPolicy at_once = test::small_buckets(), float32 = test::small_buckets();
    at_once.overlap = false;
    float32.reduce_type = DataType::float32;
    for (const auto& policy : {test::small_buckets(), at_once, float32, DataParallelPolicy{}}) {
      if (!train(axis, policy)) return 1;
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
