// The measuring loop; see runner.h. It follows nccl-tests: the calls of a size are timed as a
// whole, on the caller's thread; then results are checked in calls of their own.
#include "bench/perf/runner.h"

#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

namespace tutti::perf {

namespace {

constexpr std::size_t kGuardBytes = 4096;  // before and after every buffer; keeps page alignment

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::size_t allocation(const PerfOptions& options) {
  return options.max_bytes + 2 * kGuardBytes +
         static_cast<std::size_t>(options.unalign) * sizeof(std::uint64_t);
}

// Every type or operator, where the option says "all".
std::vector<DataType> types_of(const PerfOptions& options) {
  if (options.type) return {*options.type};
  std::vector<DataType> types;
  for (int i = 0; i < kDataTypes; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

std::vector<std::optional<ReduceKind>> ops_of(const PerfOptions& options, Collective collective) {
  if (!is_reduction(collective)) return {std::nullopt};
  if (options.op) return {options.op};
  std::vector<std::optional<ReduceKind>> ops;
  for (int i = 0; i < kReduceKinds; ++i) ops.emplace_back(static_cast<ReduceKind>(i));
  return ops;
}

std::vector<int> roots_of(const PerfOptions& options, Collective collective, int ranks) {
  if (!is_rooted(collective)) return {-1};
  if (options.root >= 0) return {options.root};
  std::vector<int> roots;
  for (int i = 0; i < ranks; ++i) roots.push_back(i);
  return roots;
}

}  // namespace

Runner::Runner(Communicator& communicator, Collective collective, const PerfOptions& options,
               std::vector<std::string> arguments)
    : communicator_(communicator),
      collective_(collective),
      options_(options),
      report_(communicator.rank() == 0
                  ? std::make_unique<Report>(program_name(collective), options, arguments)
                  : nullptr),
      at_start_(memory_use()),
      send_(allocation(options), options.local_register != 0),
      receive_(allocation(options), options.local_register != 0),
      with_buffers_(memory_use()) {}

std::uint64_t Runner::run() {
  const std::vector<RankInfo> ranks = everyone();
  if (report_) report_->start(ranks);
  for (const DataType type : types_of(options_)) {
    for (const std::optional<ReduceKind> op : ops_of(options_, collective_)) {
      for (const int root : roots_of(options_, collective_, communicator_.size())) {
        run_sizes(type, op, root);
      }
    }
  }
  const MemoryReport used = options_.memory_report ? memory() : MemoryReport{};
  const double average = measurements_ > 0 ? bus_gbps_ / static_cast<double>(measurements_) : 0;
  if (report_) report_->finish({wrong_, average}, used);
  return wrong_;
}

void Runner::run_sizes(DataType type, std::optional<ReduceKind> op, int root) {
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
    std::optional<std::size_t> bytes = options_.min_bytes;
    for (; bytes; bytes = next_size(options_, *bytes)) {
      const Row row = measure_row(*bytes, type, op, root);
      if (report_) report_->add(row);
    }
  }
}

Row Runner::measure_row(std::size_t bytes, DataType type, std::optional<ReduceKind> op, int root) {
  CallSetup setup;
  setup.collective = collective_;
  setup.shape = shape_of(collective_, bytes, type, communicator_.size());
  setup.type = type;
  setup.ranks = communicator_.size();
  setup.rank = communicator_.rank();
  setup.root = root;

  Row row;
  row.bytes = setup.shape.largest() * size_of(type);
  row.count = setup.shape.count;
  row.type = type;
  row.op = op;
  row.root = root;
  row.out_of_place = measure(setup, op);
  if (has_in_place(collective_)) {
    setup.in_place = true;
    row.in_place = measure(setup, op);
  }
  row.timestamp = timestamp();
  return row;
}

Measurement Runner::measure(const CallSetup& setup, std::optional<ReduceKind> op) {
  const Data data({setup.type, op, setup.ranks, ++seed_});
  const BoundCall call(communicator_, setup, data.op(setup.rank));
  if (options_.checks > 0) {
    const Expectation expected = expectation(setup, kGuardBytes / size_of(setup.type));
    paint(data, expected.send, start_of(send_, setup.type) - kGuardBytes);
    paint(data, expected.receive_before, start_of(receive_, setup.type) - kGuardBytes);
  }

  const std::size_t bytes = setup.shape.largest() * size_of(setup.type);
  Timing timing = time_calls(setup, call);
  Measurement measurement;
  measurement.seconds = over_ranks(timing.seconds);
  measurement.cpu_seconds = over_ranks(timing.cpu_seconds);
  if (measurement.seconds > 0) {
    measurement.algorithm_gbps = static_cast<double>(bytes) / measurement.seconds * 1e-9;
  }
  measurement.bus_gbps = measurement.algorithm_gbps * bus_factor(collective_, setup.ranks);
  if (options_.per_iteration) {
    std::vector<double> slowest(timing.iterations.size());
    communicator_.all_reduce(timing.iterations.data(), slowest.data(), slowest.size(),
                             DataType::float64, ReduceKind::max);
    measurement.iterations = summarize(std::move(slowest), options_.skip_iterations);
  }
  if (options_.checks > 0) measurement.wrong = check(setup, call, op);
  wrong_ += measurement.wrong.value_or(0);
  bus_gbps_ += measurement.bus_gbps;
  ++measurements_;
  return measurement;
}

// Call i starts i times the call's bytes into the buffers (modulo their size): caches are used as
// by a program that does not reduce the same few bytes for ever.
Runner::Timing Runner::time_calls(const CallSetup& setup, const BoundCall& call) {
  const std::size_t bytes = setup.shape.largest() * size_of(setup.type);
  const std::size_t places = bytes > 0 ? options_.max_bytes / bytes : 1;
  std::byte* const send = start_of(send_, setup.type);
  std::byte* const receive = start_of(receive_, setup.type);
  const auto call_once = [&](std::size_t i) {
    const std::size_t shift = i % places * bytes;
    call(send + shift, receive + shift);
  };
  const auto aggregate = static_cast<std::size_t>(options_.aggregate);
  const auto iterate = [&](int iteration) {
    const std::size_t first = static_cast<std::size_t>(iteration) * aggregate;
    if (aggregate == 1) return call_once(first);
    group([&] {
      for (std::size_t i = 0; i < aggregate; ++i) call_once(first + i);
    });
  };

  for (int i = 0; i < options_.warmup; ++i) iterate(i);
  communicator_.barrier();

  Timing timing;
  const double calls = static_cast<double>(options_.iterations) * options_.aggregate;
  if (options_.per_iteration) {
    timing.iterations.reserve(static_cast<std::size_t>(options_.iterations));
  }
  const bool stops_clock = options_.blocking == Blocking::barrier_after_iteration;
  const double cpu_start = thread_cpu_seconds();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < options_.iterations; ++i) {
    Clock::time_point iteration_start;
    if (options_.per_iteration || stops_clock) iteration_start = Clock::now();
    iterate(i);
    if (options_.blocking == Blocking::barrier_after_call) communicator_.barrier();
    if (options_.per_iteration || stops_clock) {
      const double seconds = seconds_since(iteration_start);
      if (options_.per_iteration) timing.iterations.push_back(seconds * 1e6 / options_.aggregate);
      if (stops_clock) {
        timing.seconds += seconds / calls;
        communicator_.barrier();
      }
    }
  }
  if (!stops_clock) timing.seconds = seconds_since(start) / calls;
  timing.cpu_seconds = (thread_cpu_seconds() - cpu_start) / calls;
  communicator_.barrier();
  return timing;
}

// Calls with fresh data, compared bit by bit; stops at the first one that is wrong anywhere.
std::uint64_t Runner::check(const CallSetup& setup, const BoundCall& call,
                            std::optional<ReduceKind> op) {
  std::byte* const send = start_of(send_, setup.type);
  std::byte* const receive = start_of(receive_, setup.type);
  const Expectation expected = expectation(setup, kGuardBytes / size_of(setup.type));
  std::uint64_t wrong = 0;
  for (int i = 0; i < options_.checks && wrong == 0; ++i) {
    const Data data({setup.type, op, setup.ranks, ++seed_});
    // No barrier: a call that has returned is done with this rank's buffers.
    paint(data, expected.send, send - kGuardBytes);
    paint(data, expected.receive_before, receive - kGuardBytes);
    call(send, receive);
    const std::uint64_t mine = count_wrong(data, expected.send, send - kGuardBytes) +
                               count_wrong(data, expected.receive_after, receive - kGuardBytes);
    communicator_.all_reduce(&mine, &wrong, 1, DataType::uint64, ReduceKind::sum);
  }
  return wrong;
}

std::byte* Runner::start_of(const Buffer& buffer, DataType type) const {
  return buffer.data() + kGuardBytes + static_cast<std::size_t>(options_.unalign) * size_of(type);
}

double Runner::over_ranks(double mine) const {
  double result = mine;
  switch (options_.average) {
    case Average::rank0:  // only rank 0 prints
      break;
    case Average::mean:
      communicator_.all_reduce(&mine, &result, 1, DataType::float64, ReduceKind::sum);
      result /= communicator_.size();
      break;
    case Average::minimum:
      communicator_.all_reduce(&mine, &result, 1, DataType::float64, ReduceKind::min);
      break;
    case Average::maximum:
      communicator_.all_reduce(&mine, &result, 1, DataType::float64, ReduceKind::max);
      break;
  }
  return result;
}

std::vector<RankInfo> Runner::everyone() const {
  struct Wire {
    std::int64_t pid = 0;
    std::array<char, 64> host{};
  };
  Wire mine;
  mine.pid = getpid();
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<Wire> all(static_cast<std::size_t>(communicator_.size()));
  communicator_.all_gather(&mine, all.data(), sizeof(Wire), DataType::uint8);
  std::vector<RankInfo> ranks;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ranks.push_back(
        {static_cast<int>(i), static_cast<int>(all[i].pid), std::string(all[i].host.data())});
  }
  return ranks;
}

MemoryReport Runner::memory() const {
  const std::array<std::int64_t, 3> mine = {at_start_.now, with_buffers_.now - at_start_.now,
                                            memory_use().peak};
  std::array<std::int64_t, 3> most{};
  communicator_.all_reduce(mine.data(), most.data(), mine.size(), DataType::int64, ReduceKind::max);
  return {most[0], most[1], most[2]};
}

}  // namespace tutti::perf
