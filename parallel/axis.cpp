#include "parallel/axis.h"

#include <utility>

namespace tutti::parallel {
namespace {

using Clock = std::chrono::steady_clock;

class FutureWork final : public Pending::Work {
 public:
  explicit FutureWork(Future future) : future_(std::move(future)) {}
  bool ready() override { return future_.ready(); }
  void wait() override { future_.wait(); }

 private:
  Future future_;
};

Call call_of(Collective collective, const void* in, void* out, std::size_t count, DataType type) {
  Call call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count;
  call.type = type;
  return call;
}

}  // namespace

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

void Pending::wait() {
  const std::unique_ptr<Work> work = std::move(work_);
  if (!work) return;
  const auto start = Clock::now();
  work->wait();
  axis_->traffic_.waited += Clock::now() - start;
}

Pending Axis::all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op) {
  Call call = call_of(Collective::all_reduce, in, out, count, type);
  call.op = op;
  return start(call);
}

Pending Axis::all_gather(const void* in, void* out, std::size_t count, DataType type) {
  return start(call_of(Collective::all_gather, in, out, count, type));
}

Pending Axis::reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                             ReduceOp op) {
  Call call = call_of(Collective::reduce_scatter, in, out, count, type);
  call.op = op;
  return start(call);
}

Pending Axis::broadcast(const void* in, void* out, std::size_t count, DataType type, int root) {
  Call call = call_of(Collective::broadcast, in, out, count, type);
  call.root = root;
  return start(call);
}

Pending Axis::all_to_all(const void* in, void* out, std::size_t count, DataType type) {
  return start(call_of(Collective::all_to_all, in, out, count, type));
}

Pending Axis::send(const void* in, std::size_t count, DataType type, int peer) {
  Call call = call_of(Collective::send_recv, in, nullptr, count, type);
  call.peer = peer;
  call.sends = true;
  return start(call);
}

Pending Axis::recv(void* out, std::size_t count, DataType type, int peer) {
  Call call = call_of(Collective::send_recv, nullptr, out, count, type);
  call.peer = peer;
  return start(call);
}

Pending Axis::start(const Call& call) {
  std::unique_ptr<Pending::Work> work = begin(call);
  count(call);
  return {*this, std::move(work)};
}

void Axis::count(const Call& call) {
  const std::uint64_t bytes = call.count * size_of(call.type);
  const auto ranks = static_cast<std::uint64_t>(size_), others = ranks - 1;
  Traffic::Count& c = traffic_[call.collective];
  ++c.calls;
  switch (call.collective) {
    case Collective::all_reduce: {
      // Exact where the ranks divide the bytes.
      const std::uint64_t all = 2 * others * bytes;
      c.sent += all / ranks;
      c.received += all / ranks;
      break;
    }
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      c.sent += others * bytes;
      c.received += others * bytes;
      break;
    case Collective::broadcast:
      if (ranks > 1) (call.root == rank_ ? c.sent : c.received) += bytes;
      break;
    case Collective::send_recv:
      (call.sends ? c.sent : c.received) += bytes;
      break;
    default:
      break;  // counted as a call
  }
}

std::unique_ptr<Pending::Work> CommunicatorAxis::begin(const Call& call) {
  return std::make_unique<FutureWork>(comm_.start(call));
}

}  // namespace tutti::parallel
