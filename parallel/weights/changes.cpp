#include "parallel/weights/changes.h"

#include <fmt/format.h>
#include <tutti/core/error.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

namespace tutti::parallel::weights {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::uint8_t kLongGap = 255;          // so many unchanged elements, and more to come
constexpr std::size_t kElementsHeader = 2 * 4;  // changed elements, and bytes of their gaps
constexpr std::size_t kSampled = 32;            // lines that probably_all() looks at

std::size_t lines_of(std::size_t bytes) { return (bytes + kLine - 1) / kLine; }
std::size_t bitmap_of(std::size_t bytes) { return (lines_of(bytes) + 7) / 8; }

[[noreturn]] void refuse_changes(const std::string& what) {
  throw Error(ErrorCode::mismatch,
              fmt::format("the changes of a block of weights are damaged: {}. The connection, or "
                          "the other side's memory, has changed them: send the version again",
                          what));
}

/// body(Bits{}) for the unsigned integer of so many bytes.
template <class Body>
auto with_width(std::size_t width, const Body& body) {
  switch (width) {
    case 1:
      return body(std::uint8_t{});
    case 2:
      return body(std::uint16_t{});
    case 4:
      return body(std::uint32_t{});
    default:
      return body(std::uint64_t{});
  }
}

template <class Bits>
Bits load(const std::byte* from) {
  Bits bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

bool line_differs(const std::byte* now, const std::byte* before, std::size_t bytes) {
  if (bytes != kLine) return std::memcmp(now, before, bytes) != 0;
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i < kLine; i += 8) {
    differs |= load<std::uint64_t>(now + i) ^ load<std::uint64_t>(before + i);
  }
  return differs != 0;
}

/// Where a sample of lines has mostly changed elements, there is nothing to gain.
template <class Bits>
bool probably_all(std::span<const std::byte> now, std::span<const std::byte> before) {
  const std::size_t lines = now.size() / kLine;
  if (lines < kSampled) return false;
  std::size_t same = 0;
  for (std::size_t s = 0; s < kSampled; ++s) {
    const std::size_t at = (lines - 1) * s / (kSampled - 1) * kLine;
    for (std::size_t i = at; i < at + kLine; i += sizeof(Bits)) {
      same += load<Bits>(now.data() + i) == load<Bits>(before.data() + i);
    }
  }
  return same * 4 < kSampled * kLine / sizeof(Bits);
}

/// One pass over a block: appends the gaps to `out` as long as the elements take less than `limit`.
template <class Bits>
struct Search {
  static constexpr std::size_t width = sizeof(Bits);

  Search(std::span<const std::byte> of, std::span<const std::byte> from, std::size_t most,
         std::vector<std::byte>& to)
      : now(of), before(from), limit(most), out(to) {}

  void run() {
    gaps_at = out.size() + kElementsHeader;
    const std::size_t lines = lines_of(now.size());
    for (std::size_t l = 0; l < lines; ++l) {
      const std::size_t at = l * kLine, bytes = std::min(kLine, now.size() - at);
      if (!line_differs(now.data() + at, before.data() + at, bytes)) {
        gap += bytes / width;
        continue;
      }
      ++changed_lines;
      if (elements_fit) take_line(at, bytes);
      if (!elements_fit && changed_lines * kLine >= limit) return;
    }
  }

  /// The gaps of a line: at most 16 bytes for its own elements, and those of a long gap before it.
  void take_line(std::size_t at, std::size_t bytes) {
    if (out.size() < gaps_at + gaps + gap / kLongGap + kLine + 2) {
      out.resize(2 * out.size() + gaps_at + gap / kLongGap + 4096);
    }
    std::byte* to = out.data() + gaps_at + gaps;
    const std::byte* const start = to;
    for (; gap >= kLongGap; gap -= kLongGap) *to++ = std::byte{kLongGap};
    for (std::size_t i = at; i < at + bytes; i += width) {
      if (load<Bits>(now.data() + i) == load<Bits>(before.data() + i)) {
        ++gap;
        continue;
      }
      if (gap >= kLongGap) {
        *to++ = std::byte{kLongGap};
        gap -= kLongGap;
      }
      *to++ = static_cast<std::byte>(gap);
      gap = 0;
      ++changed;
    }
    gaps += static_cast<std::size_t>(to - start);
    elements_fit = elements_size() < limit;
  }

  std::size_t elements_size() const { return kElementsHeader + gaps + changed * width; }
  std::size_t lines_size() const { return bitmap_of(now.size()) + changed_lines * kLine; }

  std::span<const std::byte> now, before;
  std::size_t limit;
  std::vector<std::byte>& out;
  std::size_t gaps_at = 0, gaps = 0, gap = 0, changed = 0, changed_lines = 0;
  bool elements_fit = true;
};

/// Calls element(its number) for each gap that ends; false: the gaps are no whole list.
template <class Element>
bool for_each_gap(std::span<const std::byte> gaps, const Element& element) {
  std::uint64_t at = 0;
  bool whole = true;
  for (const std::byte b : gaps) {
    const auto gap = static_cast<std::uint8_t>(b);
    at += gap;
    whole = gap != kLongGap;
    if (whole && !element(at++)) return false;
  }
  return whole;
}

template <class Bits>
void write_elements(const Search<Bits>& s, std::size_t begin) {
  auto& out = s.out;
  out.resize(begin + s.elements_size());
  const std::uint32_t header[2] = {static_cast<std::uint32_t>(s.changed),
                                   static_cast<std::uint32_t>(s.gaps)};
  std::memcpy(out.data() + begin, header, sizeof header);
  const auto gaps = std::span<const std::byte>(out).subspan(s.gaps_at, s.gaps);
  std::byte* to = out.data() + s.gaps_at + s.gaps;
  for_each_gap(gaps, [&](std::uint64_t at) {
    std::memcpy(to, s.now.data() + at * sizeof(Bits), sizeof(Bits));
    to += sizeof(Bits);
    return true;
  });
}

void write_lines(std::span<const std::byte> now, std::span<const std::byte> before,
                 std::size_t begin, std::vector<std::byte>& out) {
  out.resize(begin);
  out.resize(begin + bitmap_of(now.size()));
  for (std::size_t at = 0; at < now.size(); at += kLine) {
    const std::size_t bytes = std::min(kLine, now.size() - at), line = at / kLine;
    if (!line_differs(now.data() + at, before.data() + at, bytes)) continue;
    out[begin + line / 8] |= std::byte{1} << (line % 8);
    out.insert(out.end(), now.data() + at, now.data() + at + bytes);
  }
}

template <class Bits>
Changes find(std::span<const std::byte> now, std::span<const std::byte> before, std::size_t limit,
             std::vector<std::byte>& out) {
  if (probably_all<Bits>(now, before)) return {};
  const std::size_t begin = out.size();
  Search<Bits> search(now, before, limit, out);
  search.run();
  if (search.changed_lines == 0) {
    out.resize(begin);
    return {.few = true, .form = ChangeForm::none};
  }
  if (search.elements_fit && search.elements_size() <= search.lines_size()) {
    write_elements(search, begin);
    return {.few = true, .form = ChangeForm::elements};
  }
  out.resize(begin);
  if (search.lines_size() >= limit) return {};
  write_lines(now, before, begin, out);
  return {.few = true, .form = ChangeForm::lines};
}

template <class Bits>
void apply_elements(std::span<const std::byte> changes, std::span<std::byte> block) {
  if (changes.size() < kElementsHeader) refuse_changes("they have no header");
  std::uint32_t header[2];
  std::memcpy(header, changes.data(), sizeof header);
  const std::size_t changed = header[0], gaps = header[1];
  const std::size_t elements = block.size() / sizeof(Bits);
  if (changed > elements || changes.size() != kElementsHeader + gaps + changed * sizeof(Bits)) {
    refuse_changes(
        fmt::format("{} bytes for {} of {} elements", changes.size(), changed, elements));
  }
  const std::byte* from = changes.data() + kElementsHeader + gaps;
  std::size_t left = changed;
  const bool whole = for_each_gap(changes.subspan(kElementsHeader, gaps), [&](std::uint64_t at) {
    if (at >= elements || left == 0) return false;
    std::memcpy(block.data() + at * sizeof(Bits), from, sizeof(Bits));
    from += sizeof(Bits);
    --left;
    return true;
  });
  if (!whole || left > 0) refuse_changes("their places are not those of the block's elements");
}

void apply_lines(std::span<const std::byte> changes, std::span<std::byte> block) {
  const std::size_t lines = lines_of(block.size());
  if (changes.size() < bitmap_of(block.size()))
    refuse_changes("they end before the list of lines does");
  const auto bitmap = changes.first(bitmap_of(block.size()));
  auto content = changes.subspan(bitmap.size());
  for (std::size_t l = 0; l < 8 * bitmap.size(); ++l) {
    if ((bitmap[l / 8] >> (l % 8) & std::byte{1}) == std::byte{0}) continue;
    if (l >= lines) refuse_changes("they have a line behind the end of the block");
    const std::size_t at = l * kLine, bytes = std::min(kLine, block.size() - at);
    if (content.size() < bytes) refuse_changes("they end before the last line does");
    std::memcpy(block.data() + at, content.data(), bytes);
    content = content.subspan(bytes);
  }
  if (!content.empty()) refuse_changes(fmt::format("{} bytes are left over", content.size()));
}

}  // namespace

Changes find_changes(std::span<const std::byte> now, std::span<const std::byte> before,
                     std::size_t width, std::size_t limit, std::vector<std::byte>& out) {
  return with_width(width, [&](auto bits) {
    return find<std::remove_cvref_t<decltype(bits)>>(now, before, limit, out);
  });
}

void apply_changes(std::span<const std::byte> changes, ChangeForm form, std::size_t width,
                   std::span<std::byte> block) {
  switch (form) {
    case ChangeForm::none:
      if (!changes.empty()) refuse_changes("there should be none");
      return;
    case ChangeForm::elements:
      return with_width(width, [&](auto bits) {
        apply_elements<std::remove_cvref_t<decltype(bits)>>(changes, block);
      });
    case ChangeForm::lines:
      return apply_lines(changes, block);
  }
  refuse_changes("their form is unknown");
}

}  // namespace tutti::parallel::weights
