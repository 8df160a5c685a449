#include "device/window_board.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "execute/signature.h"

namespace tutti {
namespace {

// A look at the others now and then, whether one rings or not.
constexpr timespec kLookEvery{0, 20'000'000};

void ring(std::atomic<std::uint32_t>& doorbell) {
  // release: the thread that wakes finds what was written before.
  doorbell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&doorbell), FUTEX_WAKE, 1, nullptr, nullptr,
          0);
}

}  // namespace

/// The newest and the one before take turns: nobody votes again before all have read.
struct alignas(kCacheLine) DeviceWindowBoard::Ballot {
  std::atomic<std::uint64_t> number;
  std::uint64_t operation;
  std::uint64_t yes;
};

// At the beginning; then an Answer for each rank.
struct alignas(kCacheLine) DeviceWindowBoard::Page {
  std::atomic<std::uint32_t> doorbell;  // anybody's to ring
  alignas(kCacheLine) std::atomic<std::uint64_t> notices;
  std::uint32_t window;
  std::uint32_t opens;
  CudaMemoryHandle handle;
  std::array<Ballot, 2> ballots;
};

/// This process's answer to the process of the rank that made the page.
struct alignas(kCacheLine) DeviceWindowBoard::Answer {
  std::atomic<std::uint64_t> notice;  // twice the number of the newest notice; plus 1: refused
};

DeviceWindowBoard::DeviceWindowBoard(RankGroup& group)
    : host_peers_(group.shared_host_peers()),
      cards_(group),
      maker_(group.rank()),
      processes_(static_cast<std::size_t>(group.size())) {
  const auto n = static_cast<std::size_t>(group.size());
  mine_ = SharedMemory::create("tutti-windows", sizeof(Page) + n * sizeof(Answer));
  for (int r = 0; r < group.size(); ++r) {
    members_.push_back(group.member(r));
    keys_.push_back(group.key(r));
    if (cards_.is_local(r)) processes_[static_cast<std::size_t>(r)] = {maker_, mine_};
  }
  for (int r = 0; r < group.size(); ++r) {
    if (!cards_.is_local(r)) host_peers_->send(group.member(r), page_key(maker_), mine_);
  }
}

DeviceWindowBoard::Page& DeviceWindowBoard::page(const SharedMemory& memory) const {
  return *reinterpret_cast<Page*>(memory.data());
}
DeviceWindowBoard::Answer& DeviceWindowBoard::answer_of(const SharedMemory& listener,
                                                        int maker) const {
  return reinterpret_cast<Answer*>(listener.data() + sizeof(Page))[maker];
}
std::uint64_t DeviceWindowBoard::page_key(int maker) const {
  return mix(keys_[static_cast<std::size_t>(maker)], 0x77696e646f7773);
}
DeviceWindowBoard::Process DeviceWindowBoard::process_of(int rank) const {
  const std::lock_guard lock(mutex_);
  return processes_[static_cast<std::size_t>(rank)];
}

// --- The other processes -------------------------------------------------------------------------

void DeviceWindowBoard::discover() {
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < cards_.size(); ++r) {
    Process& p = processes_[static_cast<std::size_t>(r)];
    if (p.maker >= 0) continue;
    const auto card = cards_.card(r);
    if (!card) continue;
    const int maker = card->carrier;
    const auto known = std::ranges::find(processes_, maker, &Process::maker);
    auto memory = known != processes_.end()
                      ? known->memory
                      : host_peers_->receive(members_[static_cast<std::size_t>(maker)],
                                             page_key(maker), mine_->size(), deadline_of_sent());
    p = {maker, std::move(memory)};
  }
}

bool DeviceWindowBoard::is_complete() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(processes_, -1, &Process::maker) == processes_.end();
}

std::vector<int> DeviceWindowBoard::processes() const {
  std::vector<int> makers;
  const std::lock_guard lock(mutex_);
  for (const Process& p : processes_) {
    if (p.maker < 0 || p.maker == maker_) continue;
    if (std::ranges::find(makers, p.maker) == makers.end()) makers.push_back(p.maker);
  }
  return makers;
}

std::vector<int> DeviceWindowBoard::ranks_of(int process) const {
  std::vector<int> ranks;
  const std::lock_guard lock(mutex_);
  for (int r = 0; r < cards_.size(); ++r) {
    if (processes_[static_cast<std::size_t>(r)].maker == process) ranks.push_back(r);
  }
  return ranks;
}

bool DeviceWindowBoard::is_gone(int process) const { return cards_.is_gone(process); }

// --- The owner -----------------------------------------------------------------------------------

void DeviceWindowBoard::post(const Notice& notice, const FileDescriptor& fd) {
  const std::vector<int> others = processes();
  const std::uint64_t number = posted_ + 1;
  // Before the notice, so that a process that has read it finds the descriptor.
  for (const int p : others) {
    if (fd)
      host_peers_->send(members_[static_cast<std::size_t>(p)], mix(page_key(maker_), number), fd);
  }
  Page& mine = page(*mine_);
  mine.window = notice.window;
  mine.opens = notice.opens ? 1 : 0;
  mine.handle = notice.handle;
  posted_ = number;
  // release: a reader that sees the number sees the rest.
  mine.notices.store(number, std::memory_order_release);
  for (const int p : others) ring(page(*process_of(p).memory).doorbell);
}

int DeviceWindowBoard::awaited() const {
  for (const int p : processes()) {
    // acquire: what the process has done for the notice is done.
    const std::uint64_t answered =
        answer_of(*process_of(p).memory, maker_).notice.load(std::memory_order_acquire);
    if (answered / 2 != posted_) return p;
  }
  return -1;
}

bool DeviceWindowBoard::refused() const {
  return std::ranges::any_of(processes(), [&](int p) {
    return answer_of(*process_of(p).memory, maker_).notice.load(std::memory_order_relaxed) % 2 != 0;
  });
}

// --- The listener --------------------------------------------------------------------------------

std::optional<DeviceWindowBoard::Notice> DeviceWindowBoard::next(int process) const {
  const auto memory = process_of(process).memory;
  const Page& theirs = page(*memory);
  const std::uint64_t number = theirs.notices.load(std::memory_order_acquire);
  const std::uint64_t answered =
      answer_of(*mine_, process).notice.load(std::memory_order_relaxed) / 2;
  if (number == answered) return {};
  if (number != answered + 1) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} posts notice {} of its windows after notice {}", process,
                            number, answered),
                process);
  }
  return Notice{theirs.window, theirs.opens != 0, theirs.handle};
}

FileDescriptor DeviceWindowBoard::descriptor(int process) {
  const std::uint64_t number =
      answer_of(*mine_, process).notice.load(std::memory_order_relaxed) / 2 + 1;
  return host_peers_->receive(members_[static_cast<std::size_t>(process)],
                              mix(page_key(process), number), deadline_of_sent());
}

void DeviceWindowBoard::answer(int process, bool refuses) {
  auto& notice = answer_of(*mine_, process).notice;
  const std::uint64_t number = notice.load(std::memory_order_relaxed) / 2 + 1;
  // release: what was done for the notice comes before.
  notice.store(2 * number + (refuses ? 1 : 0), std::memory_order_release);
}

void DeviceWindowBoard::wait_for_doorbell() {
  auto& doorbell = page(*mine_).doorbell;
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&doorbell), FUTEX_WAIT, doorbell_,
          &kLookEvery, nullptr, 0);
  doorbell_ = doorbell.load(std::memory_order_acquire);
}

// --- Agreements --------------------------------------------------------------------------------

std::optional<bool> DeviceWindowBoard::agreed(std::uint32_t question) const {
  const std::lock_guard lock(votes_mutex_);
  const auto known = agreements_.find(question);
  if (known == agreements_.end() || known->second.is_due()) return {};
  return known->second.answer();
}

bool DeviceWindowBoard::agree(RankGroup& group, std::uint32_t question, std::uint64_t operation,
                              bool yes, const std::string& what, const WaitPolicy& policy) {
  std::unique_lock lock(votes_mutex_);
  GpuAgreement& agreement = agreements_[question];
  vote_ended_.wait(lock, [&] { return !agreement.is_due() || !votes_now_; });
  if (!agreement.is_due()) return agreement.answer();
  votes_now_ = true;
  const std::uint64_t number = ++votes_;
  lock.unlock();
  const auto end = [&](std::optional<bool> result) {
    lock.lock();
    if (result) {
      agreement.found(*result);
      agreement.count();
    }
    votes_now_ = false;
    vote_ended_.notify_all();
  };
  try {
    const bool result = vote(group, number, operation, yes, what, policy);
    end(result);
    return result;
  } catch (...) {
    end({});
    throw;
  }
}

bool DeviceWindowBoard::vote(RankGroup& group, std::uint64_t number, std::uint64_t operation,
                             bool yes, const std::string& what, const WaitPolicy& policy) {
  discover();
  Ballot& mine = page(*mine_).ballots[number % 2];
  mine.operation = operation;
  mine.yes = yes ? 1 : 0;
  // release: a reader that sees the number sees the rest.
  mine.number.store(number, std::memory_order_release);
  bool all = yes;
  PeerWait wait(group, policy, what);
  for (const int process : processes()) {
    const auto memory = process_of(process).memory;
    const Ballot& theirs = page(*memory).ballots[number % 2];
    wait.until(process, [&] { return theirs.number.load(std::memory_order_acquire) == number; });
    if (theirs.operation != operation) {
      compare_with_peers(group, CallsOn::gpu);  // which has the names
      group.liveness().throw_if_failed();
      throw Error(ErrorCode::mismatch,
                  fmt::format("calls do not match: ranks {} and {} make different calls on GPU "
                              "memory. All ranks must make the same calls in the same order",
                              group.rank(), process),
                  process);
    }
    all = all && theirs.yes != 0;
  }
  return all;
}

}  // namespace tutti
