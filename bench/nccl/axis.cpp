// Lanes: a communicator each, and a thread that makes its calls; see axis.h.
#include "bench/nccl/axis.h"

#include <fmt/format.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/call.h"
#include "core/error.h"

namespace tutti::bench {

namespace {

constexpr std::array kCollectives{Collective::all_reduce,     Collective::all_gather,
                                  Collective::reduce_scatter, Collective::broadcast,
                                  Collective::all_to_all,     Collective::send_recv};

/// As its lane counts ranks: of a message's two, the sender is the first.
Call in_lane(Call call) {
  if (call.collective == Collective::send_recv) call.peer = call.sends ? 1 : 0;
  return call;
}

/// Of a call that a lane's thread makes.
class Started final : public parallel::Pending::Work {
 public:
  struct State {
    explicit State(const Call& what) : kept(what) {}
    const KeptCall kept;
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::exception_ptr error;
    std::vector<std::function<void()>> callbacks;
  };
  explicit Started(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool ready() override {
    const std::lock_guard lock(state_->mutex);
    return state_->over;
  }
  void wait() override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->over; });
    if (state_->error) std::rethrow_exception(state_->error);
  }
  bool on_ready(const std::function<void()>& callback) override {
    {
      const std::lock_guard lock(state_->mutex);
      if (!state_->over) {
        state_->callbacks.push_back(callback);
        return true;
      }
    }
    callback();
    return true;
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace

std::span<const Collective> nccl_axis_collectives() { return kCollectives; }

class NcclAxis::Lane {
 public:
  Lane(const NcclFunctions& functions, const ncclUniqueId& id, int rank, int size)
      : nccl_(functions), comm_(functions, join(functions, id, rank, size), nullptr) {
    thread_ = std::thread([this] { work(); });
  }
  ~Lane() {
    const bool fails = std::uncaught_exceptions() > 0;  // the other ranks may not come
    if (fails) nccl_.comm_abort(comm_.get());
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      if (fails) queue_.clear();
    }
    changed_.notify_all();
    thread_.join();
    if (fails) return;
    comm_.clear();
    nccl_.comm_destroy(comm_.get());
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  std::unique_ptr<parallel::Pending::Work> start(const Call& call) {
    auto state = std::make_shared<Started::State>(call);
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(state);
    }
    changed_.notify_all();
    return std::make_unique<Started>(std::move(state));
  }

  /// On this thread, where nothing is before it.
  void run(const Call& call) {
    std::unique_lock lock(mutex_);
    if (queue_.empty()) return make(call);
    lock.unlock();
    start(call)->wait();
  }

 private:
  static ncclComm_t join(const NcclFunctions& functions, const ncclUniqueId& id, int rank,
                         int size) {
    ncclComm_t comm = nullptr;
    functions.check(functions.comm_init_rank(&comm, size, id, rank), "ncclCommInitRank");
    return comm;
  }

  void make(const Call& call) {
    if (call.collective != Collective::barrier) return comm_.run(call);
    Call all{.collective = Collective::all_reduce, .in = &token_, .out = &token_, .count = 1};
    comm_.run(all);
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::shared_ptr<Started::State> next = queue_.front();
      lock.unlock();
      std::exception_ptr error;
      try {
        make(next->kept.call());
      } catch (...) {
        error = std::current_exception();
      }
      std::vector<std::function<void()>> callbacks;
      {
        const std::lock_guard state_lock(next->mutex);
        next->over = true;
        next->error = error;
        callbacks.swap(next->callbacks);
      }
      next->changed.notify_all();
      for (const auto& callback : callbacks) callback();
      lock.lock();
      if (!queue_.empty()) queue_.pop_front();
    }
  }

  const NcclFunctions& nccl_;
  NcclCommunicator comm_;
  std::uint8_t token_ = 0;  // of barriers
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Started::State>> queue_;  // the first is under way
  bool ends_ = false;
  std::thread thread_;
};

NcclAxis::NcclAxis(const NcclFunctions& functions, parallel::Axis& meeting, Messages messages)
    : Axis(meeting.rank(), meeting.size(), meeting.axis_name()) {
  // Each rank has an id for what begins with it: the collectives (the first rank's), and the
  // messages to the ranks behind and before it.
  constexpr std::size_t kIds = 3;
  struct Ids {
    std::array<ncclUniqueId, kIds> of;
  };
  Ids mine{};
  for (ncclUniqueId& id : mine.of) functions.check(functions.get_unique_id(&id), "ncclGetUniqueId");
  std::vector<Ids> all(static_cast<std::size_t>(size()));
  meeting.all_gather(&mine, all.data(), sizeof mine, DataType::uint8).wait();
  lanes_[{-1, -1}] = std::make_unique<Lane>(functions, all.front().of[0], rank(), size());
  if (messages == Messages::none || size() == 1) return;
  // One after the other, in the same order everywhere: a rank waits for the other of its two.
  for (int from = 0; from < size(); ++from) {
    for (const int step : {1, -1}) {
      const int to = (from + step + size()) % size();
      if ((from != rank() && to != rank()) || lanes_.contains({from, to})) continue;
      const ncclUniqueId& id = all[static_cast<std::size_t>(from)].of[step == 1 ? 1 : 2];
      lanes_[{from, to}] = std::make_unique<Lane>(functions, id, from == rank() ? 0 : 1, 2);
    }
  }
}

NcclAxis::~NcclAxis() = default;

NcclAxis::Lane& NcclAxis::lane(const Call& call) {
  Way way{-1, -1};
  if (call.collective == Collective::send_recv) {
    way = call.sends ? Way{rank(), call.peer} : Way{call.peer, rank()};
  }
  const auto found = lanes_.find(way);
  if (found != lanes_.end()) return *found->second;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("this axis over NCCL carries no messages from rank {} to rank {}: only "
                          "neighbours' where they were asked for",
                          way.first, way.second));
}

std::unique_ptr<parallel::Pending::Work> NcclAxis::begin(const Call& call) {
  return lane(call).start(in_lane(call));
}

void NcclAxis::run_now(const Call& call) { lane(call).run(in_lane(call)); }

}  // namespace tutti::bench
