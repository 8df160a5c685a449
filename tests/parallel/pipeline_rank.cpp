// A rank that runs pipeline schedules. Exits with 1 when anything is wrong.
//
//     pipeline_rank                 every schedule, with checked data
//     pipeline_rank die             rank 1 dies in the middle of one; the others say what they saw
//     pipeline_rank greedy          every rank wants 40 % of the host's memory; all are told
//     pipeline_rank time [threads]  stages that sleep: what a step takes, beside the simulator;
//                                   threads: 4 thread ranks, else the processes of `tutti run`
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "core/host_memory.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/simulate.h"
#include "tests/parallel/pipeline_model.h"
#include "tests/support/address_space.h"
#include "tests/support/thread_ranks.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;
using namespace tutti::parallel::pipeline;

Schedule make(const Generator& g, int ranks, int micro_batches) {
  return generate(g, {ranks, micro_batches, 0});
}
std::vector<std::size_t> sizes(const Schedule& s, std::size_t bytes) {
  return std::vector<std::size_t>(static_cast<std::size_t>(s.stages() - 1), bytes);
}

bool check_all(Communicator& comm) {
  CommunicatorAxis axis(comm);
  for (const Generator& g : generators()) {
    for (const int m : {1, 5, 2 * comm.size()}) {
      for (const std::size_t bytes : {std::size_t{24}, std::size_t{200'000}}) {
        const Schedule s = make(g, comm.size(), m);
        test::PipelineModel model(s, sizes(s, bytes));
        Executor pipeline(axis, s, model.bytes(), model.stages());
        for (int i = 0; i < 3; ++i) pipeline.step();
        if (const std::string wrong = model.check(comm.rank(), 3); !wrong.empty()) {
          fmt::print(stderr, "rank {}, {}: {}\n", comm.rank(), s.name, wrong);
          return false;
        }
      }
    }
  }
  return true;
}

bool die(Communicator& comm) {
  CommunicatorAxis axis(comm);
  const Schedule s = make(*find_generator("interleaved"), comm.size(), 8);
  test::PipelineModel model(s, sizes(s, 1000));
  Stages stages = model.stages();
  const auto forward = stages.forward;
  stages.forward = [&](int stage, int m, Stages::In in, Stages::Out out) {
    if (comm.rank() == 1 && m == 5) std::raise(SIGKILL);
    forward(stage, m, in, out);
  };
  Executor pipeline(axis, s, model.bytes(), stages);
  try {
    pipeline.step();
  } catch (const Error& e) {
    fmt::print("{}: {}\n", name(e.code()), e.what());
    return e.code() == ErrorCode::peer_lost && e.rank() == 1 &&
           std::string_view(e.what()).starts_with(
               fmt::format("pipeline interleaved, rank {}, action", comm.rank()));
  }
  return false;
}

bool greedy(Communicator& comm) {
  const test::AddressSpace limit(std::size_t{2} << 30);
  CommunicatorAxis axis(comm);
  const Schedule s = make(*find_generator("gpipe"), comm.size(), 1);
  test::PipelineModel model(s, sizes(s, 8));
  try {
    // A rank between two others has four buffers, the others two.
    Executor(axis, s, sizes(s, static_cast<std::size_t>(host_memory().total / 10)), model.stages());
  } catch (const Error& e) {
    fmt::print("{}: {}\n", name(e.code()), e.what());
    return e.code() == ErrorCode::invalid_argument &&
           std::string_view(e.what()).find("(its buffers) needs") != std::string_view::npos;
  }
  return false;
}

/// Sleeps until a moment, so that what a machine takes to wake up does not add up.
void take(std::chrono::duration<double> time) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(time);
  std::this_thread::sleep_until(end - std::chrono::microseconds(200));
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

/// The best of some steps, compared with the simulator. Returns whether it is within 5 %.
bool time_all(Communicator& comm) {
  CommunicatorAxis axis(comm);
  bool good = true;
  for (const Generator& g : generators()) {
    const Schedule s = make(g, comm.size(), 8);
    // Of a rank's whole share: 10 ms forward, 10 + 10 ms backward.
    const double stage = 0.010 * s.ranks() / s.stages();
    const Costs costs{stage, stage, stage, 0};
    const auto sleep = [&](Work work) { take(std::chrono::duration<double>(costs.of(work))); };
    Stages stages;
    stages.forward = [&](int, int, Stages::In, Stages::Out) { sleep(Work::forward); };
    stages.backward_inputs = [&](int, int, Stages::In, Stages::Out) {
      sleep(Work::backward_inputs);
    };
    stages.backward_weights = [&](int, int) { sleep(Work::backward_weights); };
    Executor pipeline(axis, s, sizes(s, 4096), stages);
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      comm.barrier();
      const auto start = std::chrono::steady_clock::now();
      pipeline.step();
      comm.barrier();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      best = std::min(best, took.count());
    }
    const double predicted = simulate(s, costs).makespan;
    if (comm.rank() == 0) {
      const Statistics& st = pipeline.statistics();
      fmt::print("{:<12} predicted {:.0f} ms, took {:.1f} ms ({:+.1f} %), live {}\n", s.name,
                 predicted * 1e3, best * 1e3, 100 * (best / predicted - 1), st.live);
    }
    good = good && best < 1.05 * predicted && best > 0.99 * predicted;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view what = argc > 1 ? argv[1] : "";
    bool good = true;
    if (what == "time" && argc > 2) {
      tutti::test::run_thread_ranks(4, [&](Communicator& comm) {
        if (!time_all(comm) && comm.rank() == 0) good = false;
      });
    } else {
      Communicator comm = Communicator::from_environment();
      good = what == "time"     ? time_all(comm)
             : what == "die"    ? die(comm)
             : what == "greedy" ? greedy(comm)
                                : check_all(comm);
    }
    return good ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
