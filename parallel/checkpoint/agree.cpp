#include "parallel/checkpoint/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

using nlohmann::json;

std::vector<std::uint8_t> described(std::span<const SavedPart* const> parts) {
  json all = json::array();
  for (const SavedPart* const s : parts) {
    const TensorPart& p = s->part;
    all.push_back(
        {s->rank, p.name, static_cast<int>(p.type), p.shape, p.offset, p.extent, p.begin, p.count});
  }
  return json::to_cbor(all);
}

/// From bytes that described() begins.
std::vector<SavedPart> parts_of(std::span<const std::uint8_t> bytes) {
  std::vector<SavedPart> parts;
  for (const json& p : json::from_cbor(bytes.begin(), bytes.end(), false)) {
    parts.push_back({.rank = p.at(0),
                     .part = {.name = p.at(1),
                              .type = static_cast<DataType>(p.at(2).get<int>()),
                              .shape = p.at(3),
                              .offset = p.at(4),
                              .extent = p.at(5),
                              .begin = p.at(6),
                              .count = p.at(7)}});
  }
  return parts;
}

}  // namespace

std::optional<Error> gravest_error(Axis& axis, const std::function<void()>& body) {
  std::optional<Error> error;
  try {
    body();
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorCode::system, e.what());
  }
  Agreement ranks(axis);
  const std::uint64_t mine = error ? static_cast<std::uint64_t>(error->code()) : 0;
  const std::vector<std::uint64_t> codes = ranks.all({&mine, 1});
  const auto gravest = std::ranges::max_element(codes);
  if (*gravest == 0) return std::nullopt;
  const int rank = static_cast<int>(gravest - codes.begin());
  const std::string what = ranks.text_of(rank, error ? error->what() : "");
  if (rank == axis.rank()) return error;
  return Error(static_cast<ErrorCode>(*gravest), fmt::format("{}: {}", ranks.name(rank), what),
               ranks.world_rank(rank));
}

void on_all_ranks(Axis& axis, const std::function<void()>& body) {
  if (const auto error = gravest_error(axis, body)) throw *error;
}

void agree_on_whole(Axis& axis, std::span<const SavedPart> parts) {
  const auto size = static_cast<std::size_t>(axis.size());
  std::vector<std::vector<const SavedPart*>> checked_by(size);
  for (const SavedPart& p : parts) {
    if (p.part.count > 0) checked_by[mix(0, p.part.name) % size].push_back(&p);
  }
  std::vector<std::vector<std::uint8_t>> blocks;
  std::size_t longest = 0;
  for (const auto& own : checked_by) {
    blocks.push_back(described(own));
    longest = std::max(longest, blocks.back().size());
  }
  Agreement ranks(axis);
  longest = ranks.largest(longest);
  std::vector<std::uint8_t> to(size * longest), from(to.size());
  for (std::size_t r = 0; r < size; ++r) {
    std::ranges::copy(blocks[r], to.begin() + static_cast<std::ptrdiff_t>(r * longest));
  }
  axis.run(call_of(Collective::all_to_all, to.data(), from.data(), longest, DataType::uint8));
  std::string fault;
  try {
    std::vector<SavedPart> mine;
    for (std::size_t r = 0; r < size; ++r) {
      std::ranges::move(parts_of(std::span(from).subspan(r * longest, longest)),
                        std::back_inserter(mine));
    }
    check_whole(mine);
  } catch (const Error& e) {
    fault = e.what();
  }
  // The first rank that has found one has the largest number.
  const auto rank = static_cast<std::uint64_t>(axis.rank());
  const std::uint64_t largest = ranks.largest(fault.empty() ? 0 : size - rank);
  if (largest == 0) return;
  throw Error(ErrorCode::mismatch, ranks.text_of(static_cast<int>(size - largest), fault));
}

}  // namespace tutti::parallel
