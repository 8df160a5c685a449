#include "parallel/domain/box_copy.h"

#include <algorithm>
#include <cstring>

namespace tutti::parallel::domain {

BoxRuns::BoxRuns(const BlockMemory& memory, const Box& part)
    : run_(memory.cell_bytes), bytes_(memory.bytes_of(part)) {
  std::vector<Level> levels;  // the innermost first
  const auto add = [&](std::size_t count, std::size_t distance) {
    if (count == 1) return;
    if (levels.empty() && distance == run_) {
      run_ *= count;
    } else if (!levels.empty() && distance == levels.back().count * levels.back().distance) {
      levels.back().count *= count;
    } else {
      levels.push_back({count, distance});
    }
  };
  std::size_t distance = memory.cell_bytes;
  for (std::size_t d = part.size(); d-- > 0;) {
    offset_ += distance * static_cast<std::size_t>(part[d].begin - memory.box[d].begin);
    add(static_cast<std::size_t>(part[d].size()), distance);
    distance *= static_cast<std::size_t>(memory.box[d].size());
  }
  add(memory.outer, distance);
  levels_.assign(levels.rbegin(), levels.rend());
}

template <class Use>
void BoxRuns::each_level(const Use& use) const {
  if (bytes_ == 0) return;
  const std::size_t outer_levels = levels_.empty() ? 0 : levels_.size() - 1;
  std::vector<std::size_t> at(outer_levels);
  std::size_t begin = offset_, packed = 0;
  while (true) {
    use(begin, packed);
    packed += inner().count * run_;
    std::size_t level = outer_levels;
    while (level-- > 0) {
      begin += levels_[level].distance;
      if (++at[level] < levels_[level].count) break;
      begin -= levels_[level].count * levels_[level].distance;
      at[level] = 0;
    }
    if (level >= outer_levels) return;
  }
}

template <class Use>
void BoxRuns::each_run(const Use& use) const {
  const Level level = inner();
  each_level([&](std::size_t from, std::size_t packed) {
    for (std::size_t i = 0; i < level.count; ++i) {
      use(from, packed);
      from += level.distance;
      packed += run_;
    }
  });
}

/// Runs of one number or a few are frequent (columns of a field), and faster with a size that the
/// compiler knows.
template <class Use>
void BoxRuns::each_sized_run(const Use& use) const {
  const auto sized = [&]<std::size_t kBytes>() {
    each_run(
        [&](std::size_t at, std::size_t packed) { use.template operator()<kBytes>(at, packed); });
  };
  switch (run_) {
    case 2:
      return sized.template operator()<2>();
    case 4:
      return sized.template operator()<4>();
    case 8:
      return sized.template operator()<8>();
    case 16:
      return sized.template operator()<16>();
    default:
      return sized.template operator()<0>();
  }
}

template <class Move>
void BoxRuns::move_all(std::span<const Copy> copies, const Move& move) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const BoxRuns& runs = *copies[i].runs;
    std::byte* const one = copies[i].packed;
    const std::size_t run = runs.run_;
    if (i + 1 == copies.size() || !runs.same_form(*copies[i + 1].runs)) {
      runs.each_sized_run([&]<std::size_t kBytes>(std::size_t at, std::size_t packed) {
        move.template operator()<kBytes>(at, one + packed, run);
      });
      continue;
    }
    const std::size_t apart = copies[i + 1].runs->offset_ - runs.offset_;  // modulo 2^64
    std::byte* const other = copies[++i].packed;
    runs.each_sized_run([&]<std::size_t kBytes>(std::size_t at, std::size_t packed) {
      move.template operator()<kBytes>(at, one + packed, run);
      move.template operator()<kBytes>(at + apart, other + packed, run);
    });
  }
}

void BoxRuns::pack(Device& device, std::span<const Copy> copies, const std::byte* block) {
  if (!device.is_gpu()) {
    return move_all(copies,
                    [&]<std::size_t kBytes>(std::size_t at, std::byte* packed, std::size_t run) {
                      std::memcpy(packed, block + at, kBytes == 0 ? run : kBytes);
                    });
  }
  for (const Copy& c : copies) {
    const Level level = c.runs->inner();
    c.runs->each_level([&](std::size_t at, std::size_t packed) {
      device.copy_rows(c.packed + packed, c.runs->run_, block + at, level.distance, c.runs->run_,
                       level.count);
    });
  }
}

void BoxRuns::unpack(Device& device, std::span<const Copy> copies, std::byte* block) {
  if (!device.is_gpu()) {
    return move_all(copies,
                    [&]<std::size_t kBytes>(std::size_t at, std::byte* packed, std::size_t run) {
                      std::memcpy(block + at, packed, kBytes == 0 ? run : kBytes);
                    });
  }
  for (const Copy& c : copies) {
    const Level level = c.runs->inner();
    c.runs->each_level([&](std::size_t at, std::size_t packed) {
      device.copy_rows(block + at, level.distance, c.packed + packed, c.runs->run_, c.runs->run_,
                       level.count);
    });
  }
}

void BoxRuns::zero(Device& device, std::byte* block, const std::byte* zeros) const {
  if (!device.is_gpu()) {
    return each_run([&](std::size_t at, std::size_t) { std::memset(block + at, 0, run_); });
  }
  each_level([&](std::size_t at, std::size_t) {
    device.copy_rows(block + at, inner().distance, zeros, 0, run_, inner().count);
  });
}

}  // namespace tutti::parallel::domain
