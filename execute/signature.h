// What an operation is, in a form that ranks compare: every message of an operation carries its
// signature's tag, and every rank keeps its newest signatures where the others can read them. So
// calls that do not match become an error that names both sides, at the cost of a word in a cache
// line that moves anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/collective.h"
#include "core/types.h"
#include "transport/rank_group.h"

namespace tutti {

struct Signature {
  std::uint64_t sequence = 0;  // number of the collective on its communicator, from 1; send/recv: 0
  Collective collective = Collective::barrier;
  DataType type = DataType::uint8;
  ReduceKind kind = ReduceKind::sum;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  std::uint64_t detail = 0;  // hash of what else must agree (counts of a v-variant, the plan)
  // What else tells calls apart: the caller's label, or what split(), window() and release_memory()
  // exchange.
  static constexpr std::uint16_t kSplit = 1 << 11, kWindow = kSplit + 1,
                                 kReleaseMemory = kWindow + 1;
  std::uint16_t label = 0;
  bool compressed = false;  // Call::compressed

  /// A hash of all fields but the sequence.
  std::uint64_t hash() const;
  /// "all_reduce #12 (float32 x 1024, sum)".
  std::string text() const;
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// What the messages of operation `sequence` with this Signature::hash() carry: one multiplication,
/// because every short call waits for it.
constexpr std::uint32_t tag_of(std::uint64_t hash, std::uint64_t sequence) {
  return static_cast<std::uint32_t>((hash + sequence) * 0xd6e8feb86659fd93ULL >> 32);
}

/// send and recv are numbered by nobody: their tag is the type, the label and the count themselves
/// (of a large count the lower bits), and whether the message tells only where the data lie.
std::uint32_t point_to_point_tag(DataType type, std::size_t count, std::uint16_t label);
inline constexpr std::uint32_t kPulledTag = 1U << 27;
std::string point_to_point_text(std::uint32_t tag);

/// Which of a rank's series of operations (ControlBlock::records): those on memory of the host, or
/// of GPUs.
enum class CallsOn : std::uint8_t { host, gpu };
inline OperationRecords& records_of(ControlBlock& control, CallsOn on) {
  return control.records[static_cast<std::size_t>(on)];
}

/// Makes `s` readable for the other ranks.
void publish_signature(ControlBlock& mine, const Signature& s, CallsOn on = CallsOn::host);
/// Publishes a signature that the last kRecords operations of this rank had but for the sequence:
/// the rest of the record is there already.
inline void publish_sequence(ControlBlock& mine, std::uint64_t sequence) {
  records_of(mine, CallsOn::host)[sequence % kRecords].sequence.store(sequence,
                                                                      std::memory_order_release);
}
/// The signature of operation `sequence` of the rank that owns `control`, if it has begun and is
/// among the newest.
std::optional<Signature> read_signature(ControlBlock& control, std::uint64_t sequence,
                                        CallsOn on = CallsOn::host);

/// Makes the counts of a v-variant readable for the other ranks.
void publish_counts(ControlBlock& mine, std::uint64_t sequence, std::span<const std::size_t> in,
                    std::span<const std::size_t> out);

/// What a rank has begun last, as Signature::text(); "none".
std::string newest_text(ControlBlock& control, CallsOn on = CallsOn::host);

/// Fails the communicator if a rank has begun another operation than this rank under the same
/// number, as far as the records tell.
void compare_with_peers(RankGroup& group, CallsOn on = CallsOn::host);
/// compare_with_peers() for operation `sequence` only.
void compare_with_peers(RankGroup& group, std::uint64_t sequence, CallsOn on = CallsOn::host);

/// Mixes `value` into `seed`.
std::uint64_t mix(std::uint64_t seed, std::uint64_t value);

}  // namespace tutti
