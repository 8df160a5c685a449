// The free ranges of a segment, by offset and by size: the smallest that suffices is found without
// a look at the others, of which a program that runs for long may have tens of thousands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tutti::heap {

class Holes {
 public:
  /// Joins it with the holes beside it.
  void add(std::size_t offset, std::size_t bytes) {
    const auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto [before, length] = *std::prev(next);
      if (before + length == offset) {
        remove(before, length);
        offset = before;
        bytes += length;
      }
    }
    if (next != by_offset_.end() && offset + bytes == next->first) {
      const auto [behind, length] = *next;
      remove(behind, length);
      bytes += length;
    }
    insert(offset, bytes);
  }

  /// Takes `bytes` at an address that is a multiple of `alignment`, where offset 0 is at address
  /// `base`. Returns their offset; none: no hole has room.
  std::optional<std::size_t> take(std::size_t bytes, std::size_t alignment, std::uintptr_t base) {
    for (auto hole = by_size_.lower_bound({bytes, 0}); hole != by_size_.end(); ++hole) {
      const auto [length, offset] = *hole;
      const std::uintptr_t skipped = (alignment - (base + offset) % alignment) % alignment;
      if (skipped > length || bytes > length - skipped) continue;
      remove(offset, length);
      const std::size_t at = offset + skipped;
      insert(offset, skipped);
      insert(at + bytes, length - skipped - bytes);
      return at;
    }
    return std::nullopt;
  }

  /// Takes the first `bytes` of the hole at `offset`. False: there is none, or it is shorter.
  bool take_at(std::size_t offset, std::size_t bytes) {
    const auto hole = by_offset_.find(offset);
    if (hole == by_offset_.end() || hole->second < bytes) return false;
    const std::size_t length = hole->second;
    remove(offset, length);
    insert(offset + bytes, length - bytes);
    return true;
  }

  /// Bytes, by offset.
  const std::map<std::size_t, std::size_t>& by_offset() const { return by_offset_; }

 private:
  void insert(std::size_t offset, std::size_t bytes) {
    if (bytes == 0) return;
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void remove(std::size_t offset, std::size_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<std::size_t, std::size_t> by_offset_;
  std::set<std::pair<std::size_t, std::size_t>> by_size_;
};

}  // namespace tutti::heap
