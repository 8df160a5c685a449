// How: synchronisation is measured with plans made for the purpose (measuring.h); data with
// combine() on memory of the size of a cache, and with sends and receives that wait for nothing.
#include "tools/calibrate/measure_machine.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <vector>

#include "collectives/model/choose.h"
#include "comm/communicator.h"
#include "comm/geometry.h"
#include "core/combine.h"
#include "core/host.h"
#include "core/memory.h"
#include "tools/calibrate/measuring.h"
#include "tools/forked_ranks.h"
#include "tools/spawn.h"
#include "transport/host/cma.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kKiB = 1024;
constexpr std::size_t kShort = 8;  // bytes: they travel with a message's header
constexpr int kCalls = 50;
constexpr std::size_t kMessage = std::size_t{32} << 10;  // half a slot
constexpr std::size_t kCopy = std::size_t{128} << 10;    // it and its copy fit an L2 cache
constexpr int kMessages = 6;                             // fewer than slots: nobody waits
constexpr int kMostJobRanks = 32;
constexpr char kWindowAlgorithm[] = "two_shot_window";

/// Of one `body`, in a loop of about a millisecond; the median of a few loops.
double time_of(const std::function<void()>& body) {
  const double once = std::max(time_ns(body), 1.0);
  const int loops = static_cast<int>(std::clamp(1e6 / once, 1.0, 1e4));
  std::vector<double> samples;
  for (int s = 0; s < kSamples; ++s) {
    samples.push_back(time_ns([&] {
                        for (int i = 0; i < loops; ++i) body();
                      }) /
                      loops);
  }
  return median(std::move(samples));
}

// --- One core: combine(), calls, steps ----------------------------------------------------------

/// A window of so many bytes, touched.
class Window {
 public:
  explicit Window(std::size_t bytes) : memory_(allocate(bytes)) { std::memset(memory_, 0, bytes); }
  ~Window() { deallocate(memory_); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(memory_) + offset; }

 private:
  void* memory_;
};

/// ns per KiB of combine() in `bytes` of memory, with one or two sources and destinations.
struct Moves {
  double time[2][2] = {};  // by sources - 1, destinations - 1
};

double measure_move(const Window& window, std::size_t each, int sources, int destinations,
                    DataType type, bool stream) {
  void* const outs[] = {window.at(2 * each), window.at(3 * each)};
  const Source ins[] = {{window.at(0)}, {window.at(each)}};
  CombineOptions options;
  options.stream = stream;
  const double ns = time_of([&] {
    combine(type, ReduceKind::sum, {outs, static_cast<std::size_t>(destinations)},
            {ins, static_cast<std::size_t>(sources)}, each / size_of(type), options);
  });
  return ns / (static_cast<double>(each) / kKiB);
}

Moves measure_moves(std::size_t bytes, bool stream) {
  const std::size_t each = std::max<std::size_t>(bytes / 4 / 4096 * 4096, 4096);
  const Window window(4 * each);
  Moves moves;
  for (int s = 0; s < 2; ++s) {
    for (int d = 0; d < 2; ++d) {
      moves.time[s][d] = measure_move(window, each, s + 1, d + 1, DataType::float32, stream);
    }
  }
  return moves;
}

/// Splits these moves into reads and writes, by least squares. Each is at least a tenth of a copy:
/// what a prefetcher hides in one loop, it does not in another.
void split(const Moves& moves, double& read, double& write) {
  const auto& t = moves.time;
  // The normal equations of t[s][d] = (s + 1) read + (d + 1) write: 10 r + 9 w = a, 9 r + 10 w = b.
  const double a = t[0][0] + t[0][1] + 2 * (t[1][0] + t[1][1]);
  const double b = t[0][0] + t[1][0] + 2 * (t[0][1] + t[1][1]);
  read = std::max((10 * a - 9 * b) / 19, t[0][0] / 10);
  write = std::max((10 * b - 9 * a) / 19, t[0][0] / 10);
}

/// The time of a call with `plan`.
double time_of_plan(Communicator& comm, const std::string& plan, Collective collective) {
  comm.use_plan(plan);
  std::byte in[kShort]{}, out[kShort]{};
  const Call call{.collective = collective,
                  .in = in,
                  .out = out,
                  .count = collective == Collective::barrier ? 0 : kShort};
  return time_of([&] { comm.run(call); });
}

void measure_one_core(Machine& m) {
  const auto l2 = static_cast<std::size_t>(m.l2_bytes);
  const auto l3 = static_cast<std::size_t>(m.l3_bytes);
  split(measure_moves(l2 / 2, false), m.l2_read, m.l2_write);
  const std::size_t in_l3 = std::min(4 * l2, std::max(l3 / 2, 2 * l2));
  split(measure_moves(in_l3, false), m.l3_read, m.l3_write);
  const std::size_t in_memory = std::clamp<std::size_t>(3 * l3, 64 << 20, 768 << 20);
  split(measure_moves(in_memory, false), m.memory_read, m.memory_write);
  double ignored = 0;
  split(measure_moves(in_memory, true), ignored, m.stream_write);

  const auto arithmetic = [](DataType type) {
    constexpr std::size_t kEach = 8 << 10;
    const Window window(4 * kEach);
    return measure_move(window, kEach, 2, 1, type, false) / 2;
  };
  m.reduce_float32 = arithmetic(DataType::float32);
  m.reduce_float16 = std::max(arithmetic(DataType::bfloat16), arithmetic(DataType::float16));
  m.reduce_float8 = arithmetic(DataType::float8_e4m3);
  m.reduce_other = std::max(arithmetic(DataType::int32), arithmetic(DataType::int8));

  Communicator comm = std::move(Communicator::create_local(1).front());
  const auto copies = [&](int steps) {
    return plan_text(Collective::all_gather, 1, 1, [&](RankPlanBuilder& b, int) {
      const std::uint32_t first = b.reserve_tmp(static_cast<std::uint32_t>(steps));
      for (int i = 0; i + 1 < steps; ++i) {
        b.lane(0).step({tmp(first + static_cast<std::uint32_t>(i))}, {in(0)}).shaped_as(in(0));
      }
      b.lane(0).step({out(0)}, {in(0)});
    });
  };
  // One lane tells the other, which does nothing but hear it.
  const auto messages = [&](int times) {
    return plan_text(Collective::all_gather, 1, 2, [&](RankPlanBuilder& b, int) {
      const std::uint32_t heard = b.reserve_tmp(1);
      for (int i = 0; i < times; ++i) {
        b.lane(0).step({to(0, 0)}, {in(0)});
        b.lane(1).step({tmp(heard)}, {from(0, 0)}).shaped_as(in(0));
      }
      b.lane(0).step({out(0)}, {in(0)});
    });
  };
  const double few = time_of_plan(comm, copies(1), Collective::all_gather);
  const double many = time_of_plan(comm, copies(1 + kRepeats), Collective::all_gather);
  m.step_ns = std::max((many - few) / kRepeats, 1.0);
  m.call_ns = std::max(few - m.step_ns, 1.0);
  const double one = time_of_plan(comm, messages(1), Collective::all_gather);
  const double more = time_of_plan(comm, messages(1 + kRepeats), Collective::all_gather);
  m.link_ns = std::max((more - one) / kRepeats / 2 - m.step_ns, 1.0);
}

// --- Two cores, and all of them ------------------------------------------------------------------

/// The time of a short call through windows, beyond the prediction without this constant.
void measure_windows(Communicator& comm, Machine& m) {
  const Window window(2 * kShort);
  const double measured = time_of_call(
      [&] { comm.all_reduce(window.at(0), window.at(kShort), kShort, DataType::uint8); }, kCalls);
  m.window_ns = 0;
  const Geometry geometry = geometry_of(Options(), 0);
  Chooser chooser(
      {m, 2, 2, links_for(geometry.shape, 2, false, false, m.l2_bytes), geometry.tile_bytes});
  for (const Prediction& c : chooser.candidates({Collective::all_reduce, kShort})) {
    if (c.algorithm->name != kWindowAlgorithm) continue;
    m.window_ns = std::max(measured - c.ns, 1.0);
  }
}

/// A send that finds a free slot, and a receive that finds its message there.
struct Transfers {
  double send = 0, receive = 0;
};

Transfers measure_transfers(Communicator& comm, std::size_t bytes) {
  std::vector<std::byte> buffer(bytes);  // no window: from those messages do not go through slots
  std::vector<double> sends, receives;
  for (int s = 0; s < 5 * kSamples; ++s) {
    const bool sender = comm.rank() == 0;
    const auto messages = [&] {
      for (int i = 0; i < kMessages; ++i) {
        if (sender) comm.send(buffer.data(), bytes, DataType::uint8, 1);
        if (!sender) comm.recv(buffer.data(), bytes, DataType::uint8, 0);
      }
    };
    comm.barrier();
    if (sender) sends.push_back(time_ns(messages) / kMessages);
    comm.barrier();  // all is in the slots now
    double received = sender ? 0 : time_ns(messages) / kMessages;
    comm.broadcast(&received, &received, sizeof received, DataType::uint8, 1);
    receives.push_back(received);
  }
  return {sends.empty() ? 0 : median(std::move(sends)), median(std::move(receives))};
}

/// Copies from the other rank's memory, which is at hand: what they take beyond reading and
/// writing.
void measure_copies(Communicator& comm, Machine& m) {
  struct {
    std::uint64_t pid, address, word;
  } theirs{static_cast<std::uint64_t>(getpid()), 0, 0x7475747469};
  std::vector<std::byte> buffer(kCopy);  // no window: those are not copied
  std::memcpy(buffer.data(), &theirs.word, sizeof theirs.word);
  theirs.address = reinterpret_cast<std::uint64_t>(buffer.data());
  comm.broadcast(&theirs, &theirs, sizeof theirs, DataType::uint8, 1);
  const auto pid = static_cast<pid_t>(theirs.pid);
  // Where the kernel does not let them, nobody asks for the constants.
  if (comm.rank() == 0 && cma_probe(pid, theirs.address, theirs.word)) {
    const auto copy = [&](std::size_t bytes) {
      return time_of([&] { cma_read(pid, buffer.data(), theirs.address, bytes); });
    };
    m.copy_ns = copy(kShort);
    const double per_kib = (copy(kCopy) - m.copy_ns) / (static_cast<double>(kCopy) / kKiB);
    m.copy_pages = std::max(per_kib - m.l2_read - m.l2_write, 1.0);
  }
  comm.barrier();
}

void measure_two_cores(Communicator& comm, Machine& m) {
  // A message to another core costs both ends a line that the other one has.
  m.link_ns = std::max(m.link_ns, measure_signal(comm, kCalls) / 2 - m.step_ns);
  m.latency_ns = std::max(measure_one_way(comm, kCalls) - 2 * m.step_ns - 2 * m.link_ns, 1.0);
  measure_copies(comm, m);

  const Transfers message = measure_transfers(comm, kMessage);
  if (comm.rank() != 0) return;
  const double overhead = m.call_ns + m.step_ns + m.link_ns;
  constexpr double kMoved = static_cast<double>(kMessage) / kKiB;
  m.slot_write = std::max((message.send - overhead) / kMoved - m.l2_read, m.l2_write);
  m.slot_read = std::max((message.receive - overhead) / kMoved - m.l2_write, m.l2_read);
}

void measure_switch(Communicator& comm, Machine& m) {
  m.switch_ns = std::max(measure_one_way(comm, kCalls) - 2 * m.step_ns - 2 * m.link_ns, 1.0);
}

void measure_bandwidth(Communicator& comm, Machine& m) {
  const double all = std::clamp(3 * m.l3_bytes, 64.0 * 1048576, 768.0 * 1048576);
  const std::size_t each = static_cast<std::size_t>(all / comm.size() / 3) / 4096 * 4096;
  const Window window(3 * each);
  void* const out = window.at(2 * each);
  const Source sources[] = {{window.at(0)}, {window.at(each)}};
  CombineOptions options;
  options.stream = true;
  std::vector<double> samples;
  for (int s = 0; s < kSamples; ++s) {
    comm.barrier();
    samples.push_back(time_ns([&] {
      combine(DataType::float32, ReduceKind::sum, {&out, 1}, sources, each / 4, options);
      comm.barrier();
    }));
  }
  m.memory_bandwidth =
      3 * static_cast<double>(each) * comm.size() / std::max(median(std::move(samples)), 1.0);
}

int usable_cores() {
  int count = 1;
  while (count < kMostJobRanks && !choose_cores(count + 1).empty()) ++count;
  return count;
}

/// Two cores of different domains; empty where there are none.
std::vector<cpu_set_t> cores_apart() {
  const CoreSet allowed = allowed_cores();
  std::vector<cpu_set_t> chosen;
  int first_domain = -1;
  for (std::size_t cpu = 0; cpu < allowed.size() && chosen.size() < 2; ++cpu) {
    const int domain = allowed[cpu] ? domain_of(CoreSet().set(cpu)) : -1;
    if (domain < 0 || domain == first_domain) continue;
    first_domain = domain;
    CPU_ZERO(&chosen.emplace_back());
    CPU_SET(cpu, &chosen.back());
  }
  return chosen.size() == 2 ? chosen : std::vector<cpu_set_t>{};
}

/// From what two ranks measured that share no cache, and two that do.
void compare_domains(const Machine& far, Machine& m) {
  m.far_latency_ns = std::max(far.latency_ns, m.latency_ns);
  m.far_data = far.slot_read + std::max(far.slot_write - m.slot_write, 0.0);
}

}  // namespace

Machine measure_machine(const Machine& known) {
  Machine m = known;
  const int cores = usable_cores();
  run_forked<Machine>({1, choose_cores(1), ""}, m,
                      [](Communicator&, Machine& result) { measure_one_core(result); });
  run_forked<Machine>({2, choose_cores(1), ""}, m, measure_switch);
  run_forked<Machine>({cores, choose_cores(cores), ""}, m, measure_bandwidth);
  if (cores >= 2) {
    run_forked<Machine>({2, choose_cores(2), ""}, m, measure_two_cores);
    run_forked<Machine>({2, choose_cores(2), kWindowAlgorithm}, m, measure_windows);
  }
  if (const std::vector<cpu_set_t> apart = cores_apart(); !apart.empty()) {
    Machine far = m;
    run_forked<Machine>({2, apart, ""}, far, measure_two_cores);
    compare_domains(far, m);
  }
  return m;
}

}  // namespace tutti
