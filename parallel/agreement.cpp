#include "parallel/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace tutti::parallel {
namespace {

/// What ranks compare when all is well: FNV-1a of 64 bits, and the length.
struct Digest {
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::uint64_t bytes = 0;
  bool operator==(const Digest&) const = default;
};

Digest digest_of(std::string_view text) {
  Digest digest;
  digest.bytes = text.size();
  for (const char c : text) {
    digest.hash = (digest.hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return digest;
}

template <class T>
std::vector<T> gather(Axis& axis, const T& own) {
  std::vector<T> all(static_cast<std::size_t>(axis.size()));
  axis.run(call_of(Collective::all_gather, &own, all.data(), sizeof(T), DataType::uint8));
  return all;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// The first line in which this rank differs; "" where none does.
std::string difference(std::string_view theirs, std::string_view ours) {
  const auto first = lines_of(theirs), own = lines_of(ours);
  for (std::size_t i = 0; i < std::max(first.size(), own.size()); ++i) {
    const std::string_view a = i < first.size() ? first[i] : "nothing more";
    const std::string_view b = i < own.size() ? own[i] : "nothing more";
    if (a != b) return fmt::format("it has \"{}\" where rank 0 has \"{}\"", b, a);
  }
  return "";
}

}  // namespace

void agree(Axis& axis, std::string_view what, std::span<const std::string> lines) {
  std::string own;
  for (const std::string& line : lines) {
    own += line;
    // A name with a line feed must not look like two lines.
    std::replace(own.end() - static_cast<std::ptrdiff_t>(line.size()), own.end(), '\n', ' ');
    own += '\n';
  }
  const std::vector<Digest> digests = gather(axis, digest_of(own));
  if (std::ranges::count(digests, digests.front()) == axis.size()) return;

  // The slow way, which all take, as all have the same digests: who differs, and in what?
  std::string first(digests.front().bytes, '\0');
  if (axis.rank() == 0) first = own;
  axis.run(
      call_of(Collective::broadcast, first.data(), first.data(), first.size(), DataType::uint8));
  std::array<char, 512> said{};
  const std::string mine = difference(first, own);
  std::memcpy(said.data(), mine.data(), std::min(mine.size(), said.size() - 1));
  const auto all = gather(axis, said);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].front() == '\0') continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("{} differs among the ranks: rank {} is the first, {}; make it the "
                            "same on all ranks",
                            what, r, all[r].data()),
                static_cast<int>(r));
  }
  throw Error(ErrorCode::mismatch, fmt::format("{} differs among the ranks", what));
}

}  // namespace tutti::parallel
