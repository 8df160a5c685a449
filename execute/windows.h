// Windows: memory of a rank that other ranks read and write directly. There are windows of host
// memory and of GPU memory. They differ in how ranks come to map them:
//
//                       host memory                     GPU memory
//     a window is       what allocate() or              a whole allocation of the user's
//                       register_memory() gave
//     listed in         core/window_memory.h            device/windows.h
//     told to others    by transport/host/host_peers.h, by device/window_board.h: the call waits
//                       the call does not wait          until all have mapped it, as no kernel can
//     mapped            when a step first needs it      at once, into the table of segment.h
//
// What ranks then say of their buffers, and how they agree to use windows at all, is the same for
// both, and is here.
#pragma once

#include <cstdint>

namespace tutti {

/// A place in a window of the rank that speaks. Window 0: in none.
struct WindowOffset {
  std::uint32_t window = 0;
  std::uint64_t offset = 0;
};

/// What a rank tells another one of its buffers in, out and tmp: the payload of a signal, six words
/// of 8 bytes.
struct BufferAddresses {
  std::uint64_t at[3];      // offsets in windows, else addresses that are valid where they are told
  std::uint32_t window[3];  // 0: an address
  std::uint32_t reserved;
  std::uint64_t
      scalar;  // pre_multiplied_sum; of all_to_all_v, and of a message, the elements at at[0]
  bool operator==(const BufferAddresses&) const = default;
};
static_assert(sizeof(BufferAddresses) == 6 * sizeof(std::uint64_t));

/// A yes or no that all ranks rely on, such as whether calls of one kind go through windows. A plan
/// that goes through windows runs on all ranks or on none. So the ranks find out together whether
/// all their buffers lie in windows, and a rank with a buffer that lies in none (any more) copies
/// it to one. The first `sure` calls ask, and later ones as often as every `again`-th call with the
/// same answer (0: no later ones).
template <std::uint32_t sure, std::uint32_t again>
class Agreement {
 public:
  /// Whether the next call asks. The same on all ranks, as they count the same calls.
  bool is_due() const {
    if (calls_ < sure) return true;
    if constexpr (again == 0) return false;
    return calls_ % again == 0;
  }
  /// What the ranks have found.
  void found(bool answer) {
    if (answer_ != answer) calls_ = 0;
    answer_ = answer;
  }
  void count() { ++calls_; }
  bool answer() const { return answer_; }

 private:
  bool answer_ = false;
  std::uint32_t calls_ = 0;  // in a row with this answer, also those that did not ask
};
/// Host memory: to ask costs an all-reduce of one byte on the thread that makes the call. Memory
/// that was registered since makes later calls faster, so the ranks ask again.
using HostAgreement = Agreement<8, 64>;
/// GPU memory: to ask, a call waits for the other processes, and a captured graph, which runs its
/// calls later, cannot. So the ranks ask once.
using GpuAgreement = Agreement<1, 0>;

}  // namespace tutti
