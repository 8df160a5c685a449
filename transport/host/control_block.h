// What a rank of a communicator says of itself, for the other ranks to read: whether it is there,
// how far it is, what it has called, which rank it waits for, and the first failure. On one host it
// lies in shared memory; of a rank on another host, each rank keeps a copy of what it has been told
// last (control_copy.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collectives/model/findings.h"
#include "transport/host/connection.h"
#include "transport/host/doorbell.h"
#include "transport/host/failure.h"
#include "transport/host/nameplate.h"
#include "transport/host/remark.h"

namespace tutti {

/// What a rank says about its current operations, for others to compare and to report.
struct alignas(kCacheLine) OperationRecord {
  std::atomic<std::uint64_t> sequence;  // 1 + the operation's number; 0: never used
  std::array<std::atomic<std::uint64_t>, 6> words;
};
inline constexpr std::size_t kRecords = 64;  // the newest operations of a rank
using OperationRecords = std::array<OperationRecord, kRecords>;

/// The newest of these; 0: none.
std::uint64_t newest_sequence(const OperationRecords& records);

/// The counts of a rank's newest call with uneven blocks, of those in the first of its `records`.
struct alignas(kCacheLine) UnevenCounts {
  static constexpr std::size_t kBlocks = 256;  // of more ranks, these
  std::atomic<std::uint64_t> sequence;         // the operation's; 0: none, or being written
  std::array<std::atomic<std::uint64_t>, kBlocks> in, out;
};

enum Presence : std::uint32_t {
  kJoined = 1,
  kLeft = 2,
};

/// A wait that takes long, for a program that looks from outside (nameplate.h).
struct alignas(kCacheLine) ShownWait {
  std::atomic<std::int64_t> since;      // steady clock, ns; 0: none
  std::atomic<std::int64_t> looked_at;  // by the rank, last
  std::atomic<std::uint32_t> peer;      // 1 + the rank it is for
  std::atomic<std::uint32_t> started;   // 1: of a started call, for which no caller may wait
  Remark call;                          // what was called, in words; its number: `since`
};

/// The waits of a rank's callers, of those that took longer than a few microseconds.
struct CallersWaits {
  std::atomic<std::uint64_t> ns;       // that they took so far, together
  std::atomic<std::uint32_t> futures;  // so many wait for a started call now
};

/// In pages of its own, which it takes as it uses them.
struct alignas(4096) ControlBlock {
  Nameplate nameplate;  // first, where a program that looks from outside finds it
  alignas(kCacheLine) Doorbell doorbell;
  alignas(kCacheLine) std::atomic<std::uint64_t> progress;  // see progress_of()
  std::atomic<std::uint32_t> touches;  // 1: it reads or writes other ranks' memory now
  std::atomic<std::uint32_t> core;     // 1 + where it waited last, if ranks share cores; 0: unknown
  // Of a wait that takes long: 1 + the rank it is for, and when it has last looked (steady clock,
  // ns).
  std::atomic<std::uint32_t> waits_for;
  std::atomic<std::int64_t> waited_at;
  CallersWaits callers;
  alignas(kCacheLine) std::atomic<std::uint32_t> state;  // Presence bits
  // Only those of a host's first rank are used: its word on whether all have joined,
  // how many of the host's have, the first failure, and what is found out for all.
  alignas(kCacheLine) std::atomic<std::uint64_t> joining;
  std::atomic<std::uint32_t> joined;       // so many ranks have,
  std::atomic<std::uint32_t> without_cma;  // of which so many cannot read the others' memory
  FailureRecord failure;
  Findings findings;
  // Independent series of operations, each numbered from 1; `progress` is about the first.
  static constexpr std::size_t kSeries = 2;
  std::array<OperationRecords, kSeries> records;
  // Memory for what a layer above says to the ranks of this host. That layer alone knows its
  // layout; zeros at first.
  static constexpr std::size_t kAreaBytes = 192;
  alignas(kCacheLine) std::array<std::byte, kAreaBytes> area;
  UnevenCounts uneven;
  // For messages. A call that was refused here, with the number that it would have had; what this
  // rank waits for here, and in another communicator, with the time (steady_clock); what a layer
  // above announces to the other ranks.
  Remark refused;
  Remark waiting;
  Remark elsewhere;
  Remark announced;
  // The newest error that a call of this rank has thrown, with the time (steady_clock).
  Remark error;
  // Several calls wait at once where the engine runs them.
  static constexpr std::size_t kShownWaits = 4;
  std::array<ShownWait, kShownWaits> shown_waits;
};

/// How far a rank is, in one word: `step` steps of its operation `operation` are done.
inline constexpr int kStepBits = 24;
constexpr std::uint64_t progress_of(std::uint64_t operation, std::uint64_t step) {
  return operation << kStepBits | step;
}

}  // namespace tutti
