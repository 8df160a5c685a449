#include "transport/liveness.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "core/fork.h"
#include "core/wait.h"
#include "transport/network/network.h"
#include "transport/other_hosts.h"

namespace tutti {
namespace {

constexpr auto kReasonPatience = std::chrono::milliseconds(200);

}  // namespace

Liveness::Liveness(const Members& members, ControlBlocks& blocks, Diagnostics& diagnostics,
                   Network* network, HostTree* tree, HostLosses losses)
    : members_(members),
      blocks_(blocks),
      record_(blocks.first_here().failure),
      diagnostics_(diagnostics),
      network_(network) {
  if (tree == nullptr) return;
  PeerEvents& events = *this;
  hosts_ = std::make_unique<OtherHosts>(*network, *tree, blocks, losses, diagnostics, events);
  hosts_->begin();
}

void Liveness::lose(int rank, Departure how, const std::string& why) {
  hosts_->lose(rank, how, why);
}

std::optional<std::string> Liveness::why_lost(int rank) const {
  return hosts_ ? hosts_->why_lost(rank) : std::nullopt;
}

Joining* Liveness::joining() { return hosts_ ? &hosts_->joining() : nullptr; }

Liveness::~Liveness() {
  // In a child of fork(), the parent has not left.
  if (members_.is_inherited()) abandon(std::shared_ptr<OtherHosts>(std::move(hosts_)));
}

// --- Failures ------------------------------------------------------------------------------------

void Liveness::fail(const Failure& failure) {
  if (blocks_.record(failure) && hosts_) hosts_->spread(failure);
}

Failure Liveness::failure() const {
  // The word that says that there is one may come before its record.
  wait_until(
      deadline_after(kReasonPatience), [&] { return failed(); }, OnStop::ends);
  return blocks_.failure().value_or(
      Failure{ErrorCode::peer_lost, -1,
              fmt::format("rank {}: another rank gave up on the communicator, and died before it "
                          "said why",
                          members_.rank())});
}

void Liveness::throw_failure() const {
  const Failure f = failure();
  diagnostics_.note_error(f.text);
  throw Error(f.code, f.text, f.rank);
}

// --- Ranks that are gone -------------------------------------------------------------------------

std::vector<int> Liveness::ending_ranks() const {
  return members_.ranks_among(members_.host_peers().ending_peers());
}

std::vector<int> Liveness::dead_ranks() {
  std::vector<int> dead = members_.ranks_among(members_.host_peers().dead_peers());
  if (hosts_) {
    for (const int r : hosts_->lost()) {
      if (!has_left(r)) dead.push_back(r);
    }
  }
  return dead;
}

std::string Liveness::lost_text(int rank, const std::string& why, std::string_view noticed) const {
  return fmt::format(
      "rank {} ({}) {}{}; rank {} noticed it{}{}. Its own output or the kernel's log says why; "
      "restart the job, or go on without that rank (shrink)",
      rank, members_.process_text(rank), why, diagnostics_.last_progress_text(rank),
      members_.rank(), noticed, diagnostics_.refusal_text(rank));
}

void Liveness::check_peers(std::string_view doing) {
  members_.host_peers().drain();
  if (hosts_ && network_->is_closed()) {
    fail(
        {ErrorCode::system, members_.rank(),
         fmt::format("rank {}: descriptors that Tutti has opened are closed, which it noticed "
                     "while {}: a program closes those that it has opened itself, and not all that "
                     "there are (closefrom(), close_range())",
                     members_.rank(), doing)});
    return;
  }
  if (hosts_) network_->poll();
  for (const int peer : ending_ranks()) {
    if (has_left(peer)) continue;
    fail({ErrorCode::peer_lost, peer, lost_text(peer, "died", fmt::format(" while {}", doing))});
  }
}

void Liveness::check_peers_first(std::string_view doing) {
  using namespace std::chrono_literals;
  constexpr auto kNews = 300ms;
  if (!hosts_) return check_peers(doing);
  const auto has_failed = [&] {
    check_peers(doing);
    return failed();
  };
  wait_until(deadline_after(kNews), has_failed, OnStop::ends);
}

void Liveness::begin() {
  if (!hosts_) return;
  for (const int r : hosts_->lost()) {
    on_gone(r, Departure::died, hosts_->why_lost(r).value_or("died"));
  }
}

void Liveness::on_left(int, std::uint64_t) { blocks_.ring_here(); }

void Liveness::on_gone(int rank, Departure how, const std::string& why) {
  // Before all have joined, what that means is decided together.
  if (has_left(rank) || !hosts_->joining().is_decided()) return;
  if (how == Departure::refused) return fail(refusal_here(members_, rank, why));
  fail({ErrorCode::peer_lost, rank, lost_text(rank, why, diagnostics_.own_doing_text()),
        how == Departure::cut_off});
}

}  // namespace tutti
