#include "parallel/reshard/copy_box.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/combine.h"
#include "core/convert.h"

namespace tutti::parallel::reshard {
namespace {

/// Equal steps in both memories, in bytes.
struct Level {
  std::uint64_t count = 1;
  std::uint64_t from = 0, to = 0;
};

/// The box as levels, the outermost first, without those of one step; what follows on in both
/// memories is one level. The last one has elements one behind the other, if they are so.
struct Levels {
  std::array<Level, kMostDimensions + 1> level;
  std::size_t count = 0;

  Levels(const Box& box, const SourcePlace& from, const TargetPlace& to) {
    const std::uint64_t from_bytes = size_of(from.type), to_bytes = size_of(to.type);
    for (std::size_t d = 0; d < box.dimensions(); ++d) {
      const Level next{box[d].size(), from.strides[d] * from_bytes, to.strides[d] * to_bytes};
      if (next.count == 1) continue;
      if (count > 0 && level[count - 1].from == next.count * next.from &&
          level[count - 1].to == next.count * next.to) {
        level[count - 1] = {level[count - 1].count * next.count, next.from, next.to};
      } else {
        level[count++] = next;
      }
    }
    if (count == 0 || level[count - 1].from != from_bytes || level[count - 1].to != to_bytes) {
      level[count++] = {1, from_bytes, to_bytes};
    }
  }
};

// Copies of so much are written past the cache, which they would only empty.
constexpr std::uint64_t kStreamBytes = 2 << 20;
constexpr std::uint64_t kStreamRun = 1 << 10;

/// Calls run(the first byte in both memories) for what lies below level `depth` - 1.
template <class Run>
void each_run(const Levels& levels, std::size_t end, std::size_t depth, const std::byte* from,
              std::byte* to, const Run& run) {
  if (depth == end) return run(from, to);
  const Level& level = levels.level[depth];
  for (std::uint64_t i = 0; i < level.count; ++i) {
    each_run(levels, end, depth + 1, from + i * level.from, to + i * level.to, run);
  }
}

/// For each run of neighbours.
template <class Run>
void each_run(const Levels& levels, const std::byte* from, std::byte* to, const Run& run) {
  each_run(levels, levels.count - 1, 0, from, to, run);
}

/// Elements that lie apart.
template <std::size_t kBytes>
void copy_elements(const Levels& levels, const std::byte* from, std::byte* to) {
  each_run(levels, from, to,
           [](const std::byte* source, std::byte* target) { std::memcpy(target, source, kBytes); });
}

void copy_same_type(const Box& box, const SourcePlace& from, const TargetPlace& to,
                    const Levels& levels) {
  const std::uint64_t element = size_of(from.type);
  const std::uint64_t bytes = levels.level[levels.count - 1].count * element;
  if (bytes == element) {
    switch (element) {
      case 1:
        return copy_elements<1>(levels, from.first, to.first);
      case 2:
        return copy_elements<2>(levels, from.first, to.first);
      case 4:
        return copy_elements<4>(levels, from.first, to.first);
      default:
        return copy_elements<8>(levels, from.first, to.first);
    }
  }
  if (bytes >= kStreamRun && box.elements() * element >= kStreamBytes) {
    static const Combiner copies(DataType::uint8, ReduceKind::sum);
    each_run(levels, from.first, to.first, [&](const std::byte* source, std::byte* target) {
      void* const targets[] = {target};
      const Source sources[] = {{source}};
      copies(targets, sources, bytes, {.stream = 1});
    });
    return;
  }
  each_run(levels, from.first, to.first,
           [&](const std::byte* source, std::byte* target) { std::memcpy(target, source, bytes); });
}

}  // namespace

void copy_box(const Box& box, const SourcePlace& from, const TargetPlace& to) {
  if (box.empty()) return;
  const Levels levels(box, from, to);
  if (from.type == to.type) return copy_same_type(box, from, to, levels);
  const std::uint64_t count = levels.level[levels.count - 1].count;
  each_run(levels, from.first, to.first, [&](const std::byte* source, std::byte* target) {
    convert(source, from.type, target, to.type, count);
  });
}

void copy_box(Device& device, const Box& box, const SourcePlace& from, const TargetPlace& to) {
  if (!device.is_gpu()) return copy_box(box, from, to);
  if (box.empty()) return;
  const Levels levels(box, from, to);
  const std::uint64_t count = levels.level[levels.count - 1].count;
  if (from.type != to.type) {
    return each_run(levels, from.first, to.first, [&](const std::byte* source, std::byte* target) {
      device.convert(from.type, source, to.type, target, count);
    });
  }
  const std::uint64_t bytes = count * size_of(from.type);
  if (levels.count == 1) return device.copy(to.first, from.first, bytes);
  const Level& rows = levels.level[levels.count - 2];
  each_run(levels, levels.count - 2, 0, from.first, to.first,
           [&](const std::byte* source, std::byte* target) {
             device.copy_rows(target, rows.to, source, rows.from, bytes, rows.count);
           });
}

bool is_run(const Box& box, const Strides& strides) {
  std::uint64_t distance = 1;
  for (std::size_t d = box.dimensions(); d-- > 0;) {
    if (box[d].size() > 1 && strides[d] != distance) return false;
    distance *= box[d].size();
  }
  return true;
}

}  // namespace tutti::parallel::reshard
