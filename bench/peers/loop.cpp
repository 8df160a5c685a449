// The measuring loop; see loop.h.
#include "bench/peers/loop.h"

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
#include <utility>

#include "bench/peers/barrier.h"
#include "bench/perf/numbers.h"
#include "core/error.h"

namespace tutti::peers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxIterations = 1000;
constexpr std::size_t kBlocksUpTo = 16 << 10;  // bytes: above, one call is long enough
constexpr double kBlockMicroseconds = 20;
constexpr std::size_t kTouchedBytes = 256;

/// What the ranks of one run share, in a file of its folder. A new file is all zeros.
struct Shared {
  Barrier barrier;
  Counter calls;                            // in a block; written by rank 0
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Small whole numbers, so that every type can add up those of kMaxRanks ranks exactly.
double input_value(int rank, int iteration) { return 1 + (rank + iteration) % 4; }

bool takes_part(const Job& job) { return job.collective != Collective::send_recv || job.rank < 2; }
bool has_input(const Job& job) {
  return takes_part(job) && (job.collective != Collective::broadcast || job.rank == 0);
}

template <class T>
void fill(std::byte* at, std::size_t count, std::uint64_t bits) {
  std::fill_n(reinterpret_cast<T*>(at), count, static_cast<T>(bits));
}

void write_input(const Job& job, std::size_t elements, int iteration) {
  if (!has_input(job)) return;
  const std::uint64_t bits = perf::encode(job.type, input_value(job.rank, iteration));
  switch (size_of(job.type)) {
    case 2:
      return fill<std::uint16_t>(job.in, elements, bits);
    case 4:
      return fill<std::uint32_t>(job.in, elements, bits);
    default:
      return fill<std::uint64_t>(job.in, elements, bits);
  }
}

/// The rank whose input is in block `block` of the output, or -1: the sum of all.
int source_of_block(const Job& job, int block) {
  switch (job.collective) {
    case Collective::broadcast:
      return 0;
    case Collective::all_gather:
    case Collective::all_to_all:
      return block;
    case Collective::send_recv:
      return 1 - job.rank;
    default:
      return -1;
  }
}

void check_output(const Job& job, std::size_t elements, int iteration) {
  if (!takes_part(job) || (job.collective == Collective::reduce && job.rank != 0)) return;
  double sum = 0;
  for (int r = 0; r < job.ranks; ++r) sum += input_value(r, iteration);
  const std::size_t element_bytes = size_of(job.type);
  for (std::size_t i = 0; i < elements; ++i) {
    const int source = source_of_block(job, static_cast<int>(i / job.count));
    const double expected = source < 0 ? sum : input_value(source, iteration);
    const std::uint64_t bits = perf::load(job.type, job.out + i * element_bytes);
    if (bits == perf::encode(job.type, expected)) continue;
    throw Error(
        ErrorCode::internal,
        fmt::format("{} of {} {}: rank {}'s element {} is wrong: its bits are {:#x}, not "
                    "those of {}",
                    name(job.collective), job.count, name(job.type), job.rank, i, bits, expected));
  }
}

class Loop {
 public:
  Loop(const Job& job, const perf::Shape& shape, int iterations, Shared& shared)
      : job_(job), shape_(shape), iterations_(iterations), shared_(shared) {}

  /// The median, on rank 0.
  double measure(const Call& call) {
    const std::size_t touched = has_input(job_) ? std::min(kTouchedBytes, input_bytes()) : 0;
    const auto block = [&](std::uint64_t calls) {
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
    };
    const std::uint64_t calls = choose_calls(block);
    for (int i = 0; i < iterations_; ++i) {
      write_input(job_, shape_.in, i);
      shared_.times[job_.rank][i] = block(calls);
    }
    barrier();
    check_output(job_, shape_.out, iterations_ - 1);
    return slowest_ranks_median();
  }

 private:
  void barrier() { shared_.barrier.wait(job_.rank, job_.ranks); }
  std::size_t input_bytes() const { return shape_.in * size_of(job_.type); }

  /// Warms up, and finds how many calls make a block: rank 0 decides for all.
  template <class Block>
  std::uint64_t choose_calls(const Block& block) {
    const bool blocks = shape_.largest() * size_of(job_.type) <= kBlocksUpTo;
    write_input(job_, shape_.in, 0);
    block(2);
    const double once = block(blocks ? 20 : 1);
    if (job_.rank == 0) {
      const double calls = blocks ? std::ceil(kBlockMicroseconds / std::max(once, 0.01)) : 1;
      // the barrier publishes it
      shared_.calls.value.store(static_cast<std::uint64_t>(calls), std::memory_order_relaxed);
    }
    barrier();
    return shared_.calls.value.load(std::memory_order_relaxed);
  }

  double slowest_ranks_median() const {
    std::vector<double> slowest;
    for (int i = 0; i < iterations_; ++i) {
      double time = 0;
      for (int r = 0; r < job_.ranks; ++r) time = std::max(time, shared_.times[r][i]);
      slowest.push_back(job_.collective == Collective::send_recv ? time / 2 : time);
    }
    return median(std::move(slowest));
  }

  const Job job_;
  const perf::Shape shape_;
  const int iterations_;
  Shared& shared_;
};

int iterations_for(const Arguments& arguments, std::size_t bytes) {
  constexpr std::size_t kFull = 1 << 20;
  constexpr int kFewest = 7;
  if (bytes <= kFull) return arguments.iterations;
  const double fewer = arguments.iterations * (static_cast<double>(kFull) / bytes);
  return std::max(static_cast<int>(fewer), std::min(kFewest, arguments.iterations));
}

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
  app.add_option("--iterations", arguments.iterations)
      ->required()
      ->check(CLI::Range(1, kMaxIterations));
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
  Job job{arguments.collective, arguments.type, rank, arguments.ranks, 0, in, out};
  if (job.collective == Collective::broadcast) job.in = out;
  for (const std::size_t bytes : arguments.bytes) {
    const auto shape = perf::shape_of(job.collective, bytes, job.type, job.ranks);
    job.count = shape.count;
    double best = 0;
    for (const Call& call : bind(job)) {
      const double time = Loop(job, shape, iterations_for(arguments, bytes), shared).measure(call);
      best = best == 0 ? time : std::min(best, time);
      shared.barrier.wait(rank, job.ranks);  // nobody's times are overwritten before they are read
    }
    if (rank != 0) continue;
    fmt::print("{} {:.4f}\n", bytes, best);
    std::fflush(stdout);
  }
}

void print_unsupported(const std::string& reason) { fmt::print("unsupported {}\n", reason); }

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
