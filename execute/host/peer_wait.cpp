#include "execute/host/peer_wait.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "core/background.h"
#include "core/log.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using Time = Standstill::Time;

// How often a rank that waits looks around at first. Later less often: with many ranks on a few
// cores, looking would take the time that the others need. (What a rank says of its waits counts
// for 250 ms, Diagnostics::say_waiting().)
constexpr auto kLookEvery = milliseconds(10);
// A rank asks peers on other hosts what they do: so often in the time that it has waited so far. An
// answer counts as news for as long as the asker has waited.
constexpr int kQuestions = 4;
constexpr auto kQuestionEvery = milliseconds(1000);  // at least
// What makes a rank of another host leave may reach this rank a moment after the news that it has
// left, by another way. What a rank had sent before it left may end other operations than the one
// that still waits for it.
constexpr auto kNews = milliseconds(300);

std::string duration_text(std::chrono::nanoseconds d) {
  const double seconds = std::chrono::duration<double>(d).count();
  return seconds < 0.1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

/// The text of a report.
std::string report(RankGroup& group, const Awaited& a, const std::string& doing, int late,
                   Time::duration waited) {
  const auto newest = [&](int rank) {
    if (a.calls == CallsOn::gpu) {
      return "newest collective on GPU memory is " + newest_text(group.control(rank), a.calls);
    }
    const std::string progress = group.diagnostics().progress_text(rank);
    return progress == Diagnostics::kNoProgress ? "first collective here is still to come"
                                                : "last finished step is " + progress;
  };
  std::string text = fmt::format("rank {} has ", group.rank());
  text += a.where.empty()
              ? fmt::format("waited {} for rank {} to {}", duration_text(waited), a.peer, a.what)
              : fmt::format("been {} for {}", doing, duration_text(waited));
  text +=
      fmt::format("; that rank's {}{}{}", newest(a.peer), group.diagnostics().refusal_text(a.peer),
                  group.diagnostics().refusal_text(group.rank()));
  if (late != a.peer) {
    text += fmt::format("; it waits too, in the end for rank {}, whose {}{}", late, newest(late),
                        group.diagnostics().refusal_text(late));
  }
  return text + group.diagnostics().waiting_text(late);
}

}  // namespace

bool Standstill::is_due(Time now, std::chrono::nanoseconds timeout, int seldom) {
  if (began == Time{}) {
    began = now;
    next_look = now + kLookEvery * seldom;
  }
  if (now < next_look) return false;
  // A process that was stopped itself has not waited meanwhile: it first hears what the others say,
  // and blames nobody. Once, as a core that is hardly ever ours must not put the time-out off for
  // ever.
  const auto away = now - next_look;
  if (timeout.count() > 0 && away >= timeout / 2 && !excused) {
    excused = true;
    began += away;
  }
  next_look =
      now + seldom * std::clamp<Time::duration>((now - began) / 8, kLookEvery, kLateLookEvery);
  return true;
}

void look_around(RankGroup& group, const Awaited& a, Standstill& still, const WaitPolicy& policy,
                 std::chrono::nanoseconds timeout, Time now) {
  const std::string doing = fmt::format("waiting {}{}for rank {} to {}", a.where,
                                        a.where.empty() ? "" : " ", a.peer, a.what);
  group.diagnostics().publish_wait(a.peer, now);
  group.diagnostics().show_wait(a.peer, a.call.empty() ? a.what : a.call, a.started, still.began,
                                now);
  const auto waited = now - still.began;
  if (now >= still.next_question) {
    still.next_question = now + std::min<Time::duration>(waited / kQuestions, kQuestionEvery);
    group.diagnostics().ask(a.peer);
  }
  if (must_stop()) {
    group.liveness().fail(
        {ErrorCode::aborted, group.rank(),
         fmt::format("rank {} exits, or was interrupted, while it is {}", group.rank(), doing)});
  }
  compare_with_peers(group, a.calls);
  group.diagnostics().say_waiting(doing);
  group.liveness().check_peers(doing);
  // In this order: what a peer published before it left is there once it is seen to have left.
  const bool left = group.liveness().has_left(a.peer);
  if (!left || still.left == Time{}) still.left = left ? now : Time{};
  // The failure ends this rank's other operations, too. They get a moment to take what has come.
  const bool settled = (group.one_host() && a.alone) || now - still.left >= kNews;
  if (left && settled && a.still()) {
    group.liveness().fail(
        {ErrorCode::peer_lost, a.peer,
         fmt::format("rank {} has left the communicator (destroyed it, or ended) while "
                     "rank {} was {}{}. "
                     "Restart the job, or go on without that rank (shrink)",
                     a.peer, group.rank(), doing, group.diagnostics().refusal_text(a.peer))});
  }
  // A rank that has not looked around for half of that time does not wait any more: it stands
  // still.
  // All may wait for one rank, so it is asked only where this rank is about to name it.
  const auto late = [&] { return group.diagnostics().asked_end_of_line(a.peer, now - waited / 2); };
  if (timeout.count() > 0 && waited > timeout) {
    const int culprit = late();
    group.liveness().fail(
        {ErrorCode::timed_out, culprit,
         fmt::format("{}: the timeout of {} has passed{}", report(group, a, doing, culprit, waited),
                     duration_text(timeout),
                     timeout == policy.timeout ? " (Options::timeout, TUTTI_TIMEOUT)" : "")});
  } else if (!still.reported && policy.report_after.count() > 0 && waited > policy.report_after) {
    still.reported = true;
    log().warn("{}; still waiting", report(group, a, doing, late(), waited));
  }
  group.liveness().throw_if_failed();
}

void PeerWait::pause(int rank, const std::function<bool()>& still) {
  const auto now = Time::clock::now();
  if (standstill_.is_due(now, policy_.timeout)) {
    look_around(group_, {rank, what_, {}, {}, still, CallsOn::gpu}, standstill_, policy_,
                policy_.timeout, now);
  }
  // The others answer at once if they are there; else nothing is lost by sleeping.
  constexpr std::uint32_t kYields = 100;
  if (++pauses_ < kYields) {
    sched_yield();
  } else {
    pause_in_wait(standstill_.began);
  }
}

}  // namespace tutti
