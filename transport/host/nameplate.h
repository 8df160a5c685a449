// What a segment of shared memory says of itself to a program that looks at the process from
// outside, as `tutti top` does: which rank owns it, and in which layout the rest comes.
//
// Two kinds of memfds carry nameplates: the segment of a communicator's ranks on a host, whose
// control blocks each begin with one, and, while a rank meets others, a segment that has nothing
// else. Their names lead there: /proc/PID/fd shows them to the process's own user, and to root. The
// process does nothing for that but write this once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/host/connection.h"
#include "transport/host/shared_memory.h"

namespace tutti {

struct alignas(kCacheLine) Nameplate {
  static constexpr std::uint64_t kMagic = 0x316b'6e61'7220'7474;  // "tt rank1", read as a number
  static constexpr std::uint32_t kVersion = 2;                    // of what a control block holds
  static constexpr char kSegment[] = "tutti-segment";
  static constexpr char kMeeting[] = "tutti-meeting";

  std::atomic<std::uint64_t> magic;  // stored last; 0: nothing is here yet
  std::uint32_t version;
  std::uint32_t block_bytes;   // of a control block; 0: the ranks are about to meet
  std::uint64_t communicator;  // the same on its ranks, and on no others; where they meet: of that
  std::uint64_t identity;      // of the rank, the same in all of its communicators; 0: none yet
  std::int32_t rank, size;
  std::int32_t here;      // so many of the ranks are on this host
  std::int32_t job_rank;  // its number among the ranks that met at the start; -1: it came later
  std::int32_t pid;       // as the process itself sees it
  std::int64_t made_at;   // steady clock, ns

  /// Now, by this process.
  void fill(const Nameplate& what);
};

/// Shows that this process is rank `rank` of `size` and waits for the others to meet it, as long as
/// the result lives. `place`: the same on all of these. Null where there is no memory for it.
std::shared_ptr<SharedMemory> show_meeting(int rank, int size, std::uint64_t place);

}  // namespace tutti
