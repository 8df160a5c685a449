#include "parallel/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/error.h"

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

Agreement::Agreement(Axis& shard, Axis* replicate) : shard_(shard), replicate_(replicate) {
  if (replicate == nullptr || shard.size() == 1) return;
  const std::vector<int>&of_one = shard.axis_name().ranks, &of_other = replicate->axis_name().ranks;
  const auto common = std::ranges::count_if(of_one, [&](int rank) {  //
    return std::ranges::find(of_other, rank) != of_other.end();
  });
  if (replicate != &shard && common <= 1) return;
  const auto called = [](const Axis& axis) {
    return axis.axis_name().name.empty() ? "one" : fmt::format("'{}'", axis.axis_name().name);
  };
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the axes {} and {} have more ranks in common than this one: give two "
                          "dimensions of a mesh, or one axis alone",
                          called(shard), called(*replicate)));
}

int Agreement::world_rank(int rank) const {
  if (replicate_ == nullptr) return shard_.world_rank(rank);
  if (shard_.axis_name().ranks.empty() || replicate_->axis_name().ranks.empty()) return rank;
  // A step along one axis is as long wherever it begins on the other.
  return shard_.world_rank(rank % shard_.size()) - shard_.world_rank(shard_.rank()) +
         replicate_->world_rank(rank / shard_.size());
}

std::string Agreement::name(int rank) const {
  if (replicate_ == nullptr || !shard_.axis_name().ranks.empty()) {
    return fmt::format("rank {}", world_rank(rank));
  }
  return fmt::format("rank {} of replica {}", rank % shard_.size(), rank / shard_.size());
}

void Agreement::reduce_max(std::uint64_t* values, std::size_t count) {
  const Call call =
      call_of(Collective::all_reduce, values, values, count, DataType::uint64, ReduceKind::max);
  shard_.run(call);
  if (replicate_ != nullptr) replicate_->run(call);
}

bool Agreement::same(std::uint64_t value) {
  std::uint64_t both[2] = {value, ~value};  // the largest, and the smallest
  reduce_max(both, 2);
  return both[0] == ~both[1];
}

std::uint64_t Agreement::largest(std::uint64_t value) {
  reduce_max(&value, 1);
  return value;
}

std::vector<std::uint64_t> Agreement::all(std::span<const std::uint64_t> values) {
  std::vector<std::uint64_t> group(values.size() * static_cast<std::size_t>(shard_.size()));
  shard_.run(call_of(Collective::all_gather, values.data(), group.data(), values.size(),
                     DataType::uint64));
  if (replicate_ == nullptr) return group;
  std::vector<std::uint64_t> world(group.size() * static_cast<std::size_t>(replicate_->size()));
  replicate_->run(
      call_of(Collective::all_gather, group.data(), world.data(), group.size(), DataType::uint64));
  return world;
}

std::string Agreement::text_of(int rank, std::string_view text) {
  std::uint64_t words[30] = {};
  constexpr std::size_t kMost = sizeof words;
  std::memcpy(words, text.data(), std::min(text.size(), kMost));
  const std::vector<std::uint64_t> texts = all(words);
  char result[kMost + 1] = {};
  std::memcpy(result, &texts[static_cast<std::size_t>(rank) * std::size(words)], kMost);
  return result;
}

int odd_one(std::span<const std::uint64_t> values) {
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

Difference first_difference(std::span<const std::uint64_t> entries, std::size_t columns) {
  for (std::size_t i = 0; i < columns; ++i) {
    std::vector<std::uint64_t> column;
    for (std::size_t at = i; at < entries.size(); at += columns) column.push_back(entries[at]);
    const int odd = odd_one(column);
    if (odd >= 0) return {.entry = i, .rank = odd, .other = odd == 0 ? 1 : 0};
  }
  return {};
}

namespace {

/// What engines ask of a device: where one rank's has it and another's does not, that one would be
/// refused alone.
std::string abilities_of(Device& device) {
  if (!device.is_gpu()) return "memory on the host";
  return fmt::format("memory on a GPU {} kernels of engines and {} arithmetic of layers",
                     device.computes() ? "with" : "without",
                     device.layer_math() != nullptr ? "with" : "without");
}

}  // namespace

void agree(Agreement ranks, std::string_view what, std::span<const std::string> own_lines) {
  std::vector<std::string> lines{abilities_of(ranks.device()), std::string(what)};
  lines.insert(lines.end(), own_lines.begin(), own_lines.end());
  std::vector<std::uint64_t> hashes;  // of a line and all before it
  for (const std::string& line : lines) {
    hashes.push_back(mix(hashes.empty() ? 0 : hashes.back(), line));
  }
  if (ranks.same(hashes.back())) return;

  // The slow way, which all take: which rank differs, and in what?
  const std::size_t most = ranks.largest(hashes.size());
  hashes.resize(most);  // 0: there is no more
  const Difference first = first_difference(ranks.all(hashes), most);
  const std::string mine = first.entry < lines.size() ? lines[first.entry] : "nothing more";
  const std::string its = ranks.text_of(first.rank, mine);
  const std::string others = ranks.text_of(first.other, mine);
  throw Error(ErrorCode::mismatch,
              fmt::format("{} differs among the ranks: {} has \"{}\" where {} has \"{}\"; make it "
                          "the same on all ranks",
                          what, ranks.name(first.rank), its, ranks.name(first.other), others),
              ranks.world_rank(first.rank));
}

void together(Agreement ranks, std::string_view what, const std::function<void()>& body) {
  std::exception_ptr refused;
  std::string why;
  try {
    body();
  } catch (const std::exception& e) {
    refused = std::current_exception();
    why = e.what();
  } catch (...) {
    refused = std::current_exception();
    why = "what was thrown is no std::exception";
  }
  // The first rank that was refused has the largest number.
  const auto size = static_cast<std::uint64_t>(ranks.ranks());
  const auto rank = static_cast<std::uint64_t>(ranks.rank());
  const std::uint64_t largest = ranks.largest(refused ? size - rank : 0);
  if (largest == 0) return;
  if (ranks.same(mix(refused ? 1 : 0, why))) std::rethrow_exception(refused);
  const int culprit = static_cast<int>(size - largest);
  const std::string its = ranks.text_of(culprit, why);
  throw Error(
      ErrorCode::mismatch,
      fmt::format("{}: {} was refused, and so no rank goes on: {}; other ranks have no such "
                  "problem, or another one",
                  what, ranks.name(culprit), its),
      ranks.world_rank(culprit));
}

}  // namespace tutti::parallel
