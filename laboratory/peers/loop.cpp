// The measuring loop; see loop.h.
#include "laboratory/peers/loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "bench/median.h"
#include "core/error.h"
#include "laboratory/peers/barrier.h"
#include "laboratory/peers/pattern.h"
#include "laboratory/peers/turns.h"

namespace tutti::peers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxIterations = 10000;          // of a turn
constexpr std::size_t kBlocksUpTo = 16 << 10;  // bytes: above, one call is long enough
constexpr double kBlockMicroseconds = 20;
constexpr std::size_t kTouchedBytes = 256;

/// What the ranks of one program share, in a file of its folder. A new file is all zeros.
struct Shared {
  Barrier barrier;
  Counter agreed;                           // written by rank 0
  double times[kMaxRanks][kMaxIterations];  // in us; each rank writes its own
};

Shared& map_shared(const std::string& folder) {
  const std::string path = folder + "/loop";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) throw_system_error("cannot open " + path);
  if (ftruncate(file, sizeof(Shared)) != 0) throw_system_error("cannot size " + path);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw_system_error("cannot map " + path);
  close(file);
  return *static_cast<Shared*>(memory);  // for as long as the process lives
}

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw_system_error(fmt::format("cannot pin to core {}", cpu));
  }
}

/// Looks at a counter before the core is left to others; few where others are waiting for it.
int spins = 2000;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

bool takes_part(const Job& job) { return job.collective != Collective::send_recv || job.rank < 2; }
bool has_input(const Job& job) {
  return takes_part(job) && (job.collective != Collective::broadcast || job.rank == 0);
}

/// Part of an output: what `rank` (or Pattern::kSum) has from `position` on.
struct Source {
  int rank;
  std::size_t position;
};

/// Where block `block` of the output comes from.
Source source_of_block(const Job& job, int block) {
  const std::size_t mine = static_cast<std::size_t>(job.rank) * job.count;
  switch (job.collective) {
    case Collective::broadcast:
      return {0, 0};
    case Collective::all_gather:
      return {block, 0};
    case Collective::all_to_all:
      return {block, mine};
    case Collective::send_recv:
      return {1 - job.rank, 0};
    case Collective::reduce_scatter:
      return {Pattern::kSum, mine};
    default:
      return {Pattern::kSum, 0};
  }
}

void check_output(const Job& job, const perf::Shape& shape, const Pattern& pattern,
                  std::uint64_t iteration) {
  if (!takes_part(job) || (job.collective == Collective::reduce && job.rank != 0)) return;
  for (std::size_t first = 0; first < shape.out; first += job.count) {
    const Source source = source_of_block(job, static_cast<int>(first / job.count));
    const auto wrong = pattern.find_wrong(source.rank, iteration, source.position, job.count,
                                          job.out + first * size_of(job.type));
    if (!wrong) continue;
    throw Error(ErrorCode::internal,
                fmt::format("{} of {} {}: rank {}'s element {} is wrong", name(job.collective),
                            job.count, name(job.type), job.rank, first + *wrong));
  }
}

/// One job in one turn.
class Loop {
 public:
  /// `iteration`: of the last input that was written. The next input differs from it.
  Loop(const Job& job, const perf::Shape& shape, const Pattern& pattern, std::uint64_t& iteration,
       Shared& shared)
      : job_(job), shape_(shape), pattern_(pattern), iteration_(iteration), shared_(shared) {}

  /// The median, on rank 0, of what takes about `milliseconds`.
  double measure(const Call& call, double milliseconds) {
    const Size size = choose_size(call, milliseconds * 1e3);
    return measure(call, size, [] {});
  }

  /// The mean of the first `calls` calls.
  double measure_first(const Call& call, int calls) {
    return measure(call, {static_cast<std::uint64_t>(calls), 1}, [] {});
  }

  /// The median of calls that come after `pause` milliseconds in which the ranks sleep, for about
  /// `milliseconds` in all.
  double measure_apart(const Call& call, int pause, int milliseconds) {
    const auto calls = static_cast<std::uint64_t>(std::max(milliseconds / pause, 5));
    return measure(call, {1, std::min<std::uint64_t>(calls, kMaxIterations)},
                   [&] { std::this_thread::sleep_for(std::chrono::milliseconds(pause)); });
  }

 private:
  struct Size {
    std::uint64_t calls, iterations;
  };

  template <class Before>
  double measure(const Call& call, const Size& size, const Before& before_each) {
    for (std::uint64_t i = 0; i < size.iterations; ++i) {
      before_each();
      shared_.times[job_.rank][i] = run_block(call, size.calls);
    }
    barrier();
    check_output(job_, shape_, pattern_, iteration_);
    return slowest_ranks_median(size.iterations);
  }

  void barrier() { shared_.barrier.wait(job_.rank, job_.ranks); }

  /// Microseconds of a call; the input is new.
  double run_block(const Call& call, std::uint64_t calls) {
    ++iteration_;
    if (has_input(job_)) pattern_.write(job_.rank, iteration_, 0, shape_.in, job_.in);
    const std::size_t bytes = shape_.in * size_of(job_.type);
    const std::size_t touched = has_input(job_) ? std::min(kTouchedBytes, bytes) : 0;
    std::byte line[kTouchedBytes];
    std::memcpy(line, job_.in, touched);
    barrier();
    const auto start = Clock::now();
    if (calls == 1) {
      call();
    } else {
      for (std::uint64_t i = 0; i < calls; ++i) {
        std::memcpy(job_.in, line, touched);
        call();
      }
    }
    return microseconds_since(start) / static_cast<double>(calls);
  }

  /// Warms up, and finds how many calls make a block, and blocks a turn. Anew in each turn, as the
  /// machine may have become another one.
  Size choose_size(const Call& call, double microseconds) {
    Size size{1, 1};
    double once = run_block(call, 1);
    auto start = Clock::now();
    if (shape_.largest() * size_of(job_.type) <= kBlocksUpTo) {
      size.calls = agree(std::min(kBlockMicroseconds / once, 20.0));
      for (int i = 0; i < 4; ++i) once = std::min(once, run_block(call, size.calls));
      size.calls = agree(std::ceil(kBlockMicroseconds / std::max(once, 0.01)));
      start = Clock::now();
    }
    run_block(call, size.calls);
    // Writing the input counts: it is part of what a turn lasts.
    size.iterations =
        agree(std::min(microseconds / microseconds_since(start), double{kMaxIterations}));
    return size;
  }

  /// Rank 0's number, on all ranks; at least 1.
  std::uint64_t agree(double number) {
    if (job_.rank == 0) {
      // the barrier publishes it
      shared_.agreed.value.store(static_cast<std::uint64_t>(std::max(number, 1.0)),
                                 std::memory_order_relaxed);
    }
    barrier();
    return shared_.agreed.value.load(std::memory_order_relaxed);
  }

  double slowest_ranks_median(std::uint64_t iterations) const {
    std::vector<double> slowest;
    for (std::uint64_t i = 0; i < iterations; ++i) {
      double time = 0;
      for (int r = 0; r < job_.ranks; ++r) time = std::max(time, shared_.times[r][i]);
      slowest.push_back(job_.collective == Collective::send_recv ? time / 2 : time);
    }
    return median(std::move(slowest));
  }

  const Job job_;
  const perf::Shape shape_;
  const Pattern& pattern_;
  std::uint64_t& iteration_;
  Shared& shared_;
};

}  // namespace

void wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t target) {
  constexpr auto kPatience = std::chrono::seconds(60);
  const auto there = [&] { return counter.load(std::memory_order_acquire) >= target; };
  for (int i = 0; i < spins; ++i) {
    if (there()) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (const auto start = Clock::now(); !there();) {
    sched_yield();
    if (Clock::now() - start > kPatience) {
      throw Error(ErrorCode::timed_out, "waited 60 s for another rank; has it died?");
    }
  }
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  std::string collective, type, memory;
  CLI::App app("Measures one library for `tutti compare`, which starts it; see docs/comparing.md.");
  app.add_option("--collective", collective)->required();
  app.add_option("--type", type)->required();
  app.add_option("--memory", memory)->required()->check(CLI::IsMember({"window", "malloc"}));
  app.add_option("--ranks", arguments.ranks)->required()->check(CLI::Range(2, kMaxRanks));
  app.add_option("--cores", arguments.cores)->required();
  app.add_option("--slice", arguments.slice)->required();
  app.add_option("--cold", arguments.cold)->check(CLI::Range(1, 1000000));
  app.add_option("--pause", arguments.pause)->check(CLI::Range(1, 10000));
  app.add_option("--folder", arguments.folder)->required();
  app.add_option("--cpus", arguments.cpus)->delimiter(',');
  app.add_option("--bytes", arguments.bytes)->required()->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e));
  }
  const auto parsed_collective = parse_collective(collective);
  const auto parsed_type = parse_data_type(type);
  if (!parsed_collective || !parsed_type || !is_float(*parsed_type) || size_of(*parsed_type) < 2) {
    throw Error(ErrorCode::invalid_argument, fmt::format("cannot measure {} {}", collective, type));
  }
  arguments.collective = *parsed_collective;
  arguments.type = *parsed_type;
  arguments.window = memory == "window";
  return arguments;
}

void take_place(const Arguments& arguments, int rank, int ranks) {
  if (ranks != arguments.ranks) {
    throw Error(ErrorCode::mismatch,
                fmt::format("the launcher has started {} rank(s), not {}", ranks, arguments.ranks));
  }
  if (ranks > arguments.cores) spins = 10;
  if (!arguments.cpus.empty()) {
    pin(arguments.cpus[static_cast<std::size_t>(rank) % arguments.cpus.size()]);
  }
}

perf::Shape largest_shape(const Arguments& arguments) {
  perf::Shape largest;
  for (const std::size_t bytes : arguments.bytes) {
    const auto shape = perf::shape_of(arguments.collective, bytes, arguments.type, arguments.ranks);
    largest.in = std::max(largest.in, shape.in);
    largest.out = std::max(largest.out, shape.out);
  }
  return largest;
}

void run_loop(const Arguments& arguments, int rank, std::byte* in, std::byte* out,
              const Bind& bind) {
  Shared& shared = map_shared(arguments.folder);
  Turns turns(arguments.folder, rank);
  const Pattern pattern(arguments.type, is_reduction(arguments.collective), arguments.ranks);
  Job job{arguments.collective, arguments.type, rank, arguments.ranks, 0, in, out};
  if (job.collective == Collective::broadcast) job.in = out;
  std::uint64_t iteration = 0;
  while (const auto bytes = turns.next()) {
    const auto shape = perf::shape_of(job.collective, *bytes, job.type, job.ranks);
    job.count = shape.count;
    const std::vector<Call> calls = bind(job);
    std::vector<double> times;
    for (const Call& call : calls) {
      Loop loop(job, shape, pattern, iteration, shared);
      times.push_back(
          arguments.cold > 0 ? loop.measure_first(call, arguments.cold)
          : arguments.pause > 0
              ? loop.measure_apart(call, arguments.pause, arguments.slice)
              : loop.measure(call, arguments.slice / static_cast<double>(calls.size())));
      shared.barrier.wait(rank, job.ranks);  // nobody's times are overwritten before they are read
    }
    if (rank == 0) turns.report(times);
  }
}

int guarded(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}

}  // namespace tutti::peers
