// The costs of the data-parallel engine, and the communication that it hides. Ranks are processes:
//
//     tutti run -n 2 build/bench/data_parallel_bench MODE
//
// overhead: of the engine, beside the collectives that it makes. overlap: over a link as slow as
// backward; the trace of a step goes to a file, where one is named behind it (overlap.py has
// PyTorch's in the same table). started: buckets that are started, or run all at the end. narrow:
// steps with gradients that travel in 16 or 8 bits, over the link that the ranks have.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/throttled_axis.h"
#include "tutti.h"

namespace {

using namespace std::chrono_literals;
using namespace tutti::parallel;
using tutti::Communicator;
using tutti::DataType;
using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

/// The least time of one call of `body`, of `rounds` rounds of `calls`; all ranks begin together.
double least(Communicator& comm, int rounds, int calls, const std::function<void()>& body) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    comm.barrier();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) body();
    best = std::min(best, microseconds(Clock::now() - start) / calls);
  }
  return best;
}

/// Computes for so long, on this core.
void spin(Clock::duration time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

std::vector<Parameter> equal_parameters(std::size_t count, std::size_t elements) {
  return std::vector<Parameter>(count, {"w", {elements}});
}

/// A thousand parameters of one element in four buckets: a step beside the collectives it makes.
void overhead(Communicator& comm) {
  constexpr std::size_t kParameters = 1000, kBuckets = 4;
  CommunicatorAxis axis(comm);
  if (comm.rank() == 0) {
    fmt::print("{:>8} {:>12} {:>15} {:>20}\n", "", "step us", "collectives us", "us per parameter");
  }
  for (const bool overlap : {true, false}) {
    DataParallelPolicy policy;
    policy.overlap = overlap;
    policy.bucket_bytes = policy.first_bucket_bytes = kParameters * 4 / kBuckets;
    DataParallel engine(axis, equal_parameters(kParameters, 1), policy);
    const auto step = [&] {
      for (std::size_t i = engine.size(); i-- > 0;) engine.ready(i);
      (void)engine.finish();
    };
    step();
    std::vector<tutti::Call> calls;
    for (const Bucket& b : engine.layout().buckets) {
      void* const data = engine.gradient(b.gradients.front());
      calls.push_back(call_of(tutti::Collective::all_reduce, data, data, b.count, DataType::float32,
                              tutti::ReduceKind::avg));
    }
    const auto alone = [&] {
      std::vector<Pending> pending;
      for (const tutti::Call& call : calls) {
        if (overlap) {
          pending.push_back(axis.start(call));
        } else {
          axis.run(call);
        }
      }
      for (Pending& p : pending) p.wait();
    };
    double with = 1e9, without = 1e9;
    for (int turn = 0; turn < 10; ++turn) {
      with = std::min(with, least(comm, 3, 100, step));
      without = std::min(without, least(comm, 3, 100, alone));
    }
    if (comm.rank() == 0) {
      fmt::print("{:>8} {:>12.2f} {:>15.2f} {:>20.5f}\n", overlap ? "started" : "at end", with,
                 without, (with - without) / kParameters);
    }
  }
}

/// Backward sleeps, and the link takes as long as backward for all gradients.
void overlap(Communicator& comm, const std::string& trace_file) {
  constexpr std::size_t kParameters = 100;
  constexpr auto kBackward = 400ms;
  CommunicatorAxis beneath(comm);
  const std::size_t elements = 10'000;
  const double sent = 2.0 * (comm.size() - 1) / comm.size() * kParameters * elements * 4;
  if (comm.rank() == 0) {
    fmt::print("backward sleeps for 400 ms; the link takes 400 ms for all gradients\n");
    fmt::print("{:>8} {:>12} {:>12} {:>12}\n", "buckets", "step ms", "exposed ms", "% exposed");
  }
  for (const std::size_t buckets : {1u, 5u, 10u, 20u, 50u, 100u}) {
    ThrottledAxis axis(beneath, {.bytes_per_second = sent / 0.4, .latency = 20us});
    auto trace = std::make_shared<Trace>(comm.rank());
    DataParallelPolicy policy;
    policy.bucket_bytes = policy.first_bucket_bytes = kParameters / buckets * elements * 4;
    policy.learn_order = false;
    DataParallel engine(axis, equal_parameters(kParameters, elements), policy);
    double best = 1e9, exposed = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      axis.trace(trace, "dp");
      trace->clear();
      axis.run(call_of(tutti::Collective::barrier, nullptr, nullptr, 0, DataType::uint8));
      const auto start = Clock::now();
      for (std::size_t i = engine.size(); i-- > 0;) {
        // As backward's steps are, in all, on time.
        std::this_thread::sleep_until(start + kBackward * (kParameters - i) / kParameters);
        engine.ready(i);
      }
      (void)engine.finish();
      const double time = microseconds(Clock::now() - start) / 1000;
      if (time >= best) continue;
      best = time;
      exposed = microseconds(engine.statistics().last_exposed) / 1000;
    }
    if (comm.rank() == 0) {
      fmt::print("{:>8} {:>12.1f} {:>12.1f} {:>12.1f}\n", engine.statistics().buckets, best,
                 exposed, exposed / 400 * 100);
      if (buckets == 20 && !trace_file.empty()) {
        std::ofstream file(trace_file);
        write_json(file, std::vector{trace});
      }
    }
  }
}

/// Steps with buckets started during backward, and with all of them run when it is over. Backward
/// takes no time, or computes as long as the collectives take.
void started(Communicator& comm) {
  CommunicatorAxis axis(comm);
  if (comm.rank() == 0) {
    fmt::print("{:>10} {:>8} {:>12} {:>12} {:>12}\n", "bytes", "buckets", "backward us",
               "started us", "at end us");
  }
  for (const std::size_t bytes : {4u << 10, 64u << 10, 1u << 20, 16u << 20, 64u << 20}) {
    for (const std::size_t buckets : {1u, 4u, 16u}) {
      std::vector<std::unique_ptr<DataParallel>> engines;
      for (const bool overlap : {true, false}) {
        DataParallelPolicy policy;
        policy.overlap = overlap;
        policy.learn_order = false;
        policy.bucket_bytes = policy.first_bucket_bytes = bytes / buckets;
        engines.push_back(
            std::make_unique<DataParallel>(axis, equal_parameters(64, bytes / 4 / 64), policy));
      }
      const int calls = static_cast<int>(std::clamp<std::size_t>((16u << 20) / bytes, 1, 50));
      double backward = 0;
      for (const bool computes : {false, true}) {
        const auto each = std::chrono::nanoseconds(static_cast<long>(backward * 1000 / 64));
        double best[] = {1e9, 1e9};
        for (int turn = 0; turn < 4; ++turn) {
          for (int e = 0; e < 2; ++e) {
            DataParallel& engine = *engines[static_cast<std::size_t>(e)];
            const double time = least(comm, 3, calls, [&] {
              for (std::size_t i = engine.size(); i-- > 0;) {
                if (computes) spin(each);
                engine.ready(i);
              }
              (void)engine.finish();
            });
            best[e] = std::min(best[e], time);
          }
        }
        if (comm.rank() == 0) {
          fmt::print("{:>10} {:>8} {:>12.1f} {:>12.1f} {:>12.1f}\n", bytes, buckets, backward,
                     best[0], best[1]);
        }
        backward = best[1];  // the same on all ranks
        comm.all_reduce(&backward, &backward, 1, DataType::float64, tutti::ReduceKind::max);
      }
    }
  }
}

/// A step of 4 Mi gradients in 8 buckets, without a backward: the policies in turn.
void narrow(Communicator& comm) {
  CommunicatorAxis axis(comm);
  struct Way {
    const char* name;
    DataType gradients;
    DataParallelPolicy policy;
  };
  std::vector<Way> ways{{"float32", DataType::float32, {}},
                        {"float32, reduce_type bfloat16", DataType::float32, {}},
                        {"float32, eight_bits", DataType::float32, {}},
                        {"bfloat16", DataType::bfloat16, {}},
                        {"bfloat16, eight_bits", DataType::bfloat16, {}},
                        {"bfloat16, without error feedback", DataType::bfloat16, {}}};
  ways[1].policy.reduce_type = DataType::bfloat16;
  ways[2].policy.eight_bits = ways[4].policy.eight_bits = EightBits{};
  ways[5].policy.eight_bits = EightBits{.error_feedback = false};
  constexpr std::size_t kElements = (std::size_t{4} << 20) / 64;
  std::vector<std::unique_ptr<DataParallel>> engines;
  for (Way& way : ways) {
    way.policy.learn_order = false;
    way.policy.bucket_bytes = way.policy.first_bucket_bytes =
        64 / 8 * kElements * tutti::size_of(way.gradients);
    std::vector<Parameter> parameters(64, {"w", {kElements}, way.gradients});
    engines.push_back(std::make_unique<DataParallel>(axis, parameters, way.policy));
  }
  std::vector<std::vector<double>> times(ways.size());
  for (int turn = 0; turn < 7; ++turn) {
    for (std::size_t w = 0; w < ways.size(); ++w) {
      DataParallel& engine = *engines[w];
      times[w].push_back(least(comm, 1, 1, [&] {
        for (std::size_t i = engine.size(); i-- > 0;) engine.ready(i);
        (void)engine.finish();
      }));
    }
  }
  if (comm.rank() != 0) return;
  fmt::print("{:>34} {:>12}\n", "4 Mi elements", "median ms");
  for (std::size_t w = 0; w < ways.size(); ++w) {
    std::ranges::sort(times[w]);
    fmt::print("{:>34} {:>12.1f}\n", ways[w].name, times[w][times[w].size() / 2] / 1000);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto comm = Communicator::from_environment();
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode == "overhead") {
      overhead(comm);
    } else if (mode == "overlap") {
      overlap(comm, argc > 2 ? argv[2] : "");
    } else if (mode == "started") {
      started(comm);
    } else if (mode == "narrow") {
      narrow(comm);
    } else {
      fmt::print(stderr,
                 "data_parallel_bench overhead | overlap [TRACE.json] | started | narrow\n");
      return 2;
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "data_parallel_bench: {}\n", e.what());
    return 1;
  }
}
