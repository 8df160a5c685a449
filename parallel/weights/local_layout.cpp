#include "parallel/weights/local_layout.h"

#include <fmt/format.h>
#include <tutti/core/error.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "core/number.h"
#include "parallel/weights/outcome.h"

namespace tutti::parallel::weights {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 30;  // bytes that a rank says

/// A line for each piece: type, dimensions, then shape, offset and extent, the length of the name
/// and the name.
std::string described(std::span<const LocalPiece> pieces) {
  std::string text;
  for (const LocalPiece& p : pieces) {
    text += fmt::format("{} {}", static_cast<int>(p.tensor.type), p.tensor.shape.size());
    for (const auto* const sizes : {&p.tensor.shape, &p.offset, &p.extent}) {
      for (const std::uint64_t n : *sizes) text += fmt::format(" {}", n);
    }
    text += fmt::format(" {} {}\n", p.tensor.name.size(), p.tensor.name);
  }
  return text;
}

/// Takes a piece off the text; none: it is not what described() has made.
std::optional<LocalPiece> take_piece(std::string_view& text) {
  LocalPiece piece;
  const auto type = parse_number<int>(take_word(text));
  const auto dimensions = parse_number<std::size_t>(take_word(text));
  if (!type || *type < 0 || *type >= kDataTypes || !dimensions ||
      *dimensions > reshard::kMostDimensions) {
    return std::nullopt;
  }
  piece.tensor.type = static_cast<DataType>(*type);
  for (auto* const sizes : {&piece.tensor.shape, &piece.offset, &piece.extent}) {
    for (std::size_t d = 0; d < *dimensions; ++d) {
      const auto n = parse_number<std::uint64_t>(take_word(text));
      if (!n) return std::nullopt;
      sizes->push_back(*n);
    }
  }
  const auto length = parse_number<std::size_t>(take_word(text));
  if (!length || *length + 2 > text.size()) return std::nullopt;
  piece.tensor.name = text.substr(1, *length);
  text.remove_prefix(*length + 2);
  return piece;
}

void check_piece(const LocalPiece& p) {
  if (p.offset.size() != p.tensor.shape.size() || p.extent.size() != p.tensor.shape.size()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("a piece of tensor '{}' has {} offsets and {} sizes, and the tensor {} "
                    "dimensions",
                    p.tensor.name, p.offset.size(), p.extent.size(), p.tensor.shape.size()));
  }
  if (p.tensor.shape.size() > reshard::kMostDimensions) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tensor '{}' has {} dimensions, and {} are the most", p.tensor.name,
                            p.tensor.shape.size(), reshard::kMostDimensions));
  }
}

void add_local_piece(reshard::Layout& layout, const LocalPiece& p, int rank, std::size_t number) {
  std::vector<reshard::Range> ranges;
  for (std::size_t d = 0; d < p.offset.size(); ++d) {
    ranges.push_back({p.offset[d], p.offset[d] + p.extent[d]});
  }
  add_piece(layout, p.tensor, rank, reshard::Box(ranges), std::to_string(number));
}

/// What all ranks say, one after the other, and where each begins.
std::string all_texts(Communicator& comm, const std::string& mine,
                      std::vector<std::size_t>& sizes) {
  sizes.resize(static_cast<std::size_t>(comm.size()));
  const std::uint64_t size = mine.size();
  comm.all_gather(&size, sizes.data(), 1, DataType::uint64);
  for (const std::size_t s : sizes) {
    if (s <= kMostText) continue;
    throw Error(ErrorCode::mismatch, fmt::format("a rank describes its pieces in {} bytes", s));
  }
  std::string all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), '\0');
  comm.all_gather_v(mine.data(), all.data(), sizes, {}, DataType::uint8);
  return all;
}

}  // namespace

reshard::Layout gather_layout(Communicator& comm, std::span<const LocalPiece> pieces) {
  std::optional<Error> error;
  try {
    for (const LocalPiece& p : pieces) check_piece(p);
  } catch (const Error& e) {
    error = e;
  }
  if (const auto any = agree_on_outcome(comm, error, "calling")) throw *any;
  std::vector<std::size_t> sizes;
  const std::string all = all_texts(comm, described(pieces), sizes);
  reshard::Layout layout(comm.size());
  std::string_view rest = all;
  for (int r = 0; r < comm.size(); ++r) {
    std::string_view text = rest.substr(0, sizes[static_cast<std::size_t>(r)]);
    rest.remove_prefix(text.size());
    for (std::size_t number = 0; !text.empty(); ++number) {
      const auto piece = take_piece(text);
      if (!piece) {
        throw Error(ErrorCode::mismatch,
                    fmt::format("rank {} describes its pieces in another way: it has another "
                                "version of Tutti",
                                r),
                    r);
      }
      add_local_piece(layout, *piece, r, number);
    }
  }
  return layout;
}

}  // namespace tutti::parallel::weights
