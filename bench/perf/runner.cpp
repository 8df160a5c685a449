// Rows: what is measured, checked and reported; see runner.h. It follows nccl-tests: the calls of a
// size are timed as a whole; then results are checked in calls of their own.
#include "bench/perf/runner.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "bench/perf/bits.h"

namespace tutti::perf {

namespace {

// With another library beside Tutti, both are measured this often, in turn.
constexpr int kRounds = 2;

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

std::unique_ptr<Report> make_report(int rank, Collective collective, const PerfOptions& options,
                                    const std::vector<std::string>& arguments) {
  if (rank != 0) return nullptr;
  return std::make_unique<Report>(program_name(collective), options, arguments);
}

std::vector<RankMemory> make_memory(const PerfOptions& options, const ThreadRanks& ranks,
                                    const bench::NcclFunctions* nccl) {
  std::vector<RankMemory> memory;
  for (std::size_t local = 0; local < ranks.communicators.size(); ++local) {
    memory.emplace_back(options, ranks.devices.empty() ? -1 : ranks.devices[local], nccl);
  }
  return memory;
}

// One more round. What -K leaves out of the iterations is left out of every round.
void add(Timing& sum, const Timing& round, int skipped) {
  sum.seconds += round.seconds;
  sum.cpu_seconds += round.cpu_seconds;
  const bool first = sum.iterations.empty();
  sum.iterations.insert(
      sum.iterations.end(),
      round.iterations.begin() + (first || round.iterations.empty() ? 0 : skipped),
      round.iterations.end());
}

}  // namespace

Runner::Runner(ThreadRanks& ranks, Collective collective, const PerfOptions& options,
               const bench::NcclFunctions* nccl, std::vector<std::string> arguments)
    : ranks_(ranks),
      control_(ranks.control()),
      size_(ranks.communicators.front().size()),
      collective_(collective),
      options_(options),
      nccl_functions_(nccl),
      report_(make_report(control_.rank(), collective, options, arguments)),
      at_start_(memory_use()),
      memory_(make_memory(options, ranks, nccl)),
      with_buffers_(memory_use()),
      tutti_(ranks.communicators, ranks.devices, options.started) {}

Runner::~Runner() = default;

std::uint64_t Runner::run() {
  const std::vector<RankInfo> ranks = everyone();
  if (report_) {
    // Between GPUs it depends on the pair of ranks.
    const bool on_host = options_.gpus == 0;
    report_->start(ranks, nccl_functions_ != nullptr ? nccl_functions_->version_text() : "",
                   on_host ? ranks_.communicators.front().transports() : "");
  }
  start_nccl();
  for (const DataType type : types_of(options_)) {
    for (const std::optional<ReduceKind> op : ops_of(options_, collective_)) {
      for (const int root : roots_of(options_, collective_, size_)) {
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
  if (options_.bits) show_bits(type, *op, root);
}

void Runner::show_bits(DataType type, ReduceKind kind, int root) {
  Bits bits(control_, memory_.front(), collective_, type, kind, root);
  std::optional<std::size_t> bytes = options_.min_bytes;
  for (; bytes; bytes = next_size(options_, *bytes)) bits.add(*bytes);
  const Bits::Result result = bits.finish();
  if (report_) report_->note(result.text + "\n");
  // Without the mode, other sizes may have other bits.
  if (!result.agree && options_.invariant) ++wrong_;
}

Row Runner::measure_row(std::size_t bytes, DataType type, std::optional<ReduceKind> op, int root) {
  CallSetup setup;
  setup.collective = collective_;
  setup.shape = shape_of(collective_, bytes, type, size_);
  setup.type = type;
  setup.ranks = size_;
  setup.root = root;
  setup.compressed = options_.compressed;

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

Measurement Runner::measure(CallSetup setup, std::optional<ReduceKind> op) {
  const Data data({setup.type, op, setup.ranks, ++seed_, setup.compressed});
  if (options_.checks > 0) paint(data, setup);
  std::vector<RankCalls> calls = bind(setup, data);
  const std::size_t bytes = setup.shape.largest() * size_of(setup.type);
  const auto time = [&](Library& library) {
    return time_calls(options_, calls, bytes, library, control_);
  };

  Timing mine, other;
  const int rounds = nccl_ ? kRounds : 1;
  for (int round = 0; round < rounds; ++round) {
    add(mine, time(tutti_), options_.skip_iterations);
    if (nccl_) add(other, time(*nccl_), options_.skip_iterations);
    agree_on_nccl();
  }
  mine.seconds /= rounds;
  mine.cpu_seconds /= rounds;
  Measurement measurement;
  static_cast<Timed&>(measurement) = summary_of(mine, setup);
  if (options_.checks > 0) measurement.wrong = check(setup, op, tutti_);
  if (nccl_) {
    other.seconds /= rounds;
    other.cpu_seconds /= rounds;
    Timed timed = summary_of(other, setup);
    if (options_.checks > 0) timed.wrong = check(setup, op, *nccl_);
    agree_on_nccl();
    if (nccl_) measurement.nccl = timed;
  }
  wrong_ += measurement.wrong.value_or(0);
  bus_gbps_ += measurement.bus_gbps;
  ++measurements_;
  return measurement;
}

Timed Runner::summary_of(const Timing& timing, const CallSetup& setup) const {
  Timed result;
  result.seconds = over_ranks(timing.seconds);
  result.cpu_seconds = over_ranks(timing.cpu_seconds);
  if (result.seconds > 0) {
    const auto bytes = static_cast<double>(setup.shape.largest() * size_of(setup.type));
    result.algorithm_gbps = bytes / result.seconds * 1e-9;
  }
  result.bus_gbps = result.algorithm_gbps * bus_factor(collective_, setup.ranks);
  if (options_.per_iteration) {
    std::vector<double> slowest(timing.iterations.size());
    control_.all_reduce(timing.iterations.data(), slowest.data(), slowest.size(), DataType::float64,
                        ReduceKind::max);
    result.iterations = summarize(std::move(slowest), options_.skip_iterations);
  }
  return result;
}

std::uint64_t Runner::check(CallSetup setup, std::optional<ReduceKind> op, Library& library) {
  std::uint64_t wrong = 0;
  for (int i = 0; i < options_.checks && wrong == 0; ++i) {
    const Data data({setup.type, op, setup.ranks, ++seed_, setup.compressed});
    // On host memory, no barrier: a call that has returned is done with this rank's buffers.
    paint(data, setup);
    if (!ranks_.devices.empty()) control_.barrier();  // as before the timing
    std::vector<RankCalls> calls = bind(setup, data);
    library.attempt([&] {
      call_once(calls, 0, library);
      library.finish();
      library.check();
    });
    std::uint64_t mine = 0;
    for (std::size_t local = 0; local < memory_.size(); ++local) {
      setup.rank = ranks_.communicators[local].rank();
      mine += memory_[local].count_wrong(data, setup);
    }
    control_.all_reduce(&mine, &wrong, 1, DataType::uint64, ReduceKind::sum);
  }
  return wrong;
}

std::vector<RankCalls> Runner::bind(CallSetup setup, const Data& data) const {
  std::vector<RankCalls> calls;
  for (std::size_t local = 0; local < memory_.size(); ++local) {
    setup.rank = ranks_.communicators[local].rank();
    calls.push_back({BoundCall(setup, data.op(setup.rank)), memory_[local].send(setup.type),
                     memory_[local].receive(setup.type)});
  }
  return calls;
}

void Runner::paint(const Data& data, CallSetup setup) const {
  for (std::size_t local = 0; local < memory_.size(); ++local) {
    setup.rank = ranks_.communicators[local].rank();
    memory_[local].paint(data, setup);
  }
}

void Runner::start_nccl() {
  if (nccl_functions_ == nullptr) return;
  const NcclRanks place{ranks_.communicators.front().rank(),
                        static_cast<int>(ranks_.communicators.size()), size_, ranks_.devices};
  nccl_ = std::make_unique<Nccl>(*nccl_functions_, options_, control_, place);
  agree_on_nccl();
  if (!nccl_) return;
  std::vector<Nccl::Memory> memory;
  for (std::size_t local = 0; local < memory_.size(); ++local) {
    memory.push_back({local, memory_[local].send(), memory_[local].bytes()});
    memory.push_back({local, memory_[local].receive(), memory_[local].bytes()});
  }
  nccl_->register_memory(memory);
  agree_on_nccl();
}

void Runner::agree_on_nccl() {
  if (!nccl_) return;
  using Text = std::array<char, 400>;
  Text mine{};
  if (nccl_->failure()) nccl_->failure()->copy(mine.data(), mine.size() - 1);
  std::vector<Text> all(static_cast<std::size_t>(control_.size()));
  control_.all_gather(mine.data(), all.data(), sizeof(Text), DataType::uint8);
  for (const Text& text : all) {
    if (text.front() == '\0') continue;
    nccl_->stop(text.data());
    nccl_.reset();
    if (report_) report_->drop_nccl(text.data());
    return;
  }
}

double Runner::over_ranks(double mine) const {
  double result = mine;
  switch (options_.average) {
    case Average::rank0:  // only rank 0 prints
      break;
    case Average::mean:
      control_.all_reduce(&mine, &result, 1, DataType::float64, ReduceKind::sum);
      result /= control_.size();
      break;
    case Average::minimum:
      control_.all_reduce(&mine, &result, 1, DataType::float64, ReduceKind::min);
      break;
    case Average::maximum:
      control_.all_reduce(&mine, &result, 1, DataType::float64, ReduceKind::max);
      break;
  }
  return result;
}

std::vector<RankInfo> Runner::everyone() const {
  struct Wire {
    std::int32_t pid = 0, device = -1;
    std::array<char, 64> host{}, bus_id{}, name{};
  };
  std::vector<Wire> mine(memory_.size());
  for (std::size_t local = 0; local < mine.size(); ++local) {
    Wire& wire = mine[local];
    wire.pid = getpid();
    gethostname(wire.host.data(), wire.host.size() - 1);
    if (ranks_.devices.empty()) continue;
    wire.device = ranks_.devices[local];
    const gpu::Description gpu = gpu::describe(wire.device);
    gpu.bus_id.copy(wire.bus_id.data(), wire.bus_id.size() - 1);
    gpu.name.copy(wire.name.data(), wire.name.size() - 1);
  }
  std::vector<Wire> all(static_cast<std::size_t>(size_));
  control_.all_gather(mine.data(), all.data(), mine.size() * sizeof(Wire), DataType::uint8);
  std::vector<RankInfo> ranks;
  for (const Wire& wire : all) {
    RankInfo info;
    info.rank = static_cast<int>(ranks.size());
    info.pid = wire.pid;
    info.host = wire.host.data();
    if (wire.device >= 0) {
      info.device = wire.device;
      info.device_id = wire.bus_id.data();
      info.memory = std::string(wire.name.data()) + ", GPU memory";
    }
    ranks.push_back(info);
  }
  return ranks;
}

MemoryUse Runner::memory_use() const {
  if (ranks_.devices.empty()) return perf::memory_use();
  gpu::use(ranks_.devices.front());
  const std::int64_t bytes = gpu::memory_in_use();
  return {bytes, bytes};
}

MemoryReport Runner::memory() const {
  const std::array<std::int64_t, 3> mine = {at_start_.now, with_buffers_.now - at_start_.now,
                                            memory_use().peak};
  std::array<std::int64_t, 3> most{};
  control_.all_reduce(mine.data(), most.data(), mine.size(), DataType::int64, ReduceKind::max);
  return {most[0], most[1], most[2]};
}

}  // namespace tutti::perf
