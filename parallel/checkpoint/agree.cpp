#include "parallel/checkpoint/agree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

/// Numbers, one after the other; a text or a list has its length before it.
class Writer {
 public:
  void put(std::uint64_t number) { put(&number, sizeof number); }
  void put(const std::string& text) {
    put(text.size());
    put(text.data(), text.size());
  }
  void put(const std::vector<std::size_t>& numbers) {
    put(numbers.size());
    for (const std::size_t n : numbers) put(n);
  }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  void put(const void* data, std::size_t size) {
    const auto* const bytes = static_cast<const std::uint8_t*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }

  std::vector<std::uint8_t> bytes_;
};

/// The same from bytes that another rank has written. Throws Error(internal) where they end.
class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint64_t number() {
    std::uint64_t number = 0;
    std::memcpy(&number, next(sizeof number), sizeof number);
    return number;
  }
  std::string text() {
    const std::uint64_t size = number();
    return {reinterpret_cast<const char*>(next(size)), size};
  }
  std::vector<std::size_t> numbers() {
    std::vector<std::size_t> all;
    for (std::uint64_t left = number(); left > 0; --left) all.push_back(number());
    return all;
  }

 private:
  const std::uint8_t* next(std::uint64_t size) {
    if (size > bytes_.size()) {
      throw Error(ErrorCode::internal,
                  "a rank's list of the parts that it saves is cut off; this is a bug in Tutti");
    }
    const std::uint8_t* const at = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return at;
  }

  std::span<const std::uint8_t> bytes_;
};

std::vector<std::uint8_t> described(std::span<const SavedPart* const> parts) {
  Writer to;
  to.put(parts.size());
  for (const SavedPart* const s : parts) {
    const TensorPart& p = s->part;
    to.put(static_cast<std::uint64_t>(s->rank));
    to.put(p.name);
    to.put(static_cast<std::uint64_t>(p.type));
    for (const auto* const sizes : {&p.shape, &p.offset, &p.extent}) to.put(*sizes);
    to.put(p.begin);
    to.put(p.count);
  }
  return to.take();
}

/// From bytes that described() begins.
std::vector<SavedPart> parts_of(std::span<const std::uint8_t> bytes) {
  Reader from(bytes);
  std::vector<SavedPart> parts;
  for (std::uint64_t left = from.number(); left > 0;
       --left) {  // members in the order of described()
    parts.push_back({.rank = static_cast<int>(from.number()),
                     .part = {.name = from.text(),
                              .type = static_cast<DataType>(from.number()),
                              .shape = from.numbers(),
                              .offset = from.numbers(),
                              .extent = from.numbers(),
                              .begin = from.number(),
                              .count = from.number()}});
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
