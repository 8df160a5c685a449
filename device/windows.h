// Windows between processes: users' buffers, which kernels of other processes read and write. A
// window is a whole allocation of GPU memory. It is shared when a call first passes a buffer that
// lies in it: the other processes map it at once, on a thread of their own, whatever else they do,
// and the call waits for that. From then on such buffers cost a look at a table. A buffer's place
// in its window differs from rank to rank, and so may everything else.
//
//     find     a buffer's window and its place there; opens the window if it is not open
//     stage    memory to which a buffer is copied that lies in no window (it cannot be shared)
//     agree    before the first call of a kind: do all buffers lie in windows? Else it goes without
//
// The id of an allocation tells that it is gone, even when its address is in use again: its window
// is closed, and no process gets it any more. Others keep it mapped until they have read that, for
// about 0.1 s at most. For so long its memory is not free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "device/executors.h"
#include "device/window_board.h"
#include "execute/host/peer_wait.h"

namespace tutti {

class DeviceWindows {
 public:
  /// Before the cards of this process's ranks are shown. Throws Error.
  DeviceWindows(RankGroup& group, const DeviceExecutors& executors);
  ~DeviceWindows();
  DeviceWindows(const DeviceWindows&) = delete;
  DeviceWindows& operator=(const DeviceWindows&) = delete;

  // --- For a call, on its thread; all processes' cards must be there -----------------------------

  /// Whether buffers are to lie in windows: of one process they always are, of several where this
  /// one was told so (TUTTI_CUDA_WINDOWS).
  bool are_wanted() const { return are_wanted_; }
  /// Where a buffer lies. No bytes lie anywhere: window 0.
  /// Nothing for memory that some process cannot map. Waits for the others when the window is new.
  /// Throws Error: peer_lost, timed_out, or what has failed the communicator.
  std::optional<WindowOffset> find(RankGroup& group, const void* buffer, std::size_t bytes,
                                   const WaitPolicy& policy);
  /// `bytes` of memory of rank `group.rank()`, in a window: its `which`-th stage (0, 1), valid
  /// until the rank's next call, or for ever in a graph. Throws Error.
  std::byte* stage(RankGroup& group, std::size_t which, std::size_t bytes,
                   const WaitPolicy& policy);

  // --- For the thread that looks after the others ------------------------------------------------

  /// Maps, or lets go of, the memory that the others name; closes windows after their memory is
  /// gone. Does not wait for other processes. Throws Error for what makes no sense.
  void look();
  /// The board on which the processes agree which kinds of calls go through windows. Its doorbell
  /// rings for look(). It may outlive this object.
  const std::shared_ptr<DeviceWindowBoard>& board() const { return board_; }
  /// Unmaps everything; when nothing runs any more and nobody looks.
  void leave();

  /// Collectives of this process's ranks that have run through windows, and buffers of them that
  /// were copied to and from stages; windows that were opened, and closed, of this process.
  struct Counts {
    std::atomic<std::uint64_t> calls{0}, staged{0}, opened{0}, closed{0};
  };
  Counts& counts() { return counts_; }
  const Counts& counts() const { return counts_; }
  /// Windows of other processes that are mapped here.
  std::size_t mapped() const { return mapped_; }

 private:
  struct OwnWindow {
    CudaAllocation memory;
    device::Device* gpu = nullptr;  // owns the memory
    std::uint32_t id = 0;           // 0: it cannot be shared
  };
  using Windows = std::map<const std::byte*, OwnWindow>;  // by their bases

  // The owner's side; with mutex_.
  Windows::iterator open(RankGroup& group, const CudaAllocation& memory, const WaitPolicy& policy);
  /// What the other processes need to map it; nothing where one of them cannot address it.
  std::optional<CudaExport> share(device::Device& gpu, const CudaAllocation& memory) const;
  void close(Windows::iterator window);
  void post(RankGroup& group, const DeviceWindowBoard::Notice& notice, const FileDescriptor& fd,
            const WaitPolicy& policy);
  void wait_for_answers(RankGroup& group, const WaitPolicy& policy);
  /// Whether there was one.
  bool close_one_that_is_gone();

  // The listener's.
  using Mappings = std::vector<device::Mapping>;  // of one window, for each of this process's GPUs

  bool take(int process, const DeviceWindowBoard::Notice& notice);
  Mappings map(int process, const CudaMemoryHandle& handle);
  device::Mapping map(device::Device& gpu, const CudaMemoryHandle& handle,
                      const FileDescriptor& fd);
  /// Makes window `id` of these ranks known to the kernels of this process's: from `base` on, or
  /// where it is mapped for their GPUs.
  void add(const std::vector<int>& ranks, std::uint32_t id, std::byte* base, std::size_t bytes);
  void add(const std::vector<int>& ranks, std::uint32_t id, const Mappings& mappings,
           std::size_t bytes);
  void drop(Mappings mappings);

  const DeviceExecutors& executors_;
  bool one_process_;
  bool are_wanted_;
  std::shared_ptr<DeviceWindowBoard> board_;
  std::vector<int> ranks_;  // this process's
  Counts counts_;

  std::mutex mutex_;  // of the owner's side; also while it waits for the others
  Windows windows_;
  // The ids of no window; those that were closed last are at the end.
  std::deque<std::uint32_t> free_ids_;

  // By the thread that looks.
  std::map<std::pair<int, std::uint32_t>, Mappings> mappings_;  // by process and id
  std::atomic<std::size_t> mapped_{0};
  std::shared_ptr<std::atomic<int>> dropping_ = std::make_shared<std::atomic<int>>(0);
  std::uint32_t looks_ = 0;

  // By rank; touched by the thread that makes its calls.
  struct Stages {
    struct Stage {
      std::byte* memory = nullptr;
      std::size_t bytes = 0;
    };
    Stage newest[2];
    std::vector<std::byte*> memory;  // of all, former ones too: graphs may use them
  };
  std::vector<Stages> stages_;
};

}  // namespace tutti
