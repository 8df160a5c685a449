// What a rank of a communicator says of itself, for the other ranks to read: whether it is there,
// how far it is, what it has called, for whom it waits, and the first failure. On one host it lies
// in shared memory; of a rank on another host, each rank keeps a copy of what it has been told last
// (control_copy.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "transport/connection.h"
#include "transport/cuda_ipc.h"
#include "transport/doorbell.h"
#include "transport/remark.h"

namespace tutti {

/// The first failure of a communicator: written once, read by everyone.
struct Failure {
  ErrorCode code = ErrorCode::internal;
  int rank = -1;
  std::string text;
  // Of peer_lost: the rank, and its host, may well be there, but nothing comes through.
  bool cut_off = false;
};

/// What a rank says about its current operations, for others to compare and to report.
struct alignas(kCacheLine) OperationRecord {
  std::atomic<std::uint64_t> sequence;  // 1 + the operation's number; 0: never used
  std::array<std::atomic<std::uint64_t>, 6> words;
};
inline constexpr std::size_t kRecords = 64;  // the newest operations of a rank

/// The newest of these; 0: none.
std::uint64_t newest_sequence(const std::array<OperationRecord, kRecords>& records);

/// The counts of a rank's newest call with uneven blocks, of collectives on memory of the host.
struct alignas(kCacheLine) UnevenCounts {
  static constexpr std::size_t kBlocks = 256;  // of more ranks, these
  std::atomic<std::uint64_t> sequence;         // the operation's; 0: none, or being written
  std::array<std::atomic<std::uint64_t>, kBlocks> in, out;
};

/// What the others are told of a rank's memory on a GPU (device/board.h).
struct alignas(kCacheLine) DeviceCard {
  std::atomic<std::uint32_t> state;
  std::uint32_t most_blocks;
  std::int32_t carrier;
  std::array<std::uint64_t, 2> gpu;
  CudaMemoryHandle segment;
};

enum Presence : std::uint32_t {
  kJoined = 1,
  kCmaWorks = 2,
  kLeft = 4,
};

struct ControlBlock {
  alignas(kCacheLine) Doorbell doorbell;
  alignas(kCacheLine) std::atomic<std::uint64_t> progress;  // see progress_of()
  std::atomic<std::uint32_t> core;  // 1 + where it waited last, if ranks share cores; 0: unknown
  std::int32_t gpu;                 // RankCard's; with kJoined
  // Of a wait that takes long: for whom (1 + rank), and when it has last looked (steady clock, ns).
  std::atomic<std::uint32_t> waits_for;
  std::atomic<std::int64_t> waited_at;
  alignas(kCacheLine) std::atomic<std::uint32_t> state;  // Presence bits
  // Only those of a host's first rank are used: its word on whether all have joined (joining.h),
  // and the first failure.
  alignas(kCacheLine) std::atomic<std::uint64_t> joining;
  alignas(kCacheLine) std::atomic<std::uint32_t> failure_state;  // 0 none, 1 being written, 2 there
  std::atomic<std::uint32_t> failure_code;
  std::atomic<std::int32_t> failure_rank;
  std::atomic<std::uint32_t> failure_cut_off;
  std::array<char, 1024> failure_text;
  // Of collectives on memory of the host, and of those on GPUs: each are numbered from 1.
  std::array<OperationRecord, kRecords> records;
  std::array<OperationRecord, kRecords> device_records;
  DeviceCard device;
  UnevenCounts uneven;
  // For messages. A call that was refused here, with the number that it would have had; what this
  // rank waits for here, and in another communicator, with the time (steady_clock); the ranks that
  // its newest shrink() excludes (comm/shrink.h).
  Remark refused;
  Remark waiting;
  Remark elsewhere;
  Remark shrinking;
};

/// How far a rank is, in one word: `step` steps of its operation `operation` are done.
inline constexpr int kStepBits = 24;
constexpr std::uint64_t progress_of(std::uint64_t operation, std::uint64_t step) {
  return operation << kStepBits | step;
}

}  // namespace tutti
