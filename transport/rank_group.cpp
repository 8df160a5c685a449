// See rank_group.h.
#include "transport/rank_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "core/asymmetric_fence.h"
#include "core/background.h"
#include "core/log.h"
#include "core/wait.h"
#include "transport/host/pages.h"
#include "transport/joining.h"
#include "transport/network/network.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// How often a rank that waits for others to join looks for those that will not: seldom, as there
// may be many for a core, and what they wait for rings.
constexpr auto kLookAtFirst = std::chrono::microseconds(50);
constexpr auto kLookEvery = std::chrono::milliseconds(200);

std::vector<LinkPeer> link_peers(const Members& members, const ControlBlocks& blocks) {
  std::vector<LinkPeer> peers;
  int place = 0;
  for (int r = 0; r < members.size(); ++r) {
    LinkPeer& peer = peers.emplace_back(LinkPeer{members.member(r), -1, nullptr});
    if (!members.same_host(r)) continue;
    peer.place = place++;
    peer.doorbell = &blocks.of(r).doorbell;
  }
  return peers;
}

}  // namespace

RankGroup::SegmentLayout RankGroup::lay_out_segment() const {
  const std::size_t here = ranks_here().size();
  SegmentLayout at;
  at.losses = here * sizeof(ControlBlock);
  at.links = to_page(at.losses + HostLosses::bytes(static_cast<std::size_t>(size())));
  if (__builtin_add_overflow(at.links, Links::bytes(here, shape_), &at.bytes) ||
      at.bytes > std::numeric_limits<off_t>::max()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {}: links of {} slots of {} bytes between {} ranks of a host are "
                            "more than can be addressed: set TUTTI_SLOTS or TUTTI_SLOT_BYTES lower",
                            rank(), shape_.slots, shape_.slot_bytes, here),
                rank());
  }
  return at;
}

RankGroup::RankGroup(std::shared_ptr<HostPeers> host_peers, std::shared_ptr<Network> network,
                     Ranks ranks, ConnectionShape shape, const RankCard& says, Deadline deadline)
    : Members(std::move(host_peers), std::move(ranks)),
      network_(std::move(network)),
      shape_(shape),
      layout_(lay_out_segment()),
      blocks_(*this, network_.get(), layout_.bytes, layout_.links, deadline),
      tree_(one_host() ? nullptr : std::make_unique<HostTree>(*network_, *this)),
      diagnostics_(*this, blocks_, tree_.get()),
      liveness_(*this, blocks_, diagnostics_, network_.get(), tree_.get(),
                HostLosses(blocks_.segment()->data() + layout_.losses,
                           static_cast<std::size_t>(this->size()))),
      links_(std::make_unique<Links>(network_.get(), id(), rank(), shape,
                                     link_peers(*this, blocks_), blocks_.segment(),
                                     layout_.links)) {
  const bool cma = says.allows_cma && cma_works();
  if (says.lay_out) says.lay_out(control());
  control().state.store(kJoined, std::memory_order_release);
  ControlBlock& first = blocks_.first_here();
  if (!cma) first.without_cma.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t before = first.joined.fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 == ranks_here().size()) blocks_.ring_here();
  join_host(deadline);
  if (Joining* const joining = liveness_.joining()) join_other_hosts(*joining, deadline);
  liveness_.begin();
  diagnostics_.begin();
}

void RankGroup::poll_other_hosts() { network_->poll(); }

RankGroup::~RankGroup() {
  if (is_inherited()) {  // the parent has not left
    abandon(std::shared_ptr<Links>(std::move(links_)));
    return;
  }
  control().state.fetch_or(kLeft, std::memory_order_release);
  blocks_.ring_here();
}

bool RankGroup::cma_works() const {
  const std::span<const int> here = ranks_here();
  const auto own = static_cast<std::size_t>(std::ranges::find(here, rank()) - here.begin());
  for (std::size_t far = 1; far < here.size(); far *= 2) {
    if (!host_peers().cma_works(member(here[(own + far) % here.size()]))) return false;
  }
  return true;
}

// --- Joining -------------------------------------------------------------------------------------

namespace {

/// Where there is one host: says whether all ranks have joined. Returns what the first to say so
/// has said.
Joining::State decide_here(const ControlBlocks& blocks, Joining::State state) {
  std::uint64_t word = Joining::kOpen;
  const bool is_first =
      blocks.first_here().joining.compare_exchange_strong(word, state, std::memory_order_acq_rel);
  return is_first ? state : static_cast<Joining::State>(word);
}

}  // namespace

void RankGroup::give_up(const Failure& failure) {
  Joining* const joining = liveness_.joining();
  const bool too_late = joining != nullptr
                            ? !joining->give_up(failure)
                            : decide_here(blocks_, Joining::kFailed) != Joining::kFailed;
  if (too_late) return;
  if (joining == nullptr) blocks_.record(failure);
  throw Error(failure.code, failure.text, failure.rank);
}

void RankGroup::wait_to_join(Clock::time_point begun, const std::function<bool()>& done) {
  throw_if_stopping();
  Doorbell* const own[] = {&control().doorbell};
  sleep_unless(own, done,
               std::clamp<Clock::duration>((Clock::now() - begun) / 8, kLookAtFirst, kLookEvery));
}

void RankGroup::join_host(Deadline deadline) {
  const auto begun = Clock::now();
  const Joining* const joining = liveness_.joining();
  const ControlBlock& first = blocks_.first_here();
  const auto has_joined = [&](int r) { return blocks_.has_joined(r); };
  // acquire: what the others have said of themselves is seen.
  const auto all_have = [&] {
    return first.joined.load(std::memory_order_acquire) >= ranks_here().size();
  };
  while (!all_have()) {
    if (joining != nullptr && joining->state() == Joining::kFailed) liveness_.throw_failure();
    if (Clock::now() > deadline) {
      const auto missing = std::ranges::find_if_not(ranks_here(), has_joined);
      if (missing != ranks_here().end()) give_up(absence(*this, *missing, false));
    }
    if (const auto lost = absence_elsewhere(*this, network_.get())) give_up(*lost);
    if (const auto refused = blocks_.refusal()) give_up(*refused);
    host_peers().drain();
    const std::vector<int> ending = liveness_.ending_ranks();
    const auto absent = std::ranges::find_if_not(ending, has_joined);
    if (absent != ending.end()) give_up(absence(*this, *absent, true));
    // One may have died after it had joined, and before it was counted.
    if (!ending.empty() && std::ranges::all_of(ranks_here(), has_joined)) break;
    wait_to_join(begun, all_have);
  }
  cma_everywhere_ = first.without_cma.load(std::memory_order_relaxed) == 0;
  if (joining == nullptr && decide_here(blocks_, Joining::kDone) == Joining::kFailed) {
    liveness_.throw_failure();
  }
}

bool RankGroup::speaks_for_host() const {
  const std::vector<int> ending = liveness_.ending_ranks();
  const auto first = std::ranges::find_if(
      ranks_here(), [&](int r) { return std::ranges::find(ending, r) == ending.end(); });
  return first != ranks_here().end() && *first == rank();
}

void RankGroup::join_other_hosts(Joining& joining, Deadline deadline) {
  const auto begun = Clock::now();
  for (bool said = false;;) {
    const Joining::State state = joining.state();
    if (state == Joining::kDone || state == Joining::kDoneCmaWorks) {
      cma_everywhere_ = state == Joining::kDoneCmaWorks;
      return;
    }
    if (state == Joining::kFailed || liveness_.failed()) liveness_.throw_failure();
    host_peers().drain();
    const std::vector<int> dead = liveness_.dead_ranks();
    if (speaks_for_host()) {
      if (!std::exchange(said, true)) joining.say_ready(cma_everywhere_);
      std::optional<Failure> seen;
      if (!dead.empty()) {
        seen = {ErrorCode::peer_lost, dead.front(),
                fmt::format("rank {} ({}) {} before all ranks had joined the communicator",
                            dead.front(), process_text(dead.front()),
                            liveness_.why_lost(dead.front()).value_or("died"))};
      }
      joining.look(seen);
    }
    if (Clock::now() > deadline) {
      const int missing = joining.missing();
      liveness_.fail(
          // With more ranks, whoever that one waits for is to blame.
          {ErrorCode::timed_out, size() == 2 ? missing : -1,
           fmt::format("rank {} waited in vain for other hosts to join the communicator: rank {} "
                       "({}), or one that it speaks for, has not said that it is there",
                       rank(), missing, missing < 0 ? "none" : process_text(missing))});
    }
    wait_to_join(begun, [&] { return joining.state() >= Joining::kDone; });
  }
}

void RankGroup::refuse(std::uint64_t id, int because_of) {
  const int gone = because_of < 0 ? -1 : member(because_of);
  host_peers().refuse(id, gone);
  if (!one_host()) network_->refuse(id, gone);
}

int RankGroup::wait_while_busy(const std::function<bool(int)>& is_busy,
                               std::chrono::milliseconds patience) {
  constexpr auto kLookForDead = std::chrono::milliseconds(50);
  const Deadline end = deadline_after(patience);
  auto next_look = deadline_after(kLookForDead);
  std::vector<int> dead;
  for (const int r : ranks_here()) {
    const auto is_over = [&] {
      if (!is_busy(r) || std::ranges::find(dead, r) != dead.end()) return true;
      if (std::chrono::steady_clock::now() > next_look) {
        dead = liveness_.ending_ranks();
        next_look = deadline_after(kLookForDead);
      }
      return false;
    };
    // Also on a thread that must stop: what it frees next is not to be touched.
    if (!wait_until(end, is_over, OnStop::goes_on)) return r;
  }
  return -1;
}

void RankGroup::wait_until_untouched() {
  constexpr auto kPatience = std::chrono::seconds(2);
  if (was_touched_) return;
  // A rank that this does not see sees the failure.
  heavy_fence();
  // acquire: what it has written is there.
  const auto touches = [&](int r) {
    return r != rank() && control(r).touches.load(std::memory_order_acquire) != 0;
  };
  const int stopped = wait_while_busy(touches, kPatience);
  if (stopped < 0) return;
  was_touched_ = true;
  log().warn(
      "rank {}: a call has failed, but rank {} ({}) still reads or writes this rank's memory for "
      "it; is that process stopped? When it goes on, it may change the buffers of that call",
      rank(), stopped, process_text(stopped));
}

// --- For people ----------------------------------------------------------------------------------

std::string RankGroup::transports() const {
  if (size() == 1) return "none, there is one rank";
  std::string inside = one_process() ? "the process's memory" : "shared memory";
  if (one_host()) return inside;
  std::set<int> hosts;
  std::set<std::string> across;
  for (int r = 0; r < size(); ++r) {
    hosts.insert(host(r));
    if (!same_host(r)) across.insert(network_->carrier_to(member(r)));
  }
  // Of a peer that is not connected yet, only the network is known ("ucx"), not the way ("ucx
  // (tcp)").
  std::erase_if(across, [&](const std::string& network) {
    return std::ranges::any_of(across, [&](const std::string& carrier) {
      return carrier.size() > network.size() && carrier.starts_with(network);
    });
  });
  const std::string names = fmt::format("{}", fmt::join(across, " and "));
  if (hosts.size() == members().size()) return names;
  return fmt::format("{} inside hosts, {} across", inside, names);
}

}  // namespace tutti
