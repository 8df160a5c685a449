#include "transport/control_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "transport/network/network.h"

namespace tutti {
namespace {

[[noreturn]] void throw_absence(const Failure& f) { throw Error(f.code, f.text, f.rank); }

}  // namespace

std::uint64_t newest_sequence(const OperationRecords& records) {
  std::uint64_t newest = 0;
  for (const OperationRecord& r : records) {
    newest = std::max(newest, r.sequence.load(std::memory_order_relaxed));
  }
  return newest;
}

Failure absence(const Members& members, int rank, bool died) {
  return {died ? ErrorCode::peer_lost : ErrorCode::timed_out, rank,
          died ? fmt::format("rank {} ({}) died before it had joined the communicator, for which "
                             "rank {} waited",
                             rank, members.process_text(rank), members.rank())
               : fmt::format("rank {} waited in vain for rank {} ({}) to join the communicator",
                             members.rank(), rank, members.process_text(rank))};
}

std::optional<Failure> absence_elsewhere(const Members& members, Network* network) {
  if (network == nullptr) return std::nullopt;
  for (const auto& [member, end] : network->gone()) {
    const int rank = members.rank_of(member);
    if (rank < 0) continue;
    if (end.how == Departure::refused) return refusal_here(members, rank, end.why);
    return absence(members, rank, true);
  }
  return std::nullopt;
}

Failure refusal_here(const Members& members, int rank, const std::string& why) {
  return {ErrorCode::system, members.rank(),
          fmt::format("rank {} cannot hold the connection to rank {} ({}): {}", members.rank(),
                      rank, members.process_text(rank), why)};
}

ControlBlocks::ControlBlocks(const Members& members, Network* network, std::size_t bytes,
                             std::size_t mapped, Deadline deadline)
    : members_(members), network_(network), blocks_(static_cast<std::size_t>(members.size())) {
  get_segment(bytes, mapped, deadline);
  if (!members_.one_host()) {
    copies_ = std::make_unique<RingMemory>(blocks_.size() * sizeof(ControlBlock));
  }
  // Zeros are a ControlBlock that has said nothing.
  auto* here = reinterpret_cast<ControlBlock*>(segment_->data());
  for (std::size_t r = 0; r < blocks_.size(); ++r) {
    blocks_[r] = members_.same_host(static_cast<int>(r))
                     ? here++
                     : reinterpret_cast<ControlBlock*>(copies_->data()) + r;
  }
  first_here_ = &of(members_.ranks_here().front());
  show_nameplate();
}

void ControlBlocks::show_nameplate() {
  const int self = members_.rank();
  Nameplate plate{};
  plate.block_bytes = sizeof(ControlBlock);
  plate.communicator = members_.key(0);
  plate.identity = members_.host_peers().identity();
  plate.rank = self;
  plate.size = members_.size();
  plate.here = static_cast<std::int32_t>(members_.ranks_here().size());
  plate.job_rank = members_.host_peers().peer(members_.member(self))->job_rank;
  own().nameplate.fill(plate);
}

void ControlBlocks::get_segment(std::size_t bytes, std::size_t mapped, Deadline deadline) {
  HostPeers& host_peers = members_.host_peers();
  std::vector<int> here;
  for (const int r : members_.ranks_here()) here.push_back(members_.member(r));
  constexpr auto look_every = std::chrono::milliseconds(100);
  const std::uint64_t key = members_.key(members_.ranks_here().front());
  const int from = host_peers.pass_from(here);
  if (from < 0) segment_ = SharedMemory::create(Nameplate::kSegment, bytes, mapped);
  while (segment_ == nullptr) {
    const int giver = members_.rank_of(from);
    const auto now = std::chrono::steady_clock::now();
    try {
      segment_ = host_peers.receive(from, key, bytes, mapped, std::min(deadline, now + look_every));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::peer_lost) throw_absence(absence(members_, giver, true));
      // This one could not take it.
      if (e.code() != ErrorCode::timed_out) throw Error(e.code(), e.what(), members_.rank());
      if (now > deadline) throw_absence(absence(members_, giver, false));
      if (const auto refused = refusal()) throw_absence(*refused);
      if (const auto lost = absence_elsewhere(members_, network_)) throw_absence(*lost);
    }
  }
  host_peers.pass_on(here, key, segment_);
}

std::optional<Failure> ControlBlocks::refusal() const {
  // Where no rank has said that it refuses, each look asks one rank more whether it has done so
  // without a word.
  static std::atomic<std::size_t> looks{0};
  const auto here = members_.ranks_here();
  const int asked = here[looks.fetch_add(1, std::memory_order_relaxed) % here.size()];
  const bool all = members_.host_peers().has_refusals();
  for (const int r : here) {
    if ((!all && r != asked) || r == members_.rank()) continue;
    if (blocks_.front() != nullptr && has_joined(r)) continue;
    const std::optional<int> because_of =
        members_.host_peers().refusal(members_.member(r), members_.id());
    if (!because_of) continue;
    const std::string who = fmt::format("rank {} ({}) ", r, members_.process_text(r));
    return Failure{ErrorCode::peer_lost, members_.rank_of(*because_of),
                   *because_of < 0
                       ? who + "has given up before all ranks had joined the communicator"
                       : fmt::format("{} is gone, so {}has not joined the communicator",
                                     members_.member_text(*because_of), who)};
  }
  return std::nullopt;
}

void ControlBlocks::ring_here() const {
  for (const int r : members_.ranks_here()) ring(of(r).doorbell);
  if (network_ != nullptr) network_->wake();
}

void ControlBlocks::wake_own() const {
  ring(own().doorbell);
  if (network_ != nullptr) network_->wake();
}

bool ControlBlocks::record(const Failure& failure) const {
  if (!first_here_->failure.write(failure)) return false;
  ring_here();
  return true;
}

std::optional<Failure> ControlBlocks::failure() const {
  const FailureRecord& record = first_here_->failure;
  if (!record.is_there()) return std::nullopt;
  // The writer may have been killed between claiming the record and filling it.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  for (;;) {
    if (auto failure = record.read()) return failure;
    if (std::chrono::steady_clock::now() > patience) {
      const std::vector<int> gone = members_.ranks_among(members_.host_peers().ending_peers());
      return Failure{ErrorCode::peer_lost, gone.empty() ? -1 : gone.front(),
                     "a rank died while it was reporting a failure"};
    }
    std::this_thread::yield();
  }
}

}  // namespace tutti
