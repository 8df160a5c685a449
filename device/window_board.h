// Where the processes of a communicator tell each other which of their GPU memory may be addressed
// (windows), and where they vote: a page of shared memory for each process, which it alone
// writes, but for the doorbell.
//
//     owner      posts a notice | rings the others' doorbells | ... until all have answered | next
//     listener   woken: reads the notice | maps, or lets go | answers: done, or refused
//
// One notice is up at a time. Nothing is reset: notices and votes are numbered, from 1.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/board.h"
#include "execute/host/peer_wait.h"
#include "execute/windows.h"

namespace tutti {

class DeviceWindowBoard {
 public:
  /// Sends this process's page to the others. They may look for it once they see a card.
  explicit DeviceWindowBoard(RankGroup& group);

  struct Notice {
    std::uint32_t window = 0;  // its id
    bool opens = false;        // else it is closed
    CudaMemoryHandle handle;   // of a whole allocation
  };

  // --- The other processes, by the rank that made their page -------------------------------------

  /// Looks for pages that were not there yet. Throws Error for a card that makes no sense.
  void discover();
  /// Whether all pages are known.
  bool is_complete() const;
  /// The processes known so far, and the ranks of one.
  std::vector<int> processes() const;
  std::vector<int> ranks_of(int process) const;
  /// Whether a rank of `process` has taken its card away.
  bool is_gone(int process) const;

  // --- The owner; one thread at a time -----------------------------------------------------------

  /// Call it once all pages are known and all processes have answered the notice before. `fd`: of
  /// the handle.
  void post(const Notice& notice, const FileDescriptor& fd);
  /// A process that has not answered the newest notice; -1: none. From any thread.
  int awaited() const;
  /// Whether one has refused it, once all have answered.
  bool refused() const;

  // --- The listener; one thread ------------------------------------------------------------------

  /// What `process` has posted and this one has not answered. Not to be trusted. Throws Error.
  std::optional<Notice> next(int process) const;
  /// The descriptor that comes with it. Throws Error.
  FileDescriptor descriptor(int process);
  void answer(int process, bool refuses);
  /// Returns when this process's doorbell has been rung since the last time, or after 20 ms.
  void wait_for_doorbell();

  // --- Agreements --------------------------------------------------------------------------------

  /// The processes' answer to a question: yes if all say yes, once and for good; nothing before
  /// they have answered.
  std::optional<bool> agreed(std::uint32_t question) const;
  /// agreed() after a vote if it is due. Each process votes when the first of its ranks gets here,
  /// and for that rank. All ranks make the same calls in the same order, so the processes vote on
  /// the same questions in the same order; `operation`: a hash of the call, to see that. `what`
  /// describes the wait (PeerWait). Throws Error.
  bool agree(RankGroup& group, std::uint32_t question, std::uint64_t operation, bool yes,
             const std::string& what, const WaitPolicy& policy);

 private:
  struct Ballot;
  struct Page;
  struct Answer;
  struct Process {
    int maker = -1;  // the rank that made the page; -1: not known yet
    std::shared_ptr<SharedMemory> memory;
  };

  Page& page(const SharedMemory& memory) const;
  Answer& answer_of(const SharedMemory& listener, int maker) const;
  std::uint64_t page_key(int maker) const;
  Process process_of(int rank) const;

  /// The `number`-th vote.
  bool vote(RankGroup& group, std::uint64_t number, std::uint64_t operation, bool yes,
            const std::string& what, const WaitPolicy& policy);

  std::shared_ptr<HostPeers> host_peers_;
  DeviceBoard cards_;
  int maker_;  // of this process's page
  std::vector<int> members_;
  std::vector<std::uint64_t> keys_;
  std::shared_ptr<SharedMemory> mine_;
  std::atomic<std::uint64_t> posted_{0};
  std::uint32_t doorbell_ = 0;
  mutable std::mutex mutex_;        // of what follows
  std::vector<Process> processes_;  // by rank

  // One vote at a time. No lock is held during a vote: a rank that has its vote behind it would
  // wait for the next vote, of a rank that is ahead, while other ranks wait for it in kernels.
  mutable std::mutex votes_mutex_;  // of what follows
  std::condition_variable vote_ended_;
  bool votes_now_ = false;
  std::uint64_t votes_ = 0;
  std::map<std::uint32_t, GpuAgreement> agreements_;  // by question
};

}  // namespace tutti
