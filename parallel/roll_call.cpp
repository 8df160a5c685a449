#include "parallel/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti::parallel {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  // The finalizer of MurmurHash3, of both together.
  std::uint64_t x = hash * 0x9E3779B97F4A7C15u + value + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return mix(hash, text.size());
}

int RollCall::world_rank(int rank) const {
  if (replicate_ == nullptr) return shard_.world_rank(rank);
  if (shard_.axis_name().ranks.empty() || replicate_->axis_name().ranks.empty()) return rank;
  // A step along one axis is as long wherever it begins on the other.
  return shard_.world_rank(rank % shard_.size()) - shard_.world_rank(shard_.rank()) +
         replicate_->world_rank(rank / shard_.size());
}

std::string RollCall::name(int rank) const {
  if (replicate_ == nullptr || !shard_.axis_name().ranks.empty()) {
    return fmt::format("rank {}", world_rank(rank));
  }
  return fmt::format("rank {} of replica {}", rank % shard_.size(), rank / shard_.size());
}

void RollCall::reduce_max(std::uint64_t* values, std::size_t count) {
  const Call call =
      call_of(Collective::all_reduce, values, values, count, DataType::uint64, ReduceKind::max);
  shard_.run(call);
  if (replicate_ != nullptr) replicate_->run(call);
}

bool RollCall::same(std::uint64_t value) {
  std::uint64_t both[2] = {value, ~value};  // the largest, and the smallest
  reduce_max(both, 2);
  return both[0] == ~both[1];
}

std::uint64_t RollCall::largest(std::uint64_t value) {
  reduce_max(&value, 1);
  return value;
}

std::vector<std::uint64_t> RollCall::all(std::span<const std::uint64_t> values) {
  std::vector<std::uint64_t> group(values.size() * static_cast<std::size_t>(shard_.size()));
  shard_.run(call_of(Collective::all_gather, values.data(), group.data(), values.size(),
                     DataType::uint64));
  if (replicate_ == nullptr) return group;
  std::vector<std::uint64_t> world(group.size() * static_cast<std::size_t>(replicate_->size()));
  replicate_->run(
      call_of(Collective::all_gather, group.data(), world.data(), group.size(), DataType::uint64));
  return world;
}

std::string RollCall::text_of(int rank, std::string_view text) {
  std::uint64_t words[30] = {};
  constexpr std::size_t kMost = sizeof words;
  std::memcpy(words, text.data(), std::min(text.size(), kMost));
  const std::vector<std::uint64_t> texts = all(words);
  char result[kMost + 1] = {};
  std::memcpy(result, &texts[static_cast<std::size_t>(rank) * std::size(words)], kMost);
  return result;
}

int RollCall::odd_one(std::span<const std::uint64_t> values) {
  const auto others = [&](std::uint64_t value) {
    return std::count(values.begin(), values.end(), value);
  };
  for (std::size_t r = 0; r < values.size(); ++r) {
    if (others(values[r]) == 1 && values.size() > 2) return static_cast<int>(r);
  }
  for (std::size_t r = 1; r < values.size(); ++r) {
    if (values[r] != values[0]) return static_cast<int>(r);
  }
  return -1;
}

}  // namespace tutti::parallel
