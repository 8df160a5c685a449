#include "transport/diagnostics.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/wait.h"
#include "transport/host/control_copy.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// This process's complete communicators, by their ranks' HostPeers (threads that are ranks have
/// one each). Communicators without another rank of this process are also in `alone`.
struct Begun {
  std::mutex mutex;
  std::unordered_map<const HostPeers*, std::vector<Diagnostics*>> by_host_peers;
  std::vector<Diagnostics*> alone;
};

Begun& begun() {
  static auto* const instance = new Begun;  // never destroyed: threads may use it during exit
  [[maybe_unused]] static const bool held =
      (hold_across_fork([] { instance->mutex.lock(); }, [] { instance->mutex.unlock(); }), true);
  return *instance;
}

std::uint64_t ns_now() {
  const auto now = Clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// A rank that waits says so every 10 to 50 ms; what is older than this is over.
std::optional<Remark::Said> fresh(const Remark& remark) {
  constexpr std::uint64_t kFresh = 250'000'000;
  auto said = remark.read();
  if (said && said->number + kFresh < ns_now()) said.reset();
  return said;
}

}  // namespace

void Diagnostics::begin() {
  Begun& b = begun();
  const std::lock_guard lock(b.mutex);
  b.by_host_peers[&members_.host_peers()].push_back(this);
  if (members_.alone_in_process()) b.alone.push_back(this);
}

Diagnostics::~Diagnostics() {
  Begun& b = begun();
  const std::lock_guard lock(b.mutex);
  const auto found = b.by_host_peers.find(&members_.host_peers());
  if (found != b.by_host_peers.end()) {
    std::erase(found->second, this);
    if (found->second.empty()) b.by_host_peers.erase(found);
  }
  std::erase(b.alone, this);
}

// --- What this rank does -------------------------------------------------------------------------

void Diagnostics::publish_wait(int peer, Clock::time_point now) {
  ControlBlock& own = blocks_.own();
  own.waits_for.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_relaxed);
  own.waited_at.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

void Diagnostics::show_wait(int peer, std::string_view call, bool started, Clock::time_point since,
                            Clock::time_point now) {
  const std::int64_t began = since.time_since_epoch().count();
  auto& waits = blocks_.own().shown_waits;
  // The place of this wait; else the one that nobody has looked at for longest.
  ShownWait* place = &waits.front();
  for (ShownWait& w : waits) {
    if (w.since.load(std::memory_order_relaxed) == began) {
      place = &w;
      break;
    }
    const auto seen = [](const ShownWait& s) {
      return s.looked_at.load(std::memory_order_relaxed);
    };
    if (seen(w) < seen(*place)) place = &w;
  }
  place->peer.store(static_cast<std::uint32_t>(peer) + 1, std::memory_order_relaxed);
  place->started.store(started ? 1 : 0, std::memory_order_relaxed);
  place->call.say(static_cast<std::uint64_t>(began), call);
  place->since.store(began, std::memory_order_relaxed);
  place->looked_at.store(now.time_since_epoch().count(), std::memory_order_release);
}

void Diagnostics::end_wait(Clock::time_point since) {
  for (ShownWait& w : blocks_.own().shown_waits) {
    if (w.since.load(std::memory_order_relaxed) != since.time_since_epoch().count()) continue;
    w.since.store(0, std::memory_order_relaxed);
    w.looked_at.store(0, std::memory_order_relaxed);
  }
}

void Diagnostics::note_error(std::string_view text) { blocks_.own().error.say(ns_now(), text); }

void Diagnostics::say_waiting(std::string_view doing) {
  Begun& b = begun();
  const std::lock_guard lock(b.mutex);
  blocks_.own().waiting.say(ns_now(), doing);
  const auto tell = [&](Diagnostics* other) {
    if (other == this || other->members_.is_inherited()) return;
    other->blocks_.own().elsewhere.say(ns_now(), doing);
  };
  const auto mine = b.by_host_peers.find(&members_.host_peers());
  if (mine != b.by_host_peers.end()) std::ranges::for_each(mine->second, tell);
  if (!members_.alone_in_process()) return;
  // Other HostPeers of a process have the same rank where it is the only one.
  for (Diagnostics* other : b.alone) {
    if (&other->members_.host_peers() != &members_.host_peers()) tell(other);
  }
}

std::string Diagnostics::own_doing_text() const {
  const auto said = fresh(blocks_.own().waiting);
  return said ? " while " + said->text : "";
}

// --- What another rank does ----------------------------------------------------------------------

int Diagnostics::end_of_line(int peer, Clock::time_point recently) const {
  int at = peer;
  for (int steps = 0; steps < members_.size(); ++steps) {
    const ControlBlock& c = blocks_.of(at);
    const std::uint32_t next = c.waits_for.load(std::memory_order_relaxed);
    const auto when = c.waited_at.load(std::memory_order_relaxed);
    const bool waits = next > 0 && next <= static_cast<std::uint32_t>(members_.size());
    if (!waits || when < recently.time_since_epoch().count()) return at;
    at = static_cast<int>(next) - 1;
  }
  return peer;
}

int Diagnostics::asked_end_of_line(int peer, Clock::time_point recently) {
  // A twentieth of the time that the caller has waited, so that its time-out comes in time.
  const auto now = Clock::now();
  const Deadline deadline = now + std::clamp<Clock::duration>((now - recently) / 10, 50ms, 1s);
  for (int asked = -1;;) {
    const int end = end_of_line(peer, recently);
    if (end == asked || !is_far(end) || Clock::now() >= deadline) return end;
    refresh({&end, 1}, deadline);
    asked = end;
  }
}

std::string Diagnostics::progress_text(int peer) const {
  const ControlBlock& c = blocks_.of(peer);
  const std::uint64_t progress = c.progress.load(std::memory_order_relaxed);
  // An operation of more steps than there are bits for counts on into the next one's number, but is
  // the newest.
  const std::uint64_t operation = std::min(progress >> kStepBits, newest_sequence(c.records[0]));
  if (operation == 0) return kNoProgress;
  return fmt::format("step {} of its operation #{}", progress - progress_of(operation, 0),
                     operation);
}

std::string Diagnostics::last_progress_text(int peer) {
  if (is_far(peer)) {
    const std::lock_guard lock(mutex_);
    const auto asked = asked_.find(peer);
    if (asked == asked_.end() || Clock::now() - asked->second.answered > 1s) return "";
  }
  return " after " + progress_text(peer);
}

std::string Diagnostics::refusal_text(int peer) const {
  const ControlBlock& c = blocks_.of(peer);
  const auto refused = c.refused.read();
  if (!refused || refused->number <= newest_sequence(c.records[0])) return "";
  return fmt::format("; a call of rank {} was refused: {}", peer, refused->text);
}

std::string Diagnostics::waiting_text(int peer) const {
  std::string text;
  if (const auto here = fresh(blocks_.of(peer).waiting)) {
    text += fmt::format("; that rank is itself {}", here->text);
  }
  if (const auto elsewhere = fresh(blocks_.of(peer).elsewhere)) {
    text += fmt::format(
        "; that rank is itself waiting, in another communicator: {}. Ranks that use several "
        "communicators on one thread must use them in the same order",
        elsewhere->text);
  }
  return text;
}

// --- Ranks of other hosts ------------------------------------------------------------------------

void Diagnostics::ask(int rank) {
  constexpr auto kAskEvery = 50ms;
  if (!is_far(rank)) return;
  {
    const std::lock_guard lock(mutex_);
    Asked& asked = asked_[rank];
    const auto now = Clock::now();
    if (asked.lost || now - asked.last < kAskEvery) return;
    asked.last = now;
  }
  tree_->tell_rank(rank, kAsk, {});
}

void Diagnostics::tell(int rank) {
  if (is_far(rank)) tree_->tell_rank(rank, kStatus, control_to_bytes(blocks_.own()));
}

void Diagnostics::refresh(int rank) { refresh({&rank, 1}, Clock::now() + 1s); }

void Diagnostics::refresh_others() {
  constexpr std::size_t kMost = 64;
  std::vector<int> ranks;
  for (int r = 0; r < members_.size() && ranks.size() < kMost; ++r) {
    if (is_far(r)) ranks.push_back(r);
  }
  refresh(ranks, Clock::now() + 100ms);
}

void Diagnostics::refresh(std::span<const int> ranks, Deadline deadline) {
  const auto asked = [&](int rank) {
    const std::lock_guard lock(mutex_);
    return asked_[rank];
  };
  std::vector<std::pair<int, std::uint64_t>> before;
  for (const int r : ranks) {
    if (!is_far(r)) continue;
    before.emplace_back(r, asked(r).answers);
    tree_->tell_rank(r, kAsk, {});
  }
  for (const auto& [rank, answers] : before) {
    const auto is_known = [&, r = rank, old = answers] {
      const Asked now = asked(r);
      return now.answers != old || now.lost;
    };
    if (!wait_until(deadline, is_known)) return;
  }
}

void Diagnostics::expect_no_answer(int rank) {
  const std::lock_guard lock(mutex_);
  asked_[rank].lost = true;
}

bool Diagnostics::on_note(int rank, std::uint32_t type, std::span<const std::byte> bytes) {
  if (type == kAsk) {
    tell(rank);
    return true;
  }
  if (type != kStatus) return false;
  if (control_from_bytes(bytes, blocks_.of(rank))) {
    const std::lock_guard lock(mutex_);
    Asked& asked = asked_[rank];
    ++asked.answers;
    asked.answered = Clock::now();
  }
  return true;
}

}  // namespace tutti
