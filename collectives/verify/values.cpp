// Expressions and sets of contributions.
#include "collectives/verify/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti::proof {
namespace {

constexpr std::size_t kLongestText = 160;
constexpr int kNearProbes = 8;
constexpr std::uint64_t kMostPooled = std::uint64_t{1} << 27;  // 1 GiB of intervals

std::uint32_t hash_of(std::span<const Value> parts) {
  std::uint64_t h = parts.size();
  for (const Value v : parts) {
    h = (h ^ v) * 0x9e3779b97f4a7c15U;
    h ^= h >> 32;
  }
  return static_cast<std::uint32_t>(h);
}

/// How many of `n` the canonical order sums first: the largest power of two that leaves some.
std::size_t canonical_half(std::size_t n) { return std::bit_floor(n - 1); }

void put_canonical(std::uint32_t chunk, RankInterval ranks, std::string& text) {
  if (text.size() > kLongestText) return;
  const std::uint32_t n = ranks.end - ranks.begin;
  if (n == 1) {
    text += fmt::format("in[{}]@{}", chunk, ranks.begin);
    return;
  }
  const auto middle = ranks.begin + static_cast<std::uint32_t>(canonical_half(n));
  for (const RankInterval side : {RankInterval{ranks.begin, middle}, {middle, ranks.end}}) {
    if (side.begin == middle) text += " + ";
    if (side.end - side.begin > 1) text += "(";
    put_canonical(chunk, side, text);
    if (side.end - side.begin > 1) text += ")";
  }
}

std::string abridged(std::string text) {
  if (text.size() > kLongestText) text = text.substr(0, kLongestText) + "...";
  return text;
}

}  // namespace

std::uint32_t Values::chunk(Value v) const {
  return is_input(v) ? buffers_.input_chunk(input_of(v)) : node(v).chunk;
}

std::uint32_t Values::size_class(Value v) const {
  if (is_input(v)) return buffers_.input_size_class(input_of(v));
  return buffers_.size_class(0, Space::in, node(v).chunk);  // the same on every rank
}

Values::Contributions Values::contributions(Value v) const {
  if (!is_input(v)) return node(v).contributions;
  return {static_cast<std::uint32_t>(buffers_.input_rank(input_of(v))), 1, 0};
}

Value Values::combine(std::span<const Value> parts, bool wide) {
  const std::size_t at = place_of(parts, wide);
  if (table_[at] != kNothing) return table_[at];
  Node n;
  n.chunk = chunk(parts[0]);
  for (const Value part : parts.subspan(1)) {
    if (chunk(part) != n.chunk) {
      throw Refuted{fmt::format("adds up different chunks, {} and {}", text(parts[0]), text(part))};
    }
  }
  n.contributions = join(parts);
  const RankInterval canonical = canonical_ranks(parts);
  // The compressed form is no sum.
  const bool is_sum = parts.size() > 1 || is_wide(parts[0]);
  n.contributions.is_canonical = is_sum && canonical.begin < canonical.end ? 1 : 0;
  n.is_wide = wide ? 1 : 0;
  std::uint32_t deepest = 0;
  for (const Value part : parts) deepest = std::max(deepest, depth(part));
  n.depth = deepest + (is_sum && !wide ? 1 : 0);
  const std::uint64_t value = 1 + 2 * std::uint64_t{inputs_} + nodes_.size();
  if (std::max<std::uint64_t>(value, parts_.size()) + parts.size() > 0xffffffff) {
    throw Refuted{"makes the plan too large to follow every sum"};
  }
  n.first_part = static_cast<std::uint32_t>(parts_.size());
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  nodes_.push_back(n);
  table_[at] = static_cast<Value>(value);
  if (nodes_.size() * 2 > table_.size()) grow_table();
  return static_cast<Value>(value);
}

Value Values::compressed(Value v) { return combine({&v, 1}); }

bool Values::is_sum_in_8_bits(Value v) const {
  return is_compressed(v) && is_sum_of_8_bits(parts(v)[0]);
}

bool Values::is_sum_of_8_bits(Value v) const {
  if (is_input(v)) return false;
  const std::span<const Value> sum = parts(v);
  if (sum.size() != ranks_ || ranks_ < 2) return false;
  for (std::uint32_t r = 0; r < ranks_; ++r) {
    if (!is_compressed(sum[r])) return false;
    const Value input = parts(sum[r])[0];
    if (!is_direct(input) ||
        static_cast<std::uint32_t>(buffers_.input_rank(input_of(input))) != r) {
      return false;
    }
  }
  return true;
}

std::size_t Values::place_of(std::span<const Value> parts, bool wide) const {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = 2 * std::size_t{*std::ranges::max_element(parts)};
  std::size_t stride = 1;
  for (int probe = 0;; ++probe, at += stride) {
    if (probe == kNearProbes) {
      at = hash_of(parts);
      stride = at >> 16 | 1;  // never on along what lies together
    }
    const Value v = table_[at & mask];
    if (v == kNothing || (is_wide(v) == wide && std::ranges::equal(this->parts(v), parts))) {
      return at & mask;
    }
  }
}

void Values::grow_table() {
  table_.assign(table_.size() * 2, kNothing);
  const Value first = 1 + 2 * inputs_;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Value value = first + static_cast<Value>(i);
    table_[place_of(parts(value), is_wide(value))] = value;
  }
}

Values::Contributions Values::join(std::span<const Value> parts) {
  if (parts.size() == 2) {  // most sums: two neighbouring intervals
    Contributions a = contributions(parts[0]);
    Contributions b = contributions(parts[1]);
    const auto end = [&](const Contributions& c) {
      const std::uint32_t e = c.begin + c.length;
      return e >= ranks_ ? e - ranks_ : e;
    };
    const std::uint32_t length = a.length + b.length;
    if (!a.is_scattered && !b.is_scattered && length <= ranks_) {
      if (end(a) == b.begin) return {a.begin, length, 0};
      if (end(b) == a.begin) return {b.begin, length, 0};
    }
  }
  scratch_.clear();
  for (const Value part : parts) append_intervals(contributions(part), scratch_);
  std::sort(scratch_.begin(), scratch_.end(),
            [](const RankInterval& a, const RankInterval& b) { return a.begin < b.begin; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < scratch_.size(); ++i) {
    if (scratch_[i].begin < scratch_[last].end) {
      throw Refuted{fmt::format("counts the input of rank {} twice", scratch_[i].begin)};
    }
    if (scratch_[i].begin == scratch_[last].end) {
      scratch_[last].end = scratch_[i].end;
    } else {
      scratch_[++last] = scratch_[i];
    }
  }
  return from_intervals({scratch_.data(), last + 1});
}

void Values::append_intervals(const Contributions& c, std::vector<RankInterval>& to) const {
  if (c.is_scattered) {
    std::uint32_t left = c.length;
    for (std::size_t i = c.begin; left > 0; ++i) {
      to.push_back(pool_[i]);
      left -= pool_[i].end - pool_[i].begin;
    }
  } else if (c.begin + c.length <= ranks_) {
    to.push_back({c.begin, c.begin + c.length});
  } else {
    to.push_back({c.begin, ranks_});
    to.push_back({0, c.begin + c.length - ranks_});
  }
}

Values::Contributions Values::from_intervals(std::span<const RankInterval> sorted) {
  Contributions c;
  for (const RankInterval& i : sorted) c.length += i.end - i.begin;
  if (sorted.size() == 1) {
    c.begin = sorted[0].begin;
  } else if (sorted.size() == 2 && sorted[0].begin == 0 && sorted[1].end == ranks_) {
    c.begin = sorted[1].begin;
  } else {
    if (pool_.size() + sorted.size() > kMostPooled) {
      throw Refuted{"makes the plan's sums too scattered to follow"};
    }
    c.begin = static_cast<std::uint32_t>(pool_.size());
    c.is_scattered = 1;
    pool_.insert(pool_.end(), sorted.begin(), sorted.end());
  }
  return c;
}

std::vector<RankInterval> Values::missing(Value v) const {
  std::vector<RankInterval> present;
  append_intervals(contributions(v), present);
  std::sort(present.begin(), present.end(),
            [](const RankInterval& a, const RankInterval& b) { return a.begin < b.begin; });
  std::vector<RankInterval> absent;
  std::uint32_t next = 0;
  for (const RankInterval& i : present) {
    if (i.begin > next) absent.push_back({next, i.begin});
    next = i.end;
  }
  if (next < ranks_) absent.push_back({next, ranks_});
  return absent;
}

RankInterval Values::canonical_ranks(std::span<const Value> parts) const {
  if (parts.size() == 1) {
    const Contributions c = contributions(parts[0]);
    if (!is_canonical(parts[0]) || c.is_scattered || c.begin + c.length > ranks_) return {0, 0};
    return {c.begin, c.begin + c.length};
  }
  const std::size_t half = canonical_half(parts.size());
  const RankInterval left = canonical_ranks(parts.first(half));
  const RankInterval right = canonical_ranks(parts.subspan(half));
  const bool meet = left.begin < left.end && right.begin < right.end && left.end == right.begin;
  if (!meet || left.end - left.begin != canonical_half(right.end - left.begin)) return {0, 0};
  return {left.begin, right.end};
}

std::string Values::text(Value v) const {
  std::string text;
  put_text(v, text);
  return abridged(std::move(text));
}

std::string Values::tree_text(Value v) const {
  std::string text;
  const bool plain =
      (!rounds_ || is_wide(v)) && !is_input(v);  // its own parentheses would be the outermost ones
  put_tree(plain ? parts(v) : std::span(&v, 1), text);
  return abridged(std::move(text));
}

std::string Values::canonical_text(std::uint32_t chunk) const {
  const bool rounds = rounds_ && ranks_ > 1;
  std::string text = rounds ? "round(" : "";
  put_canonical(chunk, {0, ranks_}, text);
  return abridged(std::move(text) + (rounds ? ")" : ""));
}

void Values::put_tree(std::span<const Value> parts, std::string& text) const {
  if (text.size() > kLongestText) return;
  if (parts.size() > 1) {
    const std::size_t half = canonical_half(parts.size());
    for (const auto side : {parts.first(half), parts.subspan(half)}) {
      if (side.data() != parts.data()) text += " + ";
      if (side.size() > 1) text += "(";
      put_tree(side, text);
      if (side.size() > 1) text += ")";
    }
  } else if (is_input(parts[0])) {
    put_text(parts[0], text);
  } else {
    text += rounds_ && !is_wide(parts[0]) ? "round(" : "(";
    std::span<const Value> sum = this->parts(parts[0]);
    if (sum.size() == 1 && is_wide(sum[0])) sum = this->parts(sum[0]);
    put_tree(sum, text);
    text += ")";
  }
}

void Values::put_text(Value v, std::string& text) const {
  if (text.size() > kLongestText) return;
  if (is_input(v)) {
    const std::uint32_t i = input_of(v);
    text += fmt::format("{}in[{}]@{}", is_direct(v) ? "" : "copy of ", buffers_.input_chunk(i),
                        buffers_.input_rank(i));
    return;
  }
  bool first = true;
  if (parts(v).size() == 1) text += is_wide(parts(v)[0]) ? "round" : "compress";
  for (const Value part : parts(v)) {
    if (!first) text += " + ";
    const bool nested = parts(v).size() == 1 || !(is_input(part) || parts(part).size() == 1);
    if (nested) text += "(";
    put_text(part, text);
    if (nested) text += ")";
    first = false;
  }
}

}  // namespace tutti::proof
