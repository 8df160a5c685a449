#include "collectives/execute/host/wait.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "collectives/execute/host/placement.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Yielding costs little while others want the core; after this long no answer is near. With many
// ranks a core, ranks that yield are in the way of ranks that could go on.
constexpr auto kYieldFor = milliseconds(2);
constexpr int kYieldingRanks = 8;  // of a core; with more, each does for a shorter time
// The more threads wait, the less often each looks around.
constexpr int kLookingThreads = 16;  // of a core
constexpr int kMostCrowd = 4;        // so many times less often
// While ranks of this host may send something: they cannot wake a thread that sleeps on the
// network.
constexpr auto kShortSleep = std::chrono::microseconds(500);
// While the network may have to be asked for what comes.
constexpr auto kLongSleep = milliseconds(10);
// While the reactor listens to the network.
constexpr Clock::duration kLongestSleep = kLateLookEvery;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Threads of this process that wait for other hosts. When they are more than the cores, a thread
/// that looks again and again takes the time of threads that have something to do, such as the
/// network's.
std::atomic<int> waiting_for_hosts{0};

int cores() {
  static const int cores = std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
  return cores;
}

bool outnumber_cores() { return waiting_for_hosts.load(std::memory_order_relaxed) > cores(); }

/// How many times less often than a few threads would, each looks.
int crowd() {
  const int of_a_core = waiting_for_hosts.load(std::memory_order_relaxed) / cores();
  return std::clamp(of_a_core / kLookingThreads, 1, kMostCrowd);
}

/// One wait: from the moment that nothing moved until something does, `source` has more, or
/// `wanted` is not 0.
class Wait {
 public:
  explicit Wait(std::span<Job* const> pending, const JobSource* source = nullptr,
                const std::atomic<int>* wanted = nullptr)
      : pending_(pending),
        source_(source),
        wanted_(wanted),
        concerned_(pending.front()),
        spins_(pending.front()->policy().spins) {
    for (const Job* job : pending) {
      crowded_ = crowded_ || job->policy().crowded;
      spans_hosts_ = spans_hosts_ || job->operation().spans_hosts();
      spins_ = std::min(spins_, job->policy().spins);
      ranks_of_a_core_ = std::max(ranks_of_a_core_, job->policy().ranks_of_a_core);
      yields_for_ = std::min<Clock::duration>(
          yields_for_,
          kYieldFor * kYieldingRanks / std::max(job->policy().ranks_of_a_core, kYieldingRanks));
    }
    if (spans_hosts_) waiting_for_hosts.fetch_add(1, std::memory_order_relaxed);
  }
  ~Wait() {
    if (spans_hosts_) waiting_for_hosts.fetch_sub(1, std::memory_order_relaxed);
    if (newest_ != began_ && is_callers()) end();
  }
  // Ranks of a core: for so many, a rank sleeps a millisecond more before it looks.
  static constexpr int kCrowdOfASleep = 16, kMostRanksOfACore = 512;

  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  void once() {
    if (spans_hosts_ && !left_to_reactor_) poll_network();
    const bool must_not_look = spans_hosts_ && outnumber_cores();
    if (must_not_look) looks_ = spins_;
    if (looks_ == 0 && crowded_ && waits_for_own_core()) looks_ = spins_;
    if (++looks_ <= spins_) {
      pause();
      // The line stays in this core's cache until a rank fails; still, not on every look.
      if ((looks_ & 63) == 0) throw_if_failed();
      return;
    }
    throw_if_failed();
    lets_go_ = is_wanted();
    const auto now = Clock::now();
    if (began_ == Clock::time_point{}) began_ = now;
    newest_ = now;
    look_after(now);
    looks_ = crowded_ ? 0 : spins_;
    if (now - began_ < yields_for_ && !must_not_look) {
      if (crowded_) {
        RankGroup& group = pending_.front()->operation().group();
        spread_out(group, group.blocks(), now);
      }
      sched_yield();
    } else {
      sleep(now);
    }
  }

  bool is_over() {
    if (source_ != nullptr && source_->has_more()) return true;
    return std::ranges::any_of(pending_, [this](Job* job) {
      concerned_ = job;
      return job->operation().can_advance();
    });
  }

  /// Whether `wanted` was so when this thread last had time to look.
  bool lets_go() const { return lets_go_; }

  /// What is done now and then for each job that does not move, whether others do or not.
  void look_after(Clock::time_point now) {
    for (Job* job : pending_) {
      if (job->standstill().is_due(now, timeout_of(*job), seldom(timeout_of(*job))))
        inspect(*job, now);
    }
  }

  /// The job that the functions above were busy with when they threw.
  Job& concerned() const { return *concerned_; }

 private:
  bool is_callers() const { return source_ == nullptr || source_->is_callers(); }

  /// Says that the caller waits no more, and for how long it has: to the newest look, as one more
  /// would cost short waits more than its news is worth.
  void end() const {
    RankGroup& group = concerned_->operation().group();
    const auto waited = std::chrono::nanoseconds(newest_ - began_).count();
    group.control().callers.ns.fetch_add(static_cast<std::uint64_t>(waited),
                                         std::memory_order_relaxed);
    for (Job* job : pending_) {
      if (job->standstill().began != Clock::time_point{}) {
        job->operation().group().diagnostics().end_wait(job->standstill().began);
      }
    }
  }

  /// Whether a rank that a job waits for may need this core to go on; also tells the others which
  /// core this rank is on.
  bool waits_for_own_core() const {
    bool wanted = false;
    for (Job* job : pending_) {
      Operation& op = job->operation();
      wanted = op.waits_for_core(publish_core(op.group().control())) || wanted;
    }
    return wanted;
  }

  int crowds_of_a_core() const {
    return std::min(ranks_of_a_core_, kMostRanksOfACore) / kCrowdOfASleep;
  }
  /// How many times less often than a few threads would, this one looks around; not so seldom that
  /// it would be late for the time-out.
  int seldom(std::chrono::nanoseconds timeout) const {
    constexpr int kLooksBefore = 8;
    const int most = timeout.count() > 0
                         ? static_cast<int>(std::clamp<std::int64_t>(
                               timeout / kLateLookEvery / kLooksBefore, 1, kMostRanksOfACore))
                         : kMostRanksOfACore;
    return std::max(crowd(), std::min(crowds_of_a_core(), most));
  }

  void poll_network() {
    for (Job* job : pending_) {
      job->operation().poll();
      // Others may wait to hear that there is room again.
      if (looks_ >= spins_) job->operation().group().poll_network();
    }
  }

  void sleep(Clock::time_point now) {
    std::vector<RankGroup*> groups;
    for (const Job* job : pending_) groups.push_back(&job->operation().group());
    std::ranges::sort(groups);
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    left_to_reactor_ = spans_hosts_ && leave_to_reactor(groups, now);
    if (spans_hosts_ && !left_to_reactor_) return sleep_on_network(groups, now);
    std::vector<Doorbell*> doorbells;
    for (RankGroup* g : groups) doorbells.push_back(&g->control().doorbell);
    // In a crowd, ranks that look every millisecond whether there is something for them take the
    // time of those that have something to do. Where nobody has rung, there hardly is.
    Clock::duration most = milliseconds(1 + crowds_of_a_core());
    // Of several hosts, some may share the cores with this one.
    if (left_to_reactor_) most = std::max(most, std::min((now - began_) / 8, kLongestSleep));
    sleep_unless(
        doorbells, [&] { return is_over() || is_wanted() || has_failed(); }, most);
  }

  /// A rank of this host that rings wakes no thread that sleeps on the network. So a thread that
  /// has waited for long sleeps on its doorbells, which the reactor rings when something has come.
  bool leave_to_reactor(std::span<RankGroup* const> groups, Clock::time_point now) const {
    if (now - began_ < kLongSleep) return false;
    if (std::ranges::all_of(groups, [](RankGroup* g) { return g->ranks_here().size() == 1; })) {
      return false;
    }
    return std::ranges::all_of(
        groups, [](RankGroup* g) { return g->one_host() || g->network()->leave_to_reactor(); });
  }

  bool is_wanted() const {
    return wanted_ != nullptr && wanted_->load(std::memory_order_relaxed) > 0;
  }

  bool has_failed() const {
    return std::ranges::any_of(
        pending_, [](const Job* job) { return job->operation().group().liveness().failed(); });
  }

  /// Meanwhile the thread hears no doorbell that a rank of this host rings. Where no rank would
  /// ring one, a thread that has waited for long sleeps for long: on a host with more ranks than
  /// cores, constant looks keep other ranks from their work.
  void sleep_on_network(std::span<RankGroup* const> groups, Clock::time_point now) {
    const auto spans = [](RankGroup* g) { return !g->one_host(); };
    Network& network = *(*std::ranges::find_if(groups, spans))->network();
    const auto alone = [&](RankGroup* g) {
      return g->ranks_here().size() == 1 && g->network() == &network;
    };
    Clock::duration most = kShortSleep;
    if (source_ == nullptr && std::ranges::all_of(groups, alone)) {
      most = std::clamp<Clock::duration>((now - began_) / 8, kShortSleep, kLongSleep);
      if (network.hears_all()) {
        most = crowd() * kLateLookEvery;
        for (Job* job : pending_) most = std::min(most, job->standstill().next_look - now);
      }
    }
    network.sleep(std::max<Clock::duration>(most, std::chrono::microseconds(50)),
                  [&] { return is_over() || is_wanted() || has_failed(); });
  }

  void throw_if_failed() {
    for (Job* job : pending_) {
      concerned_ = job;
      job->operation().group().liveness().throw_if_failed();
    }
  }

  static std::chrono::nanoseconds timeout_of(const Job& job) {
    const std::chrono::nanoseconds own = job.operation().binding().timeout;
    return own.count() > 0 ? own : job.policy().timeout;
  }

  void inspect(Job& job, Clock::time_point now) {
    concerned_ = &job;
    Operation& op = job.operation();
    const Operation::Blocked b = op.blocked();
    if (b.peer < 0) return;
    Awaited awaited{b.peer, b.sending ? "take a message" : "send one"};
    if (const Condition* const condition = op.binding().condition) {
      awaited.what = condition->what();
      awaited.where = condition->where();
      awaited.call = awaited.where.starts_with("in ") ? awaited.where.substr(3) : awaited.where;
    } else {
      awaited.where = fmt::format("in step {} (lane {}, tile {}) of {}", b.step, b.lane, b.tile,
                                  op.binding().signature.text());
      awaited.call = op.call_text();
    }
    awaited.started = !is_callers();
    awaited.still = [&] { return op.blocked().peer == b.peer; };
    awaited.alone = std::ranges::none_of(pending_, [&](const Job* other) {
      return other != &job && &other->operation().group() == &op.group();
    });
    look_around(op.group(), awaited, job.standstill(), job.policy(), timeout_of(job), now);
  }

  std::span<Job* const> pending_;
  const JobSource* source_;
  const std::atomic<int>* wanted_;
  Job* concerned_;
  int spins_;
  Clock::duration yields_for_ = kYieldFor;
  bool crowded_ = false;
  int ranks_of_a_core_ = 1;
  bool spans_hosts_ = false;
  bool left_to_reactor_ = false;  // the network is, while this thread sleeps on its doorbells
  bool lets_go_ = false;
  int looks_ = 0;
  Clock::time_point began_{}, newest_{};
};

}  // namespace

bool Job::advance() {
  while (operation_->advance()) {
    const Binding* const binding = next();
    if (binding == nullptr) return true;
    operation_->bind(*binding);
  }
  return false;
}

namespace {

// Looks without a pause: a running peer's answer to a short message is seen 7 ns sooner (of 53).
constexpr int kEagerLooks = 64;

bool answers_soon(const Job& job) {
  if (job.policy().crowded || (job.operation().spans_hosts() && outnumber_cores())) return false;
  for (int looks = std::min(kEagerLooks, job.policy().spins); looks > 0; --looks) {
    job.operation().poll();
    if (job.operation().can_advance()) return true;
  }
  return false;
}

/// Returns when `job` can do something.
void wait_for(Job& job) {
  if (answers_soon(job)) return;
  job.standstill() = {};
  Job* const jobs[] = {&job};
  Wait wait(jobs);
  do wait.once();
  while (!job.operation().can_advance());
}

/// Returns when one of `jobs` can do something, has failed (it is taken out then, and `source`
/// told), or `source` has more. `looks_after`: a job that does not move is looked after even though
/// others always move.
void wait_for_any(std::vector<Job*>& jobs, JobSource& source, bool looks_after) {
  Wait wait(jobs, &source);
  std::exception_ptr error;
  try {
    if (looks_after) wait.look_after(Clock::now());
    if (jobs.size() == 1 && answers_soon(*jobs.front())) return;
    while (!wait.is_over()) wait.once();
    return;
  } catch (...) {
    error = std::current_exception();
  }
  Job& failed = wait.concerned();
  std::erase(jobs, &failed);
  failed.operation().abandon();
  source.ended(failed, error);
}

/// Does what can be done of `job`; true when it has ended, which `source` knows then.
bool advance_or_end(Job& job, JobSource& source) {
  std::exception_ptr error;
  try {
    const bool stood = job.standstill().began != Clock::time_point{};
    if (stood && job.operation().can_advance()) {
      job.operation().group().diagnostics().end_wait(job.standstill().began);
      job.standstill() = {};
    }
    if (!job.advance()) return false;
  } catch (...) {
    error = std::current_exception();
    job.operation().abandon();
  }
  source.ended(job, error);
  return true;
}

/// Abandons what does not come to its end.
class Abandoning {
 public:
  explicit Abandoning(std::span<Job* const> jobs) : jobs_(jobs) {}
  Abandoning(const Abandoning&) = delete;
  Abandoning& operator=(const Abandoning&) = delete;
  ~Abandoning() {
    for (Job* job : jobs_) job->operation().abandon();
  }
  void all_done() { jobs_ = {}; }

 private:
  std::span<Job* const> jobs_;
};

/// The jobs of one list. The first failure is that of all of them.
class JobList final : public JobSource {
 public:
  explicit JobList(std::span<Job* const> jobs) : jobs_(jobs) {}
  bool has_more() const override { return !jobs_.empty(); }
  void take(std::vector<Job*>& pending) override {
    pending.insert(pending.end(), jobs_.begin(), jobs_.end());
    jobs_ = {};
  }
  bool is_callers() const override { return true; }
  void ended(Job&, std::exception_ptr error) override {
    if (error) std::rethrow_exception(error);
  }

 private:
  std::span<Job* const> jobs_;
};

}  // namespace

void run_to_completion(Operation& operation, const Binding& binding, const WaitPolicy& policy) {
  Job job(operation, policy);
  Job* const jobs[] = {&job};
  Abandoning abandoning(jobs);
  operation.bind(binding);
  while (!operation.advance()) wait_for(job);
  abandoning.all_done();
}

bool run_unless_wanted(Job& job, const std::atomic<int>& wanted) {
  Job* const jobs[] = {&job};
  Abandoning abandoning(jobs);
  bool let_go = false;
  while (!let_go && !job.advance()) {
    if (answers_soon(job)) continue;
    job.standstill() = {};
    Wait wait(jobs, nullptr, &wanted);
    do wait.once();
    while (!job.operation().can_advance() && !wait.lets_go());
    let_go = wait.lets_go() && !job.operation().can_advance();
  }
  abandoning.all_done();
  return !let_go;
}

void run_to_completion(std::span<Job* const> jobs) {
  Abandoning abandoning(jobs);
  if (jobs.size() == 1) {
    Job& job = *jobs.front();
    while (!job.advance()) wait_for(job);
  } else {
    JobList list(jobs);
    run_to_completion(list);
  }
  abandoning.all_done();
}

void run_to_completion(JobSource& source) {
  constexpr unsigned kPassesPerLook = 64;
  std::vector<Job*> pending;
  for (unsigned pass = 1;; ++pass) {
    if (source.has_more()) source.take(pending);
    std::erase_if(pending, [&](Job* job) { return advance_or_end(*job, source); });
    if (pending.empty()) {
      if (source.has_more()) continue;
      return;
    }
    wait_for_any(pending, source, pass % kPassesPerLook == 0);
  }
}

}  // namespace tutti
