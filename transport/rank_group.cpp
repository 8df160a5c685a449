#include "transport/rank_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/background.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

/// Those of this process that are complete, by their ranks' HostPeers, of which threads that are
/// ranks have one each; those without another rank of this process also by that.
struct Groups {
  std::mutex mutex;
  std::unordered_map<const HostPeers*, std::vector<RankGroup*>> by_host_peers;
  std::vector<RankGroup*> alone;
};

Groups& groups() {
  static auto* const instance = new Groups;  // never destroyed: threads may use groups during exit
  [[maybe_unused]] static const bool held =
      (hold_across_fork([] { instance->mutex.lock(); }, [] { instance->mutex.unlock(); }), true);
  return *instance;
}

std::uint64_t now_ns() {
  const auto now = Clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

std::uint64_t newest_sequence(const std::array<OperationRecord, kRecords>& records) {
  std::uint64_t newest = 0;
  for (const OperationRecord& r : records) {
    newest = std::max(newest, r.sequence.load(std::memory_order_relaxed));
  }
  return newest;
}

RankGroup::RankGroup(std::shared_ptr<HostPeers> host_peers, std::shared_ptr<Network> network,
                     Ranks ranks, ConnectionShape shape, const RankCard& says, Deadline deadline)
    : host_peers_(std::move(host_peers)),
      network_(std::move(network)),
      rank_(ranks.rank),
      members_(std::move(ranks.members)),
      keys_(std::move(ranks.keys)),
      id_(ranks.id),
      shape_(shape) {
  const std::size_t n = members_.size();
  for (int r = 0; r < size(); ++r) {
    if (same_host(r)) here_.push_back(r);
  }
  segments_.resize(n);
  controls_.resize(n);
  const auto self = static_cast<std::size_t>(rank_);
  // Of the first rank's, the losses are used.
  const std::size_t link_bytes = Links::first_bytes(here_.size(), shape_);
  segments_[self] = SharedMemory::create("tutti-segment", link_bytes + HostLosses::bytes(n));
  share_within_process(keys_[self], segments_[self]);
  for (const int r : here_) {
    if (r != rank_) host_peers_->send(member(r), keys_[self], segments_[self]);
  }
  try {
    receive_segments(deadline);
  } catch (const Error& e) {
    const bool died = e.code() == ErrorCode::peer_lost && e.rank() >= 0;
    if (network_) network_->refuse(id_, died ? member(e.rank()) : -1);
    throw;
  }
  std::vector<LinkPeer> peers(n);
  std::vector<std::shared_ptr<SharedMemory>> first;
  for (const int r : here_) {
    const auto at = static_cast<std::size_t>(r);
    controls_[at] = reinterpret_cast<ControlBlock*>(segments_[at]->data());
    peers[at].place = static_cast<int>(first.size());
    peers[at].doorbell = &controls_[at]->doorbell;
    first.push_back(segments_[at]);
  }
  for (std::size_t r = 0; r < n; ++r) {
    peers[r].member = members_[r];
    peers[r].key = keys_[r];
  }
  first_here_ = controls_[static_cast<std::size_t>(here_.front())];
  if (here_.size() < n) {
    std::vector<int> hosts;
    for (const int m : members_) hosts.push_back(host_peers_->host(m));
    hosts_ = std::make_unique<OtherHosts>(
        *network_, id_, HostTree::Ranks{members_, std::move(hosts), rank_}, first_here_->joining,
        HostLosses(first.front()->data() + link_bytes, n),
        OtherHosts::Callbacks{
            [this](const Failure& f) { return record(f); }, [this] { ring_host(); },
            [this]() -> const ControlBlock& { return control(); },
            [this](int r, Loss how, const std::string& why) { on_lost(r, how, why); },
            [this]() -> std::optional<Failure> {
              if (!failed()) return std::nullopt;
              return failure();
            }});
    for (int r = 0; r < size(); ++r) {
      if (!same_host(r)) controls_[static_cast<std::size_t>(r)] = &hosts_->copy(r);
    }
    hosts_->begin();
  }
  links_ = std::make_unique<Links>(host_peers_, network_.get(), id_, rank_, shape_,
                                   std::move(peers), std::move(first));
  bool cma = says.allows_cma;
  for (const int r : here_) cma = cma && (r == rank_ || host_peers_->cma_works(member(r)));
  control().gpu = says.gpu;
  control().state.store(kJoined | (cma ? kCmaWorks : 0U), std::memory_order_release);
  wait_for_host_to_join(deadline);
  for (int r = 0; r < size(); ++r) {
    if (!same_process(r)) one_process_ = false;
    // Also where hosts, or processes, are told apart by hand.
    const bool neighbour =
        r != rank_ && alone_in_process_ && pid(r) == host_peers_->address().pid &&
        host_peers_->host_name(member(r)) == host_peers_->host_name(member(rank_));
    if (neighbour) alone_in_process_ = false;
  }
  for (const int r : here_) {
    if ((control(r).state.load(std::memory_order_acquire) & kCmaWorks) == 0) {
      cma_everywhere_ = false;
    }
  }
  if (hosts_) wait_for_other_hosts(deadline);
  Groups& g = groups();
  const std::lock_guard lock(g.mutex);
  g.by_host_peers[host_peers_.get()].push_back(this);
  if (alone_in_process_) g.alone.push_back(this);
}

// Whether all ranks have joined is what their new communicator depends on, and the same for all of
// them, also where some die: a rank that was dead before it had joined makes it fail on all others,
// one that dies later on none. (The survivors then all shrink the same communicator.) On one host,
// a rank joins when it has all segments, and whoever has died has left what it had sent; several
// hosts agree (joining.h).

Failure RankGroup::absence(int rank, bool died) const {
  return {died ? ErrorCode::peer_lost : ErrorCode::timed_out, rank,
          died ? fmt::format("rank {} ({}) died before it had joined the communicator, for which "
                             "rank {} waited",
                             rank, process_text(rank), rank_)
               : fmt::format("rank {} waited in vain for rank {} ({}) to join the communicator",
                             rank_, rank, process_text(rank))};
}

void RankGroup::give_up(const Failure& failure) {
  if (hosts_ && !hosts_->joining().give_up(failure)) return;
  throw Error(failure.code, failure.text, failure.rank);
}

void RankGroup::refuse(std::uint64_t id, int because_of) {
  const int gone = because_of < 0 ? -1 : member(because_of);
  std::vector<int> peers;
  for (const int r : here_) {
    if (r != rank_) peers.push_back(member(r));
  }
  host_peers_->refuse(id, gone, peers);
  if (hosts_) network_->refuse(id, gone);
}

void RankGroup::give_up_if_refused() {
  for (const int r : here_) {
    if (r == rank_ || segment(r) != nullptr) continue;
    const std::optional<int> because_of = host_peers_->refusal(member(r), id_);
    if (!because_of) continue;
    const auto gone = std::ranges::find(members_, *because_of);
    give_up({ErrorCode::peer_lost,
             gone == members_.end() ? -1 : static_cast<int>(gone - members_.begin()),
             *because_of < 0 ? fmt::format("rank {} ({}) has given up before all ranks had joined "
                                           "the communicator",
                                           r, process_text(r))
                             : fmt::format("rank {} of the job is gone, so rank {} ({}) has not "
                                           "joined the communicator",
                                           *because_of, r, process_text(r))});
  }
}

void RankGroup::give_up_if_lost_elsewhere() {
  if (network_ == nullptr) return;
  for (int r = 0; r < size(); ++r) {
    if (!same_host(r) && network_->is_lost(member(r))) give_up(absence(r, true));
  }
}

std::shared_ptr<SharedMemory> RankGroup::receive_segment(int rank, Deadline deadline) {
  try {
    return host_peers_->receive(member(rank), key(rank), segment(rank_)->size(), deadline);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::peer_lost) give_up(absence(rank, true));
    if (e.code() == ErrorCode::timed_out) return nullptr;
    throw Error(e.code(), e.what(), rank_);  // this one could not take it
  }
}

void RankGroup::receive_segments(Deadline deadline) {
  constexpr auto kLookEvery = std::chrono::milliseconds(20);
  const auto there = [&](int r) { return segment(r) != nullptr; };
  for (const int r : here_) {
    while (!there(r)) {
      const auto now = Clock::now();
      segments_[static_cast<std::size_t>(r)] =
          receive_segment(r, std::min(deadline, now + kLookEvery));
      if (there(r)) break;
      if (now > deadline) give_up(absence(r, false));
      give_up_if_refused();
      give_up_if_lost_elsewhere();
      for (const int dead : ending_ranks()) {
        auto& left = segments_[static_cast<std::size_t>(dead)];
        if (left == nullptr) left = receive_segment(dead, now);
        if (left == nullptr) give_up(absence(dead, true));
      }
    }
  }
}

void RankGroup::wait_for_host_to_join(Deadline deadline) {
  const auto begun = Clock::now();
  const auto joined = [&](int r) {
    return (control(r).state.load(std::memory_order_acquire) & kJoined) != 0;
  };
  for (const int r : here_) {
    while (!joined(r)) {
      if (hosts_ && hosts_->joining().state() == Joining::kFailed) throw_failure();
      if (Clock::now() > deadline) give_up(absence(r, false));
      give_up_if_lost_elsewhere();
      host_peers_->drain();
      for (const int dead : ending_ranks()) {
        if (!joined(dead)) give_up(absence(dead, true));
      }
      pause_in_wait(begun);
    }
  }
}

void RankGroup::wait_for_other_hosts(Deadline deadline) {
  Joining& joining = hosts_->joining();
  const auto begun = Clock::now();
  for (bool said = false;;) {
    const Joining::State state = joining.state();
    if (state == Joining::kDone || state == Joining::kDoneCmaWorks) {
      cma_everywhere_ = state == Joining::kDoneCmaWorks;
      break;
    }
    if (state == Joining::kFailed || failed()) throw_failure();
    host_peers_->drain();
    const std::vector<int> dead = dead_ranks(), ending = ending_ranks();
    const auto speaks = std::ranges::find_if(
        here_, [&](int r) { return std::ranges::find(ending, r) == ending.end(); });
    if (speaks != here_.end() && *speaks == rank_) {
      if (!std::exchange(said, true)) joining.say_ready(cma_everywhere_);
      std::optional<Failure> seen;
      if (!dead.empty()) {
        seen = {ErrorCode::peer_lost, dead.front(),
                fmt::format("rank {} ({}) {} before all ranks had joined the communicator",
                            dead.front(), process_text(dead.front()),
                            hosts_->why_lost(dead.front()).value_or("died"))};
      }
      joining.look(seen);
    }
    if (Clock::now() > deadline) {
      const int missing = joining.missing();
      fail({ErrorCode::timed_out, missing,
            fmt::format("rank {} waited in vain for other hosts to join the communicator: rank {} "
                        "({}), or one that it speaks for, has not said that it is there",
                        rank_, missing, missing < 0 ? "none" : process_text(missing))});
    }
    pause_in_wait(begun);
  }
  for (const int r : hosts_->lost()) {
    on_lost(r, Loss::died, hosts_->why_lost(r).value_or("died"));
  }
}

std::string RankGroup::process_text(int rank) const {
  const std::string host = same_host(rank) ? "" : " on " + host_peers_->host_name(member(rank));
  const std::string job =
      member(rank) == rank ? "" : fmt::format("rank {} of the job, ", member(rank));
  return fmt::format("{}pid {}{}", job, pid(rank), host);
}

std::vector<int> RankGroup::ranks_among(const std::vector<int>& members) const {
  std::vector<int> ranks;
  for (const int member : members) {
    const auto it = std::find(members_.begin(), members_.end(), member);
    if (it != members_.end()) ranks.push_back(static_cast<int>(it - members_.begin()));
  }
  return ranks;
}

std::vector<int> RankGroup::ending_ranks() const {
  return ranks_among(host_peers_->ending_peers());
}

RankGroup::~RankGroup() {
  {
    Groups& g = groups();
    const std::lock_guard lock(g.mutex);
    const auto found = g.by_host_peers.find(host_peers_.get());
    if (found != g.by_host_peers.end()) {
      std::erase(found->second, this);
      if (found->second.empty()) g.by_host_peers.erase(found);
    }
    std::erase(g.alone, this);
  }
  if (is_inherited()) {  // the parent has not left
    abandon(std::shared_ptr<Links>(std::move(links_)));
    abandon(std::shared_ptr<OtherHosts>(std::move(hosts_)));
    return;
  }
  control().state.fetch_or(kLeft, std::memory_order_release);
  ring_host();
}

void RankGroup::ring_host() {
  for (const int r : here_) ring(control(r).doorbell);
  if (network_) network_->wake();
}

void RankGroup::fail(const Failure& failure) {
  if (record(failure) && hosts_) hosts_->spread(failure);
}

bool RankGroup::record(const Failure& failure) {
  ControlBlock& c = *first_here_;
  std::uint32_t none = 0;
  if (!c.failure_state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return false;
  c.failure_code.store(static_cast<std::uint32_t>(failure.code), std::memory_order_relaxed);
  c.failure_rank.store(failure.rank, std::memory_order_relaxed);
  c.failure_cut_off.store(failure.cut_off ? 1 : 0, std::memory_order_relaxed);
  const std::size_t length = std::min(failure.text.size(), c.failure_text.size() - 1);
  std::memcpy(c.failure_text.data(), failure.text.data(), length);
  c.failure_text[length] = '\0';
  // release: whoever sees 2 sees the words above.
  c.failure_state.store(2, std::memory_order_release);
  ring_host();
  return true;
}

Failure RankGroup::failure() const {
  ControlBlock& c = *first_here_;
  // The writer may have been killed between claiming the record and filling it.
  const auto patience = Clock::now() + std::chrono::milliseconds(200);
  while (c.failure_state.load(std::memory_order_acquire) != 2) {
    if (Clock::now() > patience) {
      const std::vector<int> gone = ending_ranks();
      return {ErrorCode::peer_lost, gone.empty() ? -1 : gone.front(),
              "a rank died while it was reporting a failure"};
    }
    std::this_thread::yield();
  }
  Failure f;
  f.code = static_cast<ErrorCode>(c.failure_code.load(std::memory_order_relaxed));
  f.rank = c.failure_rank.load(std::memory_order_relaxed);
  f.cut_off = c.failure_cut_off.load(std::memory_order_relaxed) != 0;
  f.text.assign(c.failure_text.data(), strnlen(c.failure_text.data(), c.failure_text.size()));
  return f;
}

std::string RankGroup::transports() {
  if (members_.size() == 1) return "none, there is one rank";
  std::string inside = one_process_ ? "the process's memory" : "shared memory";
  if (one_host()) return inside;
  std::set<int> hosts;
  std::set<std::string> across;
  for (int r = 0; r < static_cast<int>(members_.size()); ++r) {
    hosts.insert(host(r));
    if (!same_host(r)) across.insert(network_->carrier_to(member(r)));
  }
  // Of those that are not connected yet it is not known which way UCX will take.
  if (across.size() > 1) across.erase("ucx");
  const std::string names = fmt::format("{}", fmt::join(across, " and "));
  if (hosts.size() == members_.size()) return names;
  return fmt::format("{} inside hosts, {} across", inside, names);
}

int RankGroup::end_of_line(int peer, Clock::time_point recently) {
  int at = peer;
  for (int steps = 0; steps < size(); ++steps) {
    const ControlBlock& c = control(at);
    const std::uint32_t next = c.waits_for.load(std::memory_order_relaxed);
    const auto when = c.waited_at.load(std::memory_order_relaxed);
    const bool waits = next > 0 && next <= members_.size();
    if (!waits || when < recently.time_since_epoch().count()) return at;
    at = static_cast<int>(next) - 1;
  }
  return peer;
}

std::string RankGroup::progress_text(int peer) {
  ControlBlock& c = control(peer);
  const std::uint64_t progress = c.progress.load(std::memory_order_relaxed);
  // An operation of more steps than there are bits for counts on into the next one's number, but is
  // the newest.
  const std::uint64_t operation = std::min(progress >> kStepBits, newest_sequence(c.records));
  return fmt::format("step {} of its operation #{}", progress - progress_of(operation, 0),
                     operation);
}

std::string RankGroup::refusal_text(int peer) {
  const auto refused = control(peer).refused.read();
  if (!refused || refused->number <= newest_sequence(control(peer).records)) return "";
  return fmt::format("; a call of rank {} was refused: {}", peer, refused->text);
}

void RankGroup::say_waiting(std::string_view doing) {
  if (hosts_) {
    const std::lock_guard lock(doing_mutex_);
    doing_ = doing;
    did_ = Clock::now();
  }
  Groups& g = groups();
  const std::lock_guard lock(g.mutex);
  control().waiting.say(now_ns(), doing);
  const auto tell = [&](RankGroup* other) {
    if (other != this && !other->is_inherited()) other->control().elsewhere.say(now_ns(), doing);
  };
  const auto mine = g.by_host_peers.find(host_peers_.get());
  if (mine != g.by_host_peers.end()) std::ranges::for_each(mine->second, tell);
  if (!alone_in_process_) return;
  // Other HostPeers of a process have the same rank where it is the only one.
  for (RankGroup* other : g.alone) {
    if (other->host_peers_ != host_peers_) tell(other);
  }
}

std::string RankGroup::waiting_text(int peer) {
  // Who waits says so every 10 to 50 ms; what is older than this is over.
  constexpr std::uint64_t kFresh = 250'000'000;
  const auto fresh = [](const Remark& remark) {
    auto said = remark.read();
    if (said && said->number + kFresh < now_ns()) said.reset();
    return said;
  };
  std::string text;
  if (const auto here = fresh(control(peer).waiting)) {
    text += fmt::format("; that rank is itself {}", here->text);
  }
  if (const auto elsewhere = fresh(control(peer).elsewhere)) {
    text += fmt::format(
        "; that rank is itself waiting, in another communicator: {}. Ranks that use several "
        "communicators on one thread must use them in the same order",
        elsewhere->text);
  }
  return text;
}

void RankGroup::throw_failure() const {
  const Failure f = failure();
  throw Error(f.code, f.text, f.rank);
}

std::string RankGroup::lost_text(int rank, const std::string& why, std::string_view doing) {
  return fmt::format(
      "rank {} ({}) {} after {}; rank {} noticed {}{}. Its own output or the kernel's log says "
      "why; "
      "restart the job, or go on without that rank (shrink)",
      rank, process_text(rank), why, progress_text(rank), rank_, doing, refusal_text(rank));
}

void RankGroup::check_peers(std::string_view doing) {
  host_peers_->drain();
  if (hosts_) hosts_->poll();
  const std::string here = fmt::format("while {}", doing);
  for (const int peer : ending_ranks()) {
    if (!has_left(peer)) fail({ErrorCode::peer_lost, peer, lost_text(peer, "died", here)});
  }
}

void RankGroup::check_peers_first(std::string_view doing) {
  using namespace std::chrono_literals;
  constexpr auto kNews = 300ms;
  check_peers(doing);
  if (!hosts_) return;
  const auto until = Clock::now() + kNews;
  while (!failed() && Clock::now() < until && !must_stop()) {
    std::this_thread::sleep_for(1ms);
    check_peers(doing);
  }
}

void RankGroup::on_lost(int rank, Loss how, const std::string& why) {
  // Before all have joined, what that means is decided together.
  if (has_left(rank) || !hosts_->joining().is_decided()) return;
  std::string doing = "between its calls";
  {
    // Who waits says so every 10 to 50 ms.
    const std::lock_guard lock(doing_mutex_);
    if (Clock::now() - did_ < std::chrono::milliseconds(250)) doing = "while " + doing_;
  }
  fail({ErrorCode::peer_lost, rank, lost_text(rank, why, doing), how == Loss::cut_off});
}

std::vector<int> RankGroup::dead_ranks() {
  std::vector<int> dead = ranks_among(host_peers_->dead_peers());
  if (hosts_) {
    for (const int r : hosts_->lost()) {
      if (!has_left(r)) dead.push_back(r);
    }
  }
  return dead;
}

void RankGroup::refresh(int rank) {
  if (hosts_) hosts_->refresh({&rank, 1}, Clock::now() + std::chrono::seconds(1));
}

void RankGroup::refresh_others() {
  constexpr std::size_t kMost = 64;
  if (!hosts_) return;
  std::vector<int> ranks;
  for (int r = 0; r < size() && ranks.size() < kMost; ++r) {
    if (!same_host(r)) ranks.push_back(r);
  }
  hosts_->refresh(ranks, Clock::now() + std::chrono::milliseconds(100));
}

}  // namespace tutti
