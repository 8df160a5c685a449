#include "collectives/execute/signature.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {

std::uint64_t mix(std::uint64_t seed, std::uint64_t value) {
  // Multiply and fold, twice: enough to tell two calls apart, in a few cycles.
  std::uint64_t h = (seed ^ (value + 0x9e3779b97f4a7c15ULL)) * 0xd6e8feb86659fd93ULL;
  h ^= h >> 32;
  h *= 0xd6e8feb86659fd93ULL;
  return h ^ (h >> 32);
}

namespace {

std::uint64_t packed(const Signature& s) {
  return static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.type) << 8 |
         static_cast<std::uint64_t>(s.kind) << 16 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 32;
}

}  // namespace

std::uint64_t Signature::hash() const { return mix(mix(packed(*this), count), detail); }

std::string Signature::text() const {
  std::string s(name(collective));
  if (sequence != 0) s += fmt::format(" #{}", sequence);
  if (collective == Collective::barrier) return s;
  s += fmt::format(" ({} x {}", name(type), count);
  if (is_reduction(collective)) s += fmt::format(", {}", name(kind));
  if (is_rooted(collective)) s += fmt::format(", root {}", root);
  return s + ")";
}

std::uint32_t point_to_point_tag(DataType type, std::size_t count) {
  return (static_cast<std::uint32_t>(type) + 1) << 28 |
         static_cast<std::uint32_t>(count & 0xfffffff);
}

std::string point_to_point_text(std::uint32_t tag) {
  return fmt::format("{} x {}", name(static_cast<DataType>((tag >> 28) - 1)), tag & 0xfffffff);
}

void publish_signature(ControlBlock& mine, const Signature& s, Records records) {
  OperationRecord& r = (mine.*records)[s.sequence % kRecords];
  // A reader that is kRecords operations late must not mix two of them: sequence is 0 in between.
  // The words are stored with release, so that the 0 is there before they are.
  r.sequence.store(0, std::memory_order_relaxed);
  r.words[0].store(packed(s), std::memory_order_release);
  r.words[1].store(s.count, std::memory_order_release);
  r.words[2].store(s.detail, std::memory_order_release);
  // A root may finish without hearing from anybody, so it looks at the others' records at once
  // (unless it repeats a call; then a later message, or wait, tells). Of two ranks that differ, the
  // sequentially consistent store lets at least one see the other's.
  const bool looks = is_rooted(s.collective);
  r.sequence.store(s.sequence, looks ? std::memory_order_seq_cst : std::memory_order_release);
}

std::optional<Signature> read_signature(ControlBlock& control, std::uint64_t sequence,
                                        Records records) {
  OperationRecord& r = (control.*records)[sequence % kRecords];
  if (r.sequence.load(std::memory_order_seq_cst) != sequence) return std::nullopt;
  // acquire: the look at the sequence below comes after these.
  const std::uint64_t word = r.words[0].load(std::memory_order_acquire);
  Signature s;
  s.sequence = sequence;
  s.count = r.words[1].load(std::memory_order_acquire);
  s.detail = r.words[2].load(std::memory_order_acquire);
  if (r.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  s.collective = static_cast<Collective>(word & 0xff);
  s.type = static_cast<DataType>(word >> 8 & 0xff);
  s.kind = static_cast<ReduceKind>(word >> 16 & 0xff);
  s.root = static_cast<std::int32_t>(word >> 32);
  return s;
}

void compare_with_peers(LocalGroup& group, std::uint64_t sequence, Records records) {
  const auto mine = read_signature(group.control(), sequence, records);
  if (!mine) return;
  for (int r = 0; r < group.size(); ++r) {
    const auto theirs = read_signature(group.control(r), sequence, records);
    if (!theirs || *theirs == *mine) continue;
    // Calls do not match either where some have given up a call that a dead rank was to take part
    // in.
    group.check_peers("making " + mine->text());
    const char* const where = records == &ControlBlock::device_records ? " on GPU memory" : "";
    const char* const more =
        theirs->text() == mine->text() ? " with other counts, or another plan" : "";
    group.fail({ErrorCode::mismatch, r,
                fmt::format("calls do not match: rank {} called {}{}, rank {} called {}{}{}. All "
                            "ranks must make the same calls in the same order",
                            group.rank(), mine->text(), where, r, theirs->text(), where, more)});
    return;
  }
}

namespace {

std::uint64_t newest_sequence(ControlBlock& control, Records records) {
  std::uint64_t newest = 0;
  for (const OperationRecord& r : control.*records) {
    newest = std::max(newest, r.sequence.load(std::memory_order_relaxed));
  }
  return newest;
}

}  // namespace

std::string newest_text(ControlBlock& control, Records records) {
  const std::uint64_t newest = newest_sequence(control, records);
  if (newest == 0) return "none";
  const auto signature = read_signature(control, newest, records);
  return signature ? signature->text() : fmt::format("#{}", newest);
}

void compare_with_peers(LocalGroup& group, Records records) {
  const std::uint64_t newest = newest_sequence(group.control(), records);
  for (std::uint64_t s = newest - std::min<std::uint64_t>(newest, kRecords) + 1;
       s <= newest && !group.failed(); ++s) {
    compare_with_peers(group, s, records);
  }
}

}  // namespace tutti
