// Whether a layout can be.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "parallel/reshard/extent.h"
#include "parallel/reshard/layout.h"
#include "parallel/reshard/partition.h"

namespace tutti::parallel::reshard {
namespace {

// Sizes in bytes stay far from the end of the numbers.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;
// Runs that are listed for pieces whose places lie between each other.
constexpr std::uint64_t kMostRuns = 1u << 24;

[[noreturn]] void refuse_layout(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "layout: " + why);
}

void check_shape(const TensorLayout& t) {
  if (!is_valid(t.type)) refuse_layout(fmt::format("tensor '{}' has an unknown type", t.name));
  if (t.shape.size() > kMostDimensions) {
    refuse_layout(fmt::format("tensor '{}' has {} dimensions: there may be {} at most", t.name,
                              t.shape.size(), kMostDimensions));
  }
  std::uint64_t room = kMostBytes / size_of(t.type);
  for (const std::uint64_t size : t.shape) {
    if (size == 0) continue;
    if (size > room) refuse_layout(fmt::format("tensor '{}' has more than 2^60 bytes", t.name));
    room /= size;
  }
}

void check_piece(const Layout& layout, const TensorLayout& t, const Piece& p) {
  const auto wrong = [&](const std::string& why) {
    refuse_layout(fmt::format("tensor '{}': the piece {} of rank {} {}", t.name, text_of(p.box),
                              p.rank, why));
  };
  if (p.rank < 0 || p.rank >= layout.ranks) {
    wrong(fmt::format("has no rank: there are {}", layout.ranks));
  }
  if (p.buffer >= layout.buffers.size()) wrong("is in a buffer that does not exist");
  if (p.box.dimensions() != t.shape.size()) {
    wrong(fmt::format("has {} dimensions, and the tensor has {}", p.box.dimensions(),
                      t.shape.size()));
  }
  if (p.offset > kMostBytes || p.offset % size_of(t.type) != 0) {
    wrong(
        fmt::format("begins at byte {} of its buffer, which is no place for an element", p.offset));
  }
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < t.shape.size(); ++d) {
    const Range r = p.box[d];
    if (r.begin >= r.end || r.end > t.shape[d]) {
      wrong(fmt::format("is empty, or not inside of the tensor, in dimension {} of size {}", d,
                        t.shape[d]));
    }
    if (r.size() == 1) continue;
    if (p.strides[d] > kMostBytes / r.size()) wrong("has strides that no memory has");
    last += (r.size() - 1) * p.strides[d];
    if (last > kMostBytes) wrong("has strides that no memory has");
  }
}

void check_covered(const TensorLayout& t) {
  std::uint64_t held = 0;
  for (const Part& part : partition(t.pieces)) held += part.box.elements();
  if (held == t.elements()) return;
  std::vector<Box> missing{Box::whole(t.shape)};
  for (const Piece& p : t.pieces) {
    std::vector<Box> rest;
    for (const Box& box : missing) {
      for (const Box& b : without(box, p.box)) rest.push_back(b);
    }
    missing = std::move(rest);
  }
  refuse_layout(
      fmt::format("no rank has the elements {} of tensor '{}'", text_of(missing.at(0)), t.name));
}

/// A piece's place in a buffer.
struct Place {
  const TensorLayout* tensor;
  const Piece* piece;
  std::uint64_t begin, end;  // bytes
};

/// Calls use(begin, end) for each run of bytes.
template <class Use>
void each_byte_run(const Place& place, const Use& use) {
  const Piece& p = *place.piece;
  const std::uint64_t element = size_of(place.tensor->type);
  const std::size_t dimensions = p.box.dimensions();
  std::uint64_t run = element;
  std::size_t outer = dimensions;
  while (outer > 0 && (p.box[outer - 1].size() == 1 || p.strides[outer - 1] * element == run)) {
    run *= p.box[--outer].size();
  }
  std::vector<std::uint64_t> at(outer);
  std::uint64_t begin = p.offset;
  for (;;) {
    use(begin, begin + run);
    std::size_t d = outer;
    for (;;) {
      if (d == 0) return;
      --d;
      begin += p.strides[d] * element;
      if (++at[d] < p.box[d].size()) break;
      begin -= p.box[d].size() * p.strides[d] * element;
      at[d] = 0;
    }
  }
}

/// `places` lie among each other: whether they share no byte.
void check_runs(const Layout& layout, std::span<const Place> places) {
  std::uint64_t count = 0;
  for (const Place& p : places) count += p.piece->box.elements();  // at most so many
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;
  for (const Place& p : places) {
    each_byte_run(p, [&](std::uint64_t begin, std::uint64_t end) {
      runs.emplace_back(begin, end);
      if (runs.size() > kMostRuns) {
        refuse_layout(
            fmt::format("rank {}: the pieces of buffer '{}' lie among each other in more than "
                        "{} runs; give them buffers of their own",
                        p.piece->rank, layout.buffers[p.piece->buffer], kMostRuns));
      }
    });
  }
  std::ranges::sort(runs);
  for (std::size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].first >= runs[i - 1].second) continue;
    const Piece& p = *places.front().piece;
    refuse_layout(
        fmt::format("rank {} would write byte {} of buffer '{}' twice (tensor '{}', piece {}{})",
                    p.rank, runs[i].first, layout.buffers[p.buffer], places.front().tensor->name,
                    text_of(p.box), places.size() > 1 ? ", and others" : ""));
  }
}

/// Whether its strides alone say that no two elements share a place: a larger stride steps over
/// all that the smaller ones reach.
bool is_injective(const Piece& p) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> levels;  // stride, size
  for (std::size_t d = 0; d < p.box.dimensions(); ++d) {
    if (p.box[d].size() > 1) levels.emplace_back(p.strides[d], p.box[d].size());
  }
  std::ranges::sort(levels);
  std::uint64_t reach = 0;
  for (const auto& [stride, size] : levels) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

void check_places(const Layout& layout) {
  std::map<std::pair<int, std::uint32_t>, std::vector<Place>> buffers;
  for (const TensorLayout& t : layout.tensors) {
    for (const Piece& p : t.pieces) {
      buffers[{p.rank, p.buffer}].push_back({&t, &p, p.offset, p.offset + span_of(p, t.type)});
    }
  }
  for (auto& [where, places] : buffers) {
    std::ranges::sort(places, {}, &Place::begin);
    for (std::size_t i = 0; i < places.size();) {
      std::uint64_t end = places[i].end;
      std::size_t next = i + 1;
      while (next < places.size() && places[next].begin < end) {
        end = std::max(end, places[next++].end);
      }
      if (next > i + 1 || !is_injective(*places[i].piece)) {
        check_runs(layout, std::span(places).subspan(i, next - i));
      }
      i = next;
    }
  }
}

}  // namespace

void Layout::check(Side side) const {
  if (ranks < 1) refuse_layout("it has no ranks");
  std::set<std::string_view> names;
  for (const TensorLayout& t : tensors) {
    if (!names.insert(t.name).second)
      refuse_layout(fmt::format("tensor '{}' is there twice", t.name));
    check_shape(t);
    for (const Piece& p : t.pieces) check_piece(*this, t, p);
    check_covered(t);
  }
  if (side == Side::to) check_places(*this);
}

}  // namespace tutti::parallel::reshard
