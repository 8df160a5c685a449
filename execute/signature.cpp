#include "execute/signature.h"

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
         static_cast<std::uint64_t>(s.kind) << 16 | static_cast<std::uint64_t>(s.compressed) << 19 |
         static_cast<std::uint64_t>(s.label) << 20 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(s.root)) << 32;
}

}  // namespace

std::uint64_t Signature::hash() const { return mix(mix(packed(*this), count), detail); }

std::string Signature::text() const {
  const bool internal = label >= kSplit;
  std::string s(!internal          ? name(collective)
                : label == kSplit  ? "split"
                : label == kWindow ? "window"
                                   : "release_memory");
  if (sequence != 0) s += fmt::format(" #{}", sequence);
  if (internal || collective == Collective::barrier) return s;
  s += fmt::format(" ({}", name(type));
  // Of all_to_all_v no rank knows all counts.
  if (collective != Collective::all_to_all_v) s += fmt::format(" x {}", count);
  if (is_reduction(collective)) s += fmt::format(", {}", name(kind));
  if (is_rooted(collective)) s += fmt::format(", root {}", root);
  if (compressed) s += ", compressed";
  if (label != 0) s += fmt::format(", label {}", label);
  return s + ")";
}

namespace {

// Below kPulledTag: 26 bits of the count; or with this bit the label and 15 bits of the count.
constexpr std::uint32_t kLabelledTag = kPulledTag >> 1;
constexpr unsigned kLabelShift = 15;

}  // namespace

std::uint32_t point_to_point_tag(DataType type, std::size_t count, std::uint16_t label) {
  const std::uint32_t head = (static_cast<std::uint32_t>(type) + 1) << 28;
  if (label == 0) return head | static_cast<std::uint32_t>(count & (kLabelledTag - 1));
  return head | kLabelledTag | (label & (Signature::kSplit - 1U)) << kLabelShift |
         static_cast<std::uint32_t>(count & ((1U << kLabelShift) - 1));
}

std::string point_to_point_text(std::uint32_t tag) {
  const std::string_view type = name(static_cast<DataType>((tag >> 28) - 1));
  if ((tag & kLabelledTag) == 0) return fmt::format("{} x {}", type, tag & (kLabelledTag - 1));
  constexpr std::uint32_t kCounts = 1U << kLabelShift;
  return fmt::format("{} x {} (modulo {}), label {}", type, tag & (kCounts - 1), kCounts,
                     tag >> kLabelShift & (Signature::kSplit - 1U));
}

void publish_signature(ControlBlock& mine, const Signature& s, CallsOn on) {
  OperationRecord& r = records_of(mine, on)[s.sequence % kRecords];
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

std::optional<Signature> read_signature(ControlBlock& control, std::uint64_t sequence, CallsOn on) {
  OperationRecord& r = records_of(control, on)[sequence % kRecords];
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
  s.kind = static_cast<ReduceKind>(word >> 16 & 0x7);
  s.compressed = (word >> 19 & 1) != 0;
  s.label = static_cast<std::uint16_t>(word >> 20 & 0xfff);
  s.root = static_cast<std::int32_t>(word >> 32);
  return s;
}

void publish_counts(ControlBlock& mine, std::uint64_t sequence, std::span<const std::size_t> in,
                    std::span<const std::size_t> out) {
  UnevenCounts& c = mine.uneven;
  // As in publish_signature().
  c.sequence.store(0, std::memory_order_relaxed);
  const auto fill = [](auto& to, std::span<const std::size_t> from) {
    for (std::size_t b = 0; b < std::min(to.size(), from.size()); ++b) {
      to[b].store(from[b], std::memory_order_release);
    }
  };
  fill(c.in, in);
  fill(c.out, out);
  c.sequence.store(sequence, std::memory_order_release);
}

namespace {

constexpr char kAllTheSame[] = "All ranks must make the same calls in the same order";

/// The counts of two ranks' calls number `sequence`, as far as they can be read.
std::string differing_counts(RankGroup& group, const Signature& mine, int peer) {
  const UnevenCounts& own = group.control().uneven;
  const UnevenCounts& theirs = group.control(peer).uneven;
  const auto there = [&] {
    return own.sequence.load(std::memory_order_acquire) == mine.sequence &&
           theirs.sequence.load(std::memory_order_acquire) == mine.sequence;
  };
  if (!there()) return "";
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto other = static_cast<std::size_t>(peer);
  const std::size_t blocks =
      std::min(UnevenCounts::kBlocks, static_cast<std::size_t>(group.size()));
  const auto count = [](const std::atomic<std::uint64_t>& c) {
    return c.load(std::memory_order_acquire);
  };
  std::string text;
  if (mine.collective == Collective::all_to_all_v) {
    if (rank >= blocks || other >= blocks) return "";
    const auto differ = [&](int from, std::uint64_t sent, int to, std::uint64_t expected) {
      if (text.empty() && sent != expected) {
        text = fmt::format("rank {} sends {} elements to rank {}, which expects {} from it", from,
                           sent, to, expected);
      }
    };
    differ(group.rank(), count(own.in[other]), peer, count(theirs.out[rank]));
    differ(peer, count(theirs.in[rank]), group.rank(), count(own.out[other]));
  } else {
    const bool gathers = mine.collective == Collective::all_gather_v;
    for (std::size_t b = 0; b < blocks && text.empty(); ++b) {
      const std::uint64_t a = count((gathers ? own.out : own.in)[b]);
      const std::uint64_t t = count((gathers ? theirs.out : theirs.in)[b]);
      if (a == t) continue;
      text = fmt::format("the count for rank {} is {} on rank {}, but {} on rank {}", b, a,
                         group.rank(), t, peer);
    }
  }
  return there() ? text : "";
}

/// Ranks find out in all_to_all_v alone what they send each other.
void compare_counts(RankGroup& group) {
  const std::uint64_t sequence = group.control().uneven.sequence.load(std::memory_order_relaxed);
  const auto mine = read_signature(group.control(), sequence, CallsOn::host);
  if (sequence == 0 || !mine || mine->collective != Collective::all_to_all_v) return;
  for (int r = 0; r < group.size() && !group.liveness().failed(); ++r) {
    const std::string text = differing_counts(group, *mine, r);
    if (text.empty()) continue;
    group.liveness().fail(
        {ErrorCode::mismatch, r, fmt::format("calls of {} do not match: {}", mine->text(), text)});
  }
}

/// How many other ranks than the two are known to have made each one's call.
struct Others {
  int as_mine = 0, as_theirs = 0;
};
Others others(RankGroup& group, const Signature& mine, int peer, const Signature& theirs,
              CallsOn on) {
  Others n;
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank() || r == peer) continue;
    const auto other = read_signature(group.control(r), mine.sequence, on);
    n.as_mine += other && *other == mine ? 1 : 0;
    n.as_theirs += other && *other == theirs ? 1 : 0;
  }
  return n;
}

std::string as_others(int count) {
  return count == 0 ? "" : fmt::format(" (as {} other{})", count, count > 1 ? "s" : "");
}

/// What to say of rank `rank`'s call under this number, if it was refused, and why; else "".
std::string refused_call(RankGroup& group, int rank, std::uint64_t sequence) {
  const auto refused = group.control(rank).refused.read();
  if (!refused || refused->number != sequence) return "";
  return fmt::format(". Before that, a call of rank {} was refused: {}", rank, refused->text);
}

}  // namespace

void compare_with_peers(RankGroup& group, std::uint64_t sequence, CallsOn on) {
  const auto mine = read_signature(group.control(), sequence, on);
  if (!mine) return;
  for (int r = 0; r < group.size(); ++r) {
    const auto theirs = read_signature(group.control(r), sequence, on);
    if (!theirs || *theirs == *mine) continue;
    // Calls do not match either where some have given up a call that a dead rank was to take part
    // in.
    group.liveness().check_peers_first("making " + mine->text());
    if (group.liveness().failed()) return;
    group.diagnostics().refresh_others();  // their calls say which of the two is the odd one out
    const bool on_host = on == CallsOn::host;
    const char* const where = on_host ? "" : " on GPU memory";
    std::string more;
    if (on_host && is_v(mine->collective) && mine->collective == theirs->collective) {
      more = differing_counts(group, *mine, r);
      if (!more.empty()) more = ": " + more;
    }
    if (more.empty() && theirs->text() == mine->text()) {
      more = " with other counts, or another plan";
    }
    if (on_host) {
      more += refused_call(group, group.rank(), sequence) + refused_call(group, r, sequence);
    }
    const Others n = others(group, *mine, r, *theirs, on);
    group.liveness().fail(
        {ErrorCode::mismatch, n.as_theirs > n.as_mine ? group.rank() : r,
         fmt::format("calls do not match: rank {} called {}{}{}, rank {} called {}{}{}{}. {}",
                     group.rank(), mine->text(), where, as_others(n.as_mine), r, theirs->text(),
                     where, as_others(n.as_theirs), more, kAllTheSame)});
    return;
  }
}

std::string newest_text(ControlBlock& control, CallsOn on) {
  const std::uint64_t newest = newest_sequence(records_of(control, on));
  if (newest == 0) return "none";
  const auto signature = read_signature(control, newest, on);
  return signature ? signature->text() : fmt::format("#{}", newest);
}

void compare_with_peers(RankGroup& group, CallsOn on) {
  const std::uint64_t newest = newest_sequence(records_of(group.control(), on));
  for (std::uint64_t s = newest - std::min<std::uint64_t>(newest, kRecords) + 1;
       s <= newest && !group.liveness().failed(); ++s) {
    compare_with_peers(group, s, on);
  }
  if (on == CallsOn::host && !group.liveness().failed()) compare_counts(group);
}

}  // namespace tutti
