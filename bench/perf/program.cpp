// From the command line to ranks; see program.h.
#include "bench/perf/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bench/nccl/functions.h"
#include "bench/perf/benchmark.h"
#include "bench/perf/gpu.h"
#include "bench/perf/options.h"
#include "bench/perf/runner.h"
#include "bootstrap/environment.h"
#include "comm/communicator.h"
#include "core/error.h"

namespace tutti::perf {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

void print_error(const std::string& message) {
  fmt::print(stderr, "# error: {}\n", message);
  std::fflush(stderr);
}

// One thread with its ranks, from its communicators to its exit code.
class RankThread {
 public:
  using MakeRanks = std::function<ThreadRanks()>;

  RankThread(Collective collective, const PerfOptions& options, const bench::NcclFunctions* nccl,
             std::vector<std::string> arguments)
      : collective_(collective), options_(options), nccl_(nccl), arguments_(std::move(arguments)) {}

  // `rank`: the first of the thread's.
  int run(int rank, const MakeRanks& make) const {
    ThreadRanks ranks;
    try {
      ranks = make();
      rank = ranks.communicators.front().rank();
      const int size = ranks.communicators.front().size();
      if (options_.bits && !is_reduction(collective_)) {
        if (rank == 0) print_error("--bits is about reductions; leave it out");
        return kUsage;
      }
      if (options_.root >= size && is_rooted(collective_)) {
        if (rank == 0) {
          print_error(fmt::format("--root {} does not exist, the ranks are 0 to {}", options_.root,
                                  size - 1));
        }
        return kUsage;
      }
      return Runner(ranks, collective_, options_, nccl_, arguments_).run() == 0 ? 0 : kFailed;
    } catch (const Error& error) {
      // A rank that was told to stop has nothing to add to what the failing one said.
      if (error.code() != ErrorCode::aborted || rank == 0) report(rank, error.what());
      abort(ranks, error.what());
    } catch (const std::exception& error) {
      report(rank, error.what());
      abort(ranks, error.what());
    }
    return kFailed;
  }

 private:
  static void report(int rank, const char* message) {
    print_error(fmt::format("rank {}: {}", rank, message));
  }

  // So that the others do not wait for these ranks.
  static void abort(ThreadRanks& ranks, const char* message) {
    for (Communicator& communicator : ranks.communicators) {
      if (communicator) communicator.abort(message);
    }
    if (ranks.threads) ranks.threads.abort(message);
  }

  Collective collective_;
  PerfOptions options_;
  const bench::NcclFunctions* nccl_;
  std::vector<std::string> arguments_;
};

// The threads of this process; the worst exit code of them. Thread i has the ranks from first +
// i * each on.
int run_threads(const RankThread& thread, int first, int each,
                std::vector<RankThread::MakeRanks> make) {
  if (make.size() == 1) return thread.run(first, make.front());
  std::atomic<int> exit_code{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < make.size(); ++i) {
    const int rank = first + static_cast<int>(i) * each;
    const auto run = [&, i, rank] {
      const int code = thread.run(rank, make[i]);
      int worst = exit_code.load();
      while (code > worst && !exit_code.compare_exchange_weak(worst, code)) {
      }
    };
    try {
      threads.emplace_back(run);
    } catch (const std::system_error& error) {
      // The threads that did start wait for this one; there is nobody left to tell them.
      print_error(fmt::format("rank {}: no thread for it: {}", rank, error.what()));
      std::_Exit(kFailed);
    }
  }
  threads.clear();  // joins
  return exit_code;
}

Options communicator_options(const PerfOptions& perf_options) {
  Options options;
  if (perf_options.timeout_seconds > 0) {
    options.timeout = std::chrono::seconds(perf_options.timeout_seconds);
  }
  options.invariant = options.invariant || perf_options.invariant;
  return options;
}

// Every rank of some threads: one process has them all, or the processes meet first and rank 0
// hands them an id.
class Meeting {
 public:
  // A rank of this process for each of `options`.
  Meeting(Communicator* processes, std::vector<Options> options) : options_(std::move(options)) {
    if (processes == nullptr) {
      local_ = Communicator::create_local(options_);
      return;
    }
    const int ranks = static_cast<int>(options_.size());
    if (processes->rank() == 0) id_ = make_unique_id();
    processes->broadcast(id_.bytes.data(), id_.bytes.data(), id_.bytes.size(), DataType::uint8, 0);
    first_ = processes->rank() * ranks;
    size_ = processes->size() * ranks;
  }

  // Ranks [begin, begin + count) of this process's. Each waits for all others, so side by side.
  std::vector<Communicator> join(int begin, int count) {
    std::vector<Communicator> result(static_cast<std::size_t>(count));
    std::vector<std::future<Communicator>> others;
    for (int i = 1; i < count; ++i) {
      others.push_back(std::async(std::launch::async, [this, begin, i] { return one(begin + i); }));
    }
    result.front() = one(begin);
    for (std::size_t i = 1; i < result.size(); ++i) result[i] = others[i - 1].get();
    return result;
  }

 private:
  Communicator one(int local) {
    const auto index = static_cast<std::size_t>(local);
    if (!local_.empty()) return std::move(local_[index]);
    return Communicator::create(id_, first_ + local, size_, options_[index]);
  }

  std::vector<Options> options_;
  std::vector<Communicator> local_;
  UniqueId id_;
  int first_ = 0, size_ = 0;
};

// On host memory: a rank for each thread.
int run_on_host(const RankThread& thread, const PerfOptions& perf_options,
                const Placement& placement) {
  const Options options = communicator_options(perf_options);
  const int threads = perf_options.threads;
  if (threads == 1) {
    return run_threads(thread, placement.rank, 1, {[&] {
                         ThreadRanks ranks;
                         ranks.communicators.push_back(Communicator::from_environment(options));
                         return ranks;
                       }});
  }
  Communicator processes;
  if (placement.size > 1) processes = Communicator::from_environment(options);
  Meeting meeting(processes ? &processes : nullptr,
                  std::vector(static_cast<std::size_t>(threads), options));
  std::vector<RankThread::MakeRanks> make;
  for (int i = 0; i < threads; ++i) {
    make.emplace_back([&, i] {
      ThreadRanks ranks;
      ranks.communicators = meeting.join(i, 1);
      return ranks;
    });
  }
  return run_threads(thread, placement.rank * threads, 1, std::move(make));
}

// On GPUs: several ranks for each thread, and one more communicator for the threads.
int run_on_gpus(const RankThread& thread, const PerfOptions& perf_options,
                const Placement& placement) {
  std::string why;
  const int gpus = gpu::count(why);
  if (gpus == 0) {
    if (placement.rank == 0) print_error(fmt::format("--ngpus {}: {}", perf_options.gpus, why));
    return kFailed;
  }
  const Options options = communicator_options(perf_options);
  const int threads = perf_options.threads;
  const int each = perf_options.gpus;
  const int first = placement.rank * threads * each;
  std::vector<Options> of_rank(static_cast<std::size_t>(threads * each), options);
  for (int r = 0; r < threads * each; ++r) {
    of_rank[static_cast<std::size_t>(r)].gpu = (first + r) % gpus;
  }
  Communicator processes;
  if (placement.size > 1) processes = Communicator::from_environment(options);
  Meeting of_ranks(processes ? &processes : nullptr, of_rank);
  Options options_of_threads;
  options_of_threads.invariant = options.invariant;
  // No time-out: a thread may be busy with its buffers for as long as it takes.
  Meeting of_threads(processes ? &processes : nullptr,
                     std::vector<Options>(static_cast<std::size_t>(threads), options_of_threads));
  std::vector<RankThread::MakeRanks> make;
  for (int i = 0; i < threads; ++i) {
    make.emplace_back([&, i] {
      ThreadRanks ranks;
      ranks.threads = std::move(of_threads.join(i, 1).front());
      ranks.communicators = of_ranks.join(i * each, each);
      for (int r = 0; r < each; ++r) {
        ranks.devices.push_back(of_rank[static_cast<std::size_t>(i * each + r)].gpu);
      }
      return ranks;
    });
  }
  return run_threads(thread, first, each, std::move(make));
}

int run_ranks(Collective collective, const PerfOptions& options, const Placement& placement,
              const std::vector<std::string>& arguments) {
  std::optional<bench::NcclFunctions> nccl;
  if (!options.nccl.empty()) {
    try {
      nccl.emplace(options.nccl, collective);
    } catch (const Error& error) {
      if (placement.rank == 0) print_error(error.what());
      return kUsage;
    }
  }
  const RankThread thread(collective, options, nccl ? &*nccl : nullptr, arguments);
  return options.gpus > 0 ? run_on_gpus(thread, options, placement)
                          : run_on_host(thread, options, placement);
}

}  // namespace

int run_program(Collective collective, int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const ParsedOptions parsed =
      parse_options(program_name(collective),
                    std::span(arguments).subspan(std::min<std::size_t>(1, arguments.size())));
  try {
    const Placement placement = placement_from_environment();
    int status = parsed.exit_code;
    if (parsed.run) {
      status = run_ranks(collective, parsed.options, placement, arguments);
    } else if (placement.rank == 0) {
      std::fputs(parsed.text.c_str(), status == 0 ? stdout : stderr);
    }
    // What was printed may not have arrived: a full disk, a closed pipe.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw Error(ErrorCode::system, "cannot write the output");
    }
    return status;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kFailed;
  }
}

}  // namespace tutti::perf
