#include "collectives/execute/host/wait.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "collectives/execute/host/placement.h"
#include "core/background.h"
#include "core/log.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Yielding costs little while others want the core; after this long nobody is about to answer.
constexpr auto kYieldFor = milliseconds(2);
constexpr auto kLookEvery = milliseconds(10);

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

std::string doing(const Operation& op, const Operation::Blocked& b) {
  return fmt::format("waiting in step {} (lane {}, tile {}) of {} for rank {} to {}", b.step,
                     b.lane, b.tile, op.binding().signature.text(), b.peer,
                     b.sending ? "take a message" : "send one");
}

/// One wait: from the moment that nothing moved until something does.
class Wait {
 public:
  explicit Wait(std::span<Job* const> pending)
      : pending_(pending), spins_(pending.front()->policy().spins) {
    for (const Job* job : pending) {
      crowded_ = crowded_ || job->policy().crowded;
      spans_hosts_ = spans_hosts_ || job->operation().spans_hosts();
      spins_ = std::min(spins_, job->policy().spins);
    }
  }

  void once() {
    if (spans_hosts_) poll_network();
    if (looks_ == 0 && crowded_ && waits_for_own_core()) looks_ = spins_;
    if (++looks_ <= spins_) {
      pause();
      // The line is ours to read until somebody fails; still, not on every look.
      if ((looks_ & 63) == 0) throw_if_failed();
      return;
    }
    throw_if_failed();
    const auto now = Clock::now();
    if (began_ == Clock::time_point{}) {
      began_ = now;
      next_look_ = now + kLookEvery;
    }
    if (now >= next_look_) {
      next_look_ = now + kLookEvery;
      inspect(now);
    }
    looks_ = crowded_ ? 0 : spins_;
    if (now - began_ < kYieldFor) {
      if (crowded_) spread_out(pending_.front()->operation().group(), now);
      sched_yield();
    } else {
      sleep();
    }
  }

 private:
  /// Whether somebody needs this core in order to go on; also tells the others who needs which.
  bool waits_for_own_core() const {
    bool wanted = false;
    for (Job* job : pending_) {
      Operation& op = job->operation();
      wanted = op.waits_for_core(publish_core(op.group())) || wanted;
    }
    return wanted;
  }

  void poll_network() {
    for (Job* job : pending_) {
      job->operation().poll();
      // Others may wait to hear that there is room again.
      if (looks_ >= spins_) job->operation().group().poll_network();
    }
  }

  void sleep() {
    std::vector<LocalGroup*> groups;
    for (const Job* job : pending_) groups.push_back(&job->operation().group());
    std::ranges::sort(groups);
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    if (spans_hosts_) return sleep_on_network(groups);
    std::vector<Bell*> bells;
    for (LocalGroup* g : groups) bells.push_back(&g->control().bell);
    sleep_unless(bells, [&] {
      return std::ranges::any_of(pending_, [](const Job* job) {
        Operation& op = job->operation();
        return op.can_advance() || op.group().failed();
      });
    });
  }

  /// Bells are not heard meanwhile.
  static void sleep_on_network(std::span<LocalGroup* const> groups) {
    const auto spans = [](LocalGroup* g) { return !g->one_host(); };
    (*std::ranges::find_if(groups, spans))->sleep_on_network(std::chrono::microseconds(500));
  }

  void throw_if_failed() {
    for (Job* job : pending_) {
      LocalGroup& group = job->operation().group();
      if (group.failed()) group.throw_failure();
    }
  }

  void inspect(Clock::time_point now) {
    for (Job* job : pending_) {
      Operation& op = job->operation();
      LocalGroup& group = op.group();
      const WaitPolicy& policy = job->policy();
      const Operation::Blocked b = op.blocked();
      if (b.peer < 0) continue;
      const std::string now_doing = doing(op, b);
      group.publish_wait(b.peer, now);
      group.ask(b.peer);
      if (must_stop()) {
        group.fail({ErrorCode::aborted, group.rank(),
                    fmt::format("rank {} exits while it is {}", group.rank(), now_doing)});
      }
      compare_with_peers(group);
      group.say_waiting(now_doing);
      group.check_peers(now_doing);
      // In this order: what a peer published before it left is there once it is seen to have left.
      if (group.has_left(b.peer) && op.blocked().peer == b.peer) {
        group.fail({ErrorCode::peer_lost, b.peer,
                    fmt::format("rank {} has left the communicator (destroyed it, or ended) while "
                                "rank {} was {}{}. "
                                "Restart the job, or go on without that rank (shrink)",
                                b.peer, group.rank(), now_doing, group.refusal_text(b.peer))});
      }
      const auto waited = now - began_;
      // Who has not looked for half of that time does not wait any more, but stands still.
      const int late = group.end_of_line(b.peer, now - waited / 2);
      group.ask(late);
      const auto report = [&] {
        std::string text = fmt::format(
            "rank {} has been {} for {:.1f} s; that rank's last finished step is {}{}{}{}",
            group.rank(), now_doing, seconds(waited), group.progress_text(b.peer),
            group.refusal_text(b.peer), group.refusal_text(group.rank()),
            group.elsewhere_text(b.peer));
        if (late != b.peer) {
          text += fmt::format(
              "; it waits too, in the end for rank {}, whose last finished step is {}{}{}", late,
              group.progress_text(late), group.refusal_text(late), group.elsewhere_text(late));
        }
        return text;
      };
      if (policy.timeout.count() > 0 && waited > policy.timeout) {
        group.fail({ErrorCode::timed_out, late,
                    fmt::format("{}: the time-out of {:.1f} s has passed (TUTTI_TIMEOUT)", report(),
                                seconds(policy.timeout))});
      } else if (!reported_ && policy.report_after.count() > 0 && waited > policy.report_after) {
        reported_ = true;
        log().warn("{}; still waiting", report());
      }
    }
    throw_if_failed();
  }

  std::span<Job* const> pending_;
  int spins_;
  bool crowded_ = false;
  bool spans_hosts_ = false;
  int looks_ = 0;
  Clock::time_point began_{};
  Clock::time_point next_look_{};
  bool reported_ = false;
};

}  // namespace

bool Job::advance() {
  while (operation_.advance()) {
    const Binding* const binding = next();
    if (binding == nullptr) return true;
    operation_.bind(*binding);
  }
  return false;
}

namespace {

// Looks without a pause: a running peer's answer to a short message is seen 7 ns sooner (of 53).
constexpr int kEagerLooks = 64;

bool answers_soon(const Job& job) {
  if (job.policy().crowded) return false;
  for (int looks = std::min(kEagerLooks, job.policy().spins); looks > 0; --looks) {
    job.operation().poll();
    if (job.operation().can_advance()) return true;
  }
  return false;
}

/// Returns when `job` can do something.
void wait_for(Job& job) {
  if (answers_soon(job)) return;
  Job* const jobs[] = {&job};
  Wait wait(jobs);
  do wait.once();
  while (!job.operation().can_advance());
}

}  // namespace

void run_to_completion(Operation& operation, const Binding& binding, const WaitPolicy& policy) {
  operation.bind(binding);
  while (!operation.advance()) {
    Job job(operation, policy);
    wait_for(job);
  }
}

void run_to_completion(std::span<Job* const> jobs) {
  if (jobs.size() == 1) {
    Job& job = *jobs.front();
    while (!job.advance()) wait_for(job);
    return;
  }
  std::vector<Job*> pending(jobs.begin(), jobs.end());
  for (;;) {
    std::erase_if(pending, [](Job* job) { return job->advance(); });
    if (pending.empty()) return;
    Wait wait(pending);
    const auto blocked = [](const Job* job) { return !job->operation().can_advance(); };
    while (std::all_of(pending.begin(), pending.end(), blocked)) wait.once();
  }
}

}  // namespace tutti
