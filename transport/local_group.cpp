#include "transport/local_group.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "core/background.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kControlBytes =
    (sizeof(ControlBlock) + kCacheLine - 1) / kCacheLine * kCacheLine;

/// Those of this process that are complete.
struct Groups {
  std::mutex mutex;
  std::vector<LocalGroup*> all;
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

/// Channels of further segment `s`; the first of them has the same number.
constexpr std::size_t channels_of(std::size_t s) { return std::size_t{kFirstChannels} << (s - 1); }

}  // namespace

std::uint64_t newest_sequence(const std::array<OperationRecord, kRecords>& records) {
  std::uint64_t newest = 0;
  for (const OperationRecord& r : records) {
    newest = std::max(newest, r.sequence.load(std::memory_order_relaxed));
  }
  return newest;
}

LocalGroup::LocalGroup(std::shared_ptr<Mesh> mesh, int rank, std::vector<int> members,
                       std::vector<std::uint64_t> keys, ConnectionShape shape,
                       const LocalRank& says, Deadline deadline)
    : mesh_(std::move(mesh)),
      rank_(rank),
      members_(std::move(members)),
      keys_(std::move(keys)),
      shape_(shape) {
  const std::size_t n = members_.size();
  const std::size_t connection = shape_.bytes();
  const std::size_t bytes = kControlBytes + n * kConnections * connection;
  segments_.resize(n);
  const auto self = static_cast<std::size_t>(rank_);
  segments_[self] = SharedMemory::create("tutti-segment", bytes);
  share_within_process(keys_[self], segments_[self]);
  for (std::size_t r = 0; r < n; ++r) {
    if (r != self) mesh_->send(members_[r], keys_[self], segments_[self]);
  }
  receive_segments(deadline);
  for (const auto& segment : segments_) {
    controls_.push_back(reinterpret_cast<ControlBlock*>(segment->data()));
  }
  const auto memory = [&](std::size_t receiver, std::size_t sender, std::size_t c) {
    return segments_[receiver]->data() + kControlBytes + (sender * kConnections + c) * connection;
  };
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t c = 0; c < kConnections; ++c) {
      senders_.emplace_back(memory(r, self, c), shape_);
      receivers_.emplace_back(memory(self, r, c), shape_);
    }
  }
  bool cma = says.allows_cma;
  for (std::size_t r = 0; r < n; ++r) cma = cma && (r == self || mesh_->cma_works(members_[r]));
  control().gpu = says.gpu;
  control().state.store(kJoined | (cma ? kCmaWorks : 0U), std::memory_order_release);
  wait_for_all_to_join(deadline);
  for (std::size_t r = 0; r < n; ++r) {
    const std::uint32_t state = controls_[r]->state.load(std::memory_order_acquire);
    if ((state & kCmaWorks) == 0) cma_everywhere_ = false;
    if (!same_process(static_cast<int>(r))) one_process_ = false;
    if (r != self && same_process(static_cast<int>(r))) alone_in_process_ = false;
  }
  Groups& g = groups();
  const std::lock_guard lock(g.mutex);
  g.all.push_back(this);
}

// Whether all ranks have joined is what their new communicator depends on, and the same for all of
// them, also where some die: a rank that was dead before it had joined makes it fail on all others,
// one that dies later on none. (The survivors then all shrink the same communicator.) A rank joins
// when it has all segments, and whoever has died has left what it had sent.

void LocalGroup::throw_absent(int rank, bool died) const {
  throw Error(died ? ErrorCode::peer_lost : ErrorCode::timed_out,
              died ? fmt::format("rank {} (pid {}) died before it had joined the communicator, for "
                                 "which rank {} waited",
                                 rank, pid(rank), rank_)
                   : fmt::format("rank {} waited in vain for rank {} (pid {}) to join the "
                                 "communicator",
                                 rank_, rank, pid(rank)),
              rank);
}

std::shared_ptr<SharedMemory> LocalGroup::receive_segment(int rank, Deadline deadline) {
  try {
    return mesh_->receive(member(rank), key(rank), segment(rank_)->size(), deadline);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::peer_lost) throw_absent(rank, true);
    if (e.code() == ErrorCode::timed_out) return nullptr;
    throw Error(e.code(), e.what(), rank_);  // this one could not take it
  }
}

void LocalGroup::receive_segments(Deadline deadline) {
  constexpr auto kLookEvery = std::chrono::milliseconds(20);
  const auto there = [&](int r) { return segment(r) != nullptr; };
  for (int r = 0; r < size(); ++r) {
    while (!there(r)) {
      const auto now = Clock::now();
      segments_[static_cast<std::size_t>(r)] =
          receive_segment(r, std::min(deadline, now + kLookEvery));
      if (there(r)) break;
      if (now > deadline) throw_absent(r, false);
      for (const int dead : ending_ranks()) {
        auto& left = segments_[static_cast<std::size_t>(dead)];
        if (left == nullptr) left = receive_segment(dead, now);
        if (left == nullptr) throw_absent(dead, true);
      }
    }
  }
}

void LocalGroup::wait_for_all_to_join(Deadline deadline) {
  const auto joined = [&](int r) {
    return (control(r).state.load(std::memory_order_acquire) & kJoined) != 0;
  };
  for (int r = 0; r < size(); ++r) {
    while (!joined(r)) {
      if (Clock::now() > deadline) throw_absent(r, false);
      mesh_->drain();
      for (const int dead : ending_ranks()) {
        if (!joined(dead)) throw_absent(dead, true);
      }
      pause_for(std::chrono::microseconds(100));
    }
  }
}

std::vector<int> LocalGroup::ending_ranks() const {
  std::vector<int> dead;
  for (const int member : mesh_->ending_peers()) {
    const auto it = std::find(members_.begin(), members_.end(), member);
    if (it != members_.end()) dead.push_back(static_cast<int>(it - members_.begin()));
  }
  return dead;
}

LocalGroup::~LocalGroup() {
  {
    Groups& g = groups();
    const std::lock_guard lock(g.mutex);
    std::erase(g.all, this);
  }
  if (is_inherited()) return;  // the parent has not left
  control().state.fetch_or(kLeft, std::memory_order_release);
  for (int r = 0; r < size(); ++r) ring(control(r));
  // Links that the others had made ready, and this rank has never used.
  for (std::size_t s = 1; s <= further_.size(); ++s) {
    if (!further_[s - 1].mine) continue;  // where no plan had such links, nobody has sent any
    for (int r = 0; r < size(); ++r) {
      if (!same_process(r)) mesh_->forget(member(r), further_key(r, s));
    }
  }
}

std::uint64_t LocalGroup::further_key(int rank, std::size_t segment) const {
  // Differs from the keys of all other segments, which are random, too.
  const std::uint64_t mixed = (key(rank) + segment) * 0x9e3779b97f4a7c15ULL;
  return mixed ^ (mixed >> 32);
}

std::size_t LocalGroup::further_bytes(std::size_t segment) const {
  return members_.size() * channels_of(segment) * shape_.bytes();
}

std::byte* LocalGroup::further_connection(const SharedMemory& memory, int sender,
                                          int channel) const {
  const std::size_t channels = channels_of(segment_of(channel));
  const std::size_t index =
      static_cast<std::size_t>(sender) * channels + static_cast<std::size_t>(channel) - channels;
  return memory.data() + index * shape_.bytes();
}

Receiver& LocalGroup::further_receiver(int peer, int channel) {
  const auto found = further_receivers_.find({peer, channel});
  if (found != further_receivers_.end()) return found->second;
  const std::size_t s = segment_of(channel);
  FurtherSegment& segment = further_[s - 1];
  if (!segment.mine) {
    segment.mine = SharedMemory::create("tutti-links", further_bytes(s));
    segment.sent.resize(members_.size());
    share_within_process(further_key(rank_, s), segment.mine);
  }
  if (peer != rank_ && !segment.sent[static_cast<std::size_t>(peer)]) {
    mesh_->send(member(peer), further_key(rank_, s), segment.mine);
    segment.sent[static_cast<std::size_t>(peer)] = true;
  }
  std::byte* const memory = further_connection(*segment.mine, peer, channel);
  return further_receivers_.try_emplace({peer, channel}, memory, shape_).first->second;
}

Sender& LocalGroup::further_sender(int peer, int channel) {
  const auto look = [this, peer, channel] { return look_for(peer, channel); };
  return further_senders_.try_emplace({peer, channel}, look, shape_).first->second;
}

std::byte* LocalGroup::look_for(int peer, int channel) {
  const std::size_t s = segment_of(channel);
  std::shared_ptr<SharedMemory>& memory = further_[s - 1].theirs[peer];
  if (!memory && peer == rank_) memory = further_[s - 1].mine;
  if (!memory && peer != rank_) {
    try {
      // What is not there yet is asked for again: whoever waits for it waits for its owner.
      memory =
          mesh_->receive(member(peer), further_key(peer, s), further_bytes(s), Deadline::min());
    } catch (const Error& e) {
      // Whoever waits for it notices that its owner is gone, and says so in this group's numbers.
      if (e.code() == ErrorCode::system) throw Error(e.code(), e.what(), rank_);
      if (e.code() != ErrorCode::timed_out && e.code() != ErrorCode::peer_lost) throw;
    }
  }
  return memory ? further_connection(*memory, rank_, channel) : nullptr;
}

void LocalGroup::fail(const Failure& failure) {
  ControlBlock& c = control(0);
  std::uint32_t none = 0;
  if (!c.failure_state.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) return;
  c.failure_code.store(static_cast<std::uint32_t>(failure.code), std::memory_order_relaxed);
  c.failure_rank.store(failure.rank, std::memory_order_relaxed);
  const std::size_t length = std::min(failure.text.size(), c.failure_text.size() - 1);
  std::memcpy(c.failure_text.data(), failure.text.data(), length);
  c.failure_text[length] = '\0';
  // release: whoever sees 2 sees the words above.
  c.failure_state.store(2, std::memory_order_release);
  for (int r = 0; r < size(); ++r) ring(control(r));
}

Failure LocalGroup::failure() const {
  ControlBlock& c = *controls_[0];
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
  f.text.assign(c.failure_text.data(), strnlen(c.failure_text.data(), c.failure_text.size()));
  return f;
}

int LocalGroup::end_of_line(int peer, Clock::time_point recently) {
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

std::string LocalGroup::progress_text(int peer) {
  ControlBlock& c = control(peer);
  const std::uint64_t progress = c.progress.load(std::memory_order_relaxed);
  // An operation of more steps than there are bits for counts on into the next one's number, but is
  // the newest.
  const std::uint64_t operation = std::min(progress >> kStepBits, newest_sequence(c.records));
  return fmt::format("step {} of its operation #{}", progress - progress_of(operation, 0),
                     operation);
}

std::string LocalGroup::refusal_text(int peer) {
  const auto refused = control(peer).refused.read();
  if (!refused || refused->number <= newest_sequence(control(peer).records)) return "";
  return fmt::format("; a call of rank {} was refused: {}", peer, refused->text);
}

void LocalGroup::say_waiting(std::string_view doing) {
  Groups& g = groups();
  const std::lock_guard lock(g.mutex);
  for (LocalGroup* other : g.all) {
    // Ranks that are threads have a mesh each; of one process's it is enough to be its only rank.
    const bool same_rank = other->mesh_ == mesh_ || (other->alone_in_process_ && alone_in_process_);
    if (other != this && same_rank && !other->is_inherited())
      other->control().elsewhere.say(now_ns(), doing);
  }
}

std::string LocalGroup::elsewhere_text(int peer) {
  // Who waits says so every 10 ms or so; what is older than this is over.
  constexpr std::uint64_t kFresh = 250'000'000;
  const auto elsewhere = control(peer).elsewhere.read();
  if (!elsewhere || elsewhere->number + kFresh < now_ns()) return "";
  return fmt::format(
      "; that rank is itself waiting, in another communicator: {}. Ranks that use several "
      "communicators on one thread must use them in the same order",
      elsewhere->text);
}

void LocalGroup::throw_failure() const {
  const Failure f = failure();
  throw Error(f.code, f.text, f.rank);
}

void LocalGroup::check_peers(std::string_view doing) {
  mesh_->drain();
  for (const int peer : ending_ranks()) {
    if (has_left(peer)) continue;
    fail({ErrorCode::peer_lost, peer,
          fmt::format(
              "rank {} (pid {}) died after {}; rank {} noticed while {}{}. Its own output or "
              "the kernel's log says why; restart the job, or go on without that rank "
              "(shrink)",
              peer, pid(peer), progress_text(peer), rank_, doing, refusal_text(peer))});
  }
}

void LocalGroup::ring_now(ControlBlock& c) {
  c.bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&c.bell), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void LocalGroup::sleep_now(std::span<LocalGroup* const> groups,
                           std::span<const std::uint32_t> bells) {
  constexpr long kMost = 1'000'000;  // ns
  if (groups.size() > 1) {
    std::array<futex_waitv, kMostBells> waits{};
    for (std::size_t g = 0; g < groups.size(); ++g) {
      waits[g].val = bells[g];
      waits[g].uaddr = reinterpret_cast<std::uint64_t>(&groups[g]->control().bell);
      waits[g].flags = FUTEX_32;
    }
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += kMost;
    if (until.tv_nsec >= 1'000'000'000) {
      until.tv_nsec -= 1'000'000'000;
      ++until.tv_sec;
    }
    if (syscall(SYS_futex_waitv, waits.data(), groups.size(), 0, &until, CLOCK_MONOTONIC) >= 0 ||
        errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) {
      return;
    }
    // Before Linux 5.16, and where a sandbox refuses the call, the first bell alone is heard.
  }
  const timespec most{0, kMost};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&groups[0]->control().bell), FUTEX_WAIT,
          bells[0], &most, nullptr, 0);
}

}  // namespace tutti
