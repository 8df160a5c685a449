// Expressions and sets of contributions.
#include "collectives/verify/values.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::proof {
namespace {

constexpr std::size_t kLongestText = 160;
constexpr std::uint64_t kMostPooled = std::uint64_t{1} << 27;  // 1 GiB of intervals

std::uint32_t hash_of(std::span<const Value> parts) {
  std::uint64_t h = parts.size();
  for (const Value v : parts) {
    h = (h ^ v) * 0x9e3779b97f4a7c15U;
    h ^= h >> 32;
  }
  return static_cast<std::uint32_t>(h);
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

Value Values::combine(std::span<const Value> parts) {
  const std::uint32_t hash = hash_of(parts);
  std::size_t mask = table_.size() - 1;
  std::size_t at = hash & mask;
  for (; table_[at].value != kNothing; at = (at + 1) & mask) {
    if (table_[at].hash == hash && std::ranges::equal(this->parts(node(table_[at].value)), parts)) {
      return table_[at].value;
    }
  }
  Node n;
  n.chunk = chunk(parts[0]);
  for (const Value part : parts.subspan(1)) {
    if (chunk(part) != n.chunk) {
      throw Refuted{fmt::format("adds up different chunks, {} and {}", text(parts[0]), text(part))};
    }
  }
  n.contributions = join(parts);
  for (const Value part : parts) n.depth = std::max(n.depth, depth(part) + 1);
  const std::uint64_t value = 1 + 2 * std::uint64_t{inputs_} + nodes_.size();
  if (std::max<std::uint64_t>(value, parts_.size()) + parts.size() > 0xffffffff) {
    throw Refuted{"makes the plan too large to follow every sum"};
  }
  n.first_part = static_cast<std::uint32_t>(parts_.size());
  n.parts = static_cast<std::uint32_t>(parts.size());
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  nodes_.push_back(n);
  table_[at] = {hash, static_cast<Value>(value)};
  if (nodes_.size() * 2 > table_.size()) grow_table();
  return static_cast<Value>(value);
}

void Values::grow_table() {
  std::vector<Slot> larger(table_.size() * 2, Slot{0, kNothing});
  const std::size_t mask = larger.size() - 1;
  for (const Slot& slot : table_) {
    if (slot.value == kNothing) continue;
    std::size_t at = slot.hash & mask;
    while (larger[at].value != kNothing) at = (at + 1) & mask;
    larger[at] = slot;
  }
  table_ = std::move(larger);
}

Values::Contributions Values::join(std::span<const Value> parts) {
  if (parts.size() == 2) {  // most sums: two neighbouring intervals
    Contributions a = contributions(parts[0]);
    Contributions b = contributions(parts[1]);
    const auto end = [&](const Contributions& c) {
      const std::uint32_t e = c.begin + c.length;
      return e >= ranks_ ? e - ranks_ : e;
    };
    if (a.pooled == 0 && b.pooled == 0 && a.length + b.length <= ranks_) {
      if (end(a) == b.begin) return {a.begin, a.length + b.length, 0};
      if (end(b) == a.begin) return {b.begin, a.length + b.length, 0};
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
  if (c.pooled > 0) {
    to.insert(to.end(), pool_.begin() + c.begin, pool_.begin() + c.begin + c.pooled);
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
    c.pooled = static_cast<std::uint32_t>(sorted.size());
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

std::string Values::text(Value v) const {
  std::string text;
  put_text(v, text);
  if (text.size() > kLongestText) text = text.substr(0, kLongestText) + "...";
  return text;
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
  for (const Value part : parts(node(v))) {
    if (!first) text += " + ";
    const bool nested = !is_input(part);
    if (nested) text += "(";
    put_text(part, text);
    if (nested) text += ")";
    first = false;
  }
}

}  // namespace tutti::proof
