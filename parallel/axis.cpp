#include "parallel/axis.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "core/compressed.h"
#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

class FutureWork final : public Pending::Work {
 public:
  explicit FutureWork(Future future) : future_(std::move(future)) {}
  bool ready() override { return future_.ready(); }
  void wait() override { future_.wait(); }
  bool on_ready(const std::function<void()>& callback) override {
    future_.on_ready(callback);
    return true;
  }

 private:
  Future future_;
};

/// On a GPU.
class EventWork final : public Pending::Work {
 public:
  EventWork(Device& device, Device::Event event) : device_(device), event_(std::move(event)) {}
  bool ready() override { return device_.is_over(event_); }
  void wait() override { device_.order(event_, device_.current()); }

 private:
  Device& device_;
  const Device::Event event_;
};

Call message_of(const void* in, void* out, std::size_t count, DataType type, int peer,
                std::uint16_t label) {
  Call call = call_of(Collective::send_recv, in, out, count, type);
  call.peer = peer;
  call.label = label;
  return call;
}

/// There the result would come when the group ends, perhaps to memory that is gone by then.
void check_no_group(const Call& call) {
  if (!inside_group()) return;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{} of an engine inside of a group(): the engine needs the result "
                          "before the group ends",
                          name(call.collective)));
}

/// What the trace says of an operation.
std::string describe(const Call& call, std::string_view label) {
  const std::string what =
      fmt::format("{} {} B", name(call.collective), call.count * size_of(call.type));
  return label.empty() ? what : fmt::format("{}: {}", label, what);
}

}  // namespace

Call call_of(Collective collective, const void* in, void* out, std::size_t count, DataType type,
             ReduceOp op) {
  Call call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.type = type;
  call.op = op;
  return call;
}

Traffic::Count& Traffic::Count::operator+=(const Count& other) {
  calls += other.calls;
  sent += other.sent;
  received += other.received;
  return *this;
}

Traffic::Count Traffic::total() const {
  Count all;
  for (const Count& c : of) all += c;
  return all;
}

Traffic::Count traffic_of(const Call& call, int rank, int size) {
  const std::uint64_t element = size_of(call.type);
  const std::uint64_t bytes =
      call.compressed ? compressed_bytes(call.type, call.count) : call.count * element;
  const auto ranks = static_cast<std::uint64_t>(size), others = ranks - 1;
  const bool root = call.root == rank;
  // Of v-variants: all blocks but the rank's own.
  const auto but_own = [&](std::span<const std::size_t> counts) {
    if (counts.empty()) return std::uint64_t{0};
    const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    return (all - counts[static_cast<std::size_t>(rank)]) * element;
  };
  const auto own = [&](std::span<const std::size_t> counts) {
    return counts.empty() ? 0 : counts[static_cast<std::size_t>(rank)] * element;
  };
  switch (call.collective) {
    case Collective::all_reduce:
      return {1, 2 * others * bytes / ranks, 2 * others * bytes / ranks};
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return {1, others * bytes, others * bytes};
    case Collective::broadcast:
      return {1, root && ranks > 1 ? bytes : 0, root ? 0 : bytes};
    case Collective::reduce:
      return {1, root ? 0 : bytes, root && ranks > 1 ? bytes : 0};
    case Collective::gather:
      return {1, root ? 0 : bytes, root ? others * bytes : 0};
    case Collective::scatter:
      return {1, root ? others * bytes : 0, root ? 0 : bytes};
    case Collective::all_gather_v:
      return {1, others * own(call.out_counts), but_own(call.out_counts)};
    case Collective::reduce_scatter_v:
      return {1, but_own(call.in_counts), others * own(call.in_counts)};
    case Collective::all_to_all_v:
      return {1, but_own(call.in_counts), but_own(call.out_counts)};
    case Collective::send_recv:
      return {1, call.sends ? bytes : 0, call.sends ? 0 : bytes};
    case Collective::barrier:
      break;
  }
  return {1, 0, 0};
}

bool Pending::Work::on_ready(const std::function<void()>&) { return false; }

class Axis::Wait {
 public:
  explicit Wait(Axis& axis) : axis_(axis) {}
  ~Wait() { axis_.traffic_.waited += Clock::now() - from_; }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  Clock::time_point from() const { return from_; }

 private:
  Axis& axis_;
  const Clock::time_point from_ = Clock::now();
};

int Axis::world_rank(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return rank < 0 || r >= name_.ranks.size() ? rank : name_.ranks[r];
}

template <class Body>
auto Axis::named(const Body& body) const {
  constexpr std::size_t kListed = 16;
  try {
    return body();
  } catch (const Error& e) {
    if (name_.name.empty()) throw;
    const auto& ranks = name_.ranks;
    const auto listed = static_cast<std::ptrdiff_t>(std::min(ranks.size(), kListed));
    const std::string members =
        ranks.empty()
            ? ""
            : fmt::format(" (ranks {}{})", fmt::join(ranks.begin(), ranks.begin() + listed, ", "),
                          ranks.size() > kListed ? " ..." : "");
    throw Error(e.code(), fmt::format("on axis {}{}: {}", name_.name, members, e.what()),
                world_rank(e.rank()));
  }
}

void Pending::wait() {
  const std::unique_ptr<Work> work = std::move(work_);
  if (!work) return;
  const Axis::Wait wait(*axis_);
  axis_->named([&] { work->wait(); });
  if (axis_->trace_) {
    axis_->trace_->span(axis_->track_ + " waits", label_, wait.from(), Trace::Clock::now());
  }
}

bool Pending::on_ready(const std::function<void()>& callback) {
  if (work_) return work_->on_ready(callback);
  callback();
  return true;
}

std::uint16_t label_of(std::uint16_t label, std::uint64_t number) {
  constexpr std::uint64_t kLabels = 2047;  // that Call::label has, without 0
  return static_cast<std::uint16_t>(1 + mix(label, number) % kLabels);
}

std::uint16_t Axis::new_label(std::string_view what) { return label_of(0, mix(++engines_, what)); }

void or_abort(std::initializer_list<Axis*> axes, std::string_view what,
              const std::function<void()>& body) {
  const auto give_up = [&](std::string_view why) {
    for (Axis* axis : axes) {
      if (axis == nullptr || axis->size() == 1) continue;
      axis->abort(
          fmt::format("rank {} failed in {}: {}", axis->world_rank(axis->rank()), what, why));
    }
  };
  try {
    body();
  } catch (const std::exception& e) {
    give_up(e.what());
    throw;
  } catch (...) {
    give_up("what was thrown is no std::exception");
    throw;
  }
}

Pending Axis::all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op) {
  return start(call_of(Collective::all_reduce, in, out, count, type, op));
}

Pending Axis::all_gather(const void* in, void* out, std::size_t count, DataType type) {
  return start(call_of(Collective::all_gather, in, out, count, type));
}

Pending Axis::reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                             ReduceOp op) {
  return start(call_of(Collective::reduce_scatter, in, out, count, type, op));
}

Pending Axis::broadcast(const void* in, void* out, std::size_t count, DataType type, int root) {
  Call call = call_of(Collective::broadcast, in, out, count, type);
  call.root = root;
  return start(call);
}

Pending Axis::all_to_all(const void* in, void* out, std::size_t count, DataType type) {
  return start(call_of(Collective::all_to_all, in, out, count, type));
}

Pending Axis::send(const void* in, std::size_t count, DataType type, int peer,
                   std::uint16_t label) {
  Call call = message_of(in, nullptr, count, type, peer, label);
  call.sends = true;
  return start(call);
}

Pending Axis::recv(void* out, std::size_t count, DataType type, int peer, std::uint16_t label) {
  return start(message_of(nullptr, out, count, type, peer, label));
}

Pending Axis::start(const Call& call, std::string_view label) {
  if (!trace_) {
    std::unique_ptr<Pending::Work> work = named([&] { return begin_anywhere(call); });
    count(call);
    return {*this, std::move(work)};
  }
  std::string what = describe(call, label);
  const auto from = Trace::Clock::now();
  std::unique_ptr<Pending::Work> work = named([&] { return begin_anywhere(call); });
  count(call);
  const auto record = [trace = trace_, track = track_, what, from] {
    trace->flight(track, what, from, Trace::Clock::now());
  };
  if (!work) record();
  if (work && !work->on_ready(record)) trace_->instant(track_, what + " starts", from);
  return {*this, std::move(work), std::move(what)};
}

void Axis::run(const Call& call, std::string_view label) {
  check_no_group(call);
  const Wait wait(*this);
  named([&] { is_on_gpu(call) ? begin_on_gpu(call)->wait() : run_now(call); });
  count(call);
  if (!trace_) return;
  const auto to = Trace::Clock::now();
  const std::string what = describe(call, label);
  trace_->flight(track_, what, wait.from(), to);
  trace_->span(track_ + " waits", what, wait.from(), to);
}

void Axis::check_failure() const {
  named([&] { throw_failure(); });
}

void Axis::run_now(const Call& call) {
  if (const auto work = begin(call)) work->wait();
}

void Axis::use(Device& device) {
  device_ = &device;
  streams_ = device.is_gpu() ? shared_streams() : nullptr;
}

bool Axis::is_on_gpu(const Call& call) const {
  // Without data there is perhaps no memory to tell it, or at one end alone.
  if (call.collective == Collective::send_recv && call.count == 0) return device_->is_gpu();
  return device_->owns(call.in) || device_->owns(call.out);
}

Device::Stream Axis::stream_of(const Call& call) {
  const bool is_message = call.collective == Collective::send_recv;
  auto& stream = (*streams_)[is_message ? std::pair{call.peer, call.sends} : std::pair{-1, false}];
  if (stream == nullptr) stream = device_->make_stream();
  return stream.get();
}

std::unique_ptr<Pending::Work> Axis::begin_on_gpu(const Call& call) {
  check_no_group(call);
  const Device::Stream stream = stream_of(call);
  device_->order(device_->record(device_->current()), stream);
  enqueue(call, stream);
  return std::make_unique<EventWork>(*device_, device_->record(stream));
}

void Axis::enqueue(const Call&, Device::Stream) {
  throw Error(ErrorCode::invalid_usage, "this axis carries calls on host memory alone");
}

void Axis::trace(std::shared_ptr<Trace> trace, std::string track) {
  trace_ = std::move(trace);
  track_ = std::move(track);
}

void Axis::count(const Call& call) { traffic_[call.collective] += traffic_of(call, rank_, size_); }

std::unique_ptr<Pending::Work> CommunicatorAxis::begin(const Call& call) {
  return std::make_unique<FutureWork>(comm_.start(call));
}

// The kernels of a communicator go on where the last one has ended, so there is one order of its
// collectives, and of its messages to a peer, whichever axis they come from.
std::shared_ptr<Axis::Streams> CommunicatorAxis::shared_streams() {
  static std::mutex mutex;
  static std::map<const Communicator::Impl*, std::weak_ptr<Streams>> of_communicators;
  const std::lock_guard lock(mutex);
  std::erase_if(of_communicators, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<Streams>& known = of_communicators[&comm_.impl()];
  std::shared_ptr<Streams> streams = known.lock();
  if (streams == nullptr) known = streams = std::make_shared<Streams>();
  return streams;
}

void CommunicatorAxis::throw_failure() const {
  if (const std::optional<Error> error = comm_.error()) throw *error;
}

}  // namespace tutti::parallel
