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
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bench/perf/benchmark.h"
#include "bench/perf/options.h"
#include "bench/perf/runner.h"
#include "comm/communicator.h"
#include "comm/environment.h"
#include "core/error.h"

namespace tutti::perf {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

void print_error(const std::string& message) {
  fmt::print(stderr, "# error: {}\n", message);
  std::fflush(stderr);
}

// One rank, from its communicator to its exit code.
class Rank {
 public:
  using MakeCommunicator = std::function<Communicator()>;

  Rank(Collective collective, const PerfOptions& options, std::vector<std::string> arguments)
      : collective_(collective), options_(options), arguments_(std::move(arguments)) {}

  int run(int rank, const MakeCommunicator& make) const {
    std::optional<Communicator> communicator;
    try {
      communicator = make();
      rank = communicator->rank();
      if (options_.root >= communicator->size() && is_rooted(collective_)) {
        if (rank == 0) {
          print_error(fmt::format("--root {} does not exist, the ranks are 0 to {}", options_.root,
                                  communicator->size() - 1));
        }
        return kUsage;
      }
      return Runner(*communicator, collective_, options_, arguments_).run() == 0 ? 0 : kFailed;
    } catch (const Error& error) {
      // A rank that was told to stop has nothing to add to what the failing one said.
      if (error.code() != ErrorCode::aborted || rank == 0) report(rank, error.what());
      abort(communicator, error.what());
    } catch (const std::exception& error) {
      report(rank, error.what());
      abort(communicator, error.what());
    }
    return kFailed;
  }

 private:
  static void report(int rank, const char* message) {
    print_error(fmt::format("rank {}: {}", rank, message));
  }

  // So that the others do not wait for this rank.
  static void abort(std::optional<Communicator>& communicator, const char* message) {
    if (communicator) communicator->abort(message);
  }

  Collective collective_;
  PerfOptions options_;
  std::vector<std::string> arguments_;
};

// The thread ranks of this process; the worst exit code of them.
int run_threads(const Rank& rank, int first, std::vector<Rank::MakeCommunicator> make) {
  std::atomic<int> exit_code{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < make.size(); ++i) {
    const auto run = [&, i] {
      const int code = rank.run(first + static_cast<int>(i), make[i]);
      int worst = exit_code.load();
      while (code > worst && !exit_code.compare_exchange_weak(worst, code)) {
      }
    };
    try {
      threads.emplace_back(run);
    } catch (const std::system_error& error) {
      // The threads that did start wait for this one; there is nobody left to tell them.
      print_error(
          fmt::format("rank {}: no thread for it: {}", first + static_cast<int>(i), error.what()));
      std::_Exit(kFailed);
    }
  }
  threads.clear();  // joins
  return exit_code;
}

int run_ranks(Collective collective, const PerfOptions& perf_options, const Placement& placement,
              const std::vector<std::string>& arguments) {
  Options options;
  if (perf_options.timeout_seconds > 0) {
    options.timeout = std::chrono::seconds(perf_options.timeout_seconds);
  }
  const Rank rank(collective, perf_options, arguments);
  const int threads = perf_options.threads;
  if (threads == 1) {
    return rank.run(placement.rank, [&] { return Communicator::from_environment(options); });
  }

  std::vector<Rank::MakeCommunicator> make;
  if (placement.size == 1) {
    std::vector<Communicator> communicators = Communicator::create_local(threads, options);
    for (Communicator& communicator : communicators) {
      make.emplace_back([&communicator] { return std::move(communicator); });
    }
    return run_threads(rank, 0, std::move(make));
  }

  // Processes times threads: the processes meet first, and rank 0 hands them the id of the whole.
  Communicator processes = Communicator::from_environment(options);
  UniqueId id;
  if (processes.rank() == 0) id = make_unique_id();
  processes.broadcast(id.bytes.data(), id.bytes.data(), id.bytes.size(), DataType::uint8, 0);
  const int first = processes.rank() * threads;
  for (int i = 0; i < threads; ++i) {
    make.emplace_back([&, i] {
      return Communicator::create(id, first + i, processes.size() * threads, options);
    });
  }
  return run_threads(rank, first, std::move(make));
}

}  // namespace

int run_program(Collective collective, int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  const ParsedOptions parsed =
      parse_options(program_name(collective),
                    std::span(arguments).subspan(std::min<std::size_t>(1, arguments.size())));
  try {
    const Placement placement = placement_from_environment();
    if (parsed.run) return run_ranks(collective, parsed.options, placement, arguments);
    if (placement.rank == 0) fmt::print(parsed.exit_code == 0 ? stdout : stderr, "{}", parsed.text);
    return parsed.exit_code;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kFailed;
  }
}

}  // namespace tutti::perf
