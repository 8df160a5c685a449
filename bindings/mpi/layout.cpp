#include "bindings/mpi/layout.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "bindings/mpi/error.h"

namespace tutti::mpi {
namespace {

using Part = Layout::Part;

MPI_Count times(MPI_Count a, MPI_Count b) {
  MPI_Count product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    fail(MPI_ERR_COUNT, "the type would have more than 2^63 - 1 bytes of data");
  }
  return product;
}

MPI_Count plus(MPI_Count a, MPI_Count b) {
  MPI_Count sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    fail(MPI_ERR_COUNT, "the type would have more than 2^63 - 1 bytes of data");
  }
  return sum;
}

/// A displacement wraps as an address does: type maps may hold absolute addresses.
MPI_Aint displaced(MPI_Aint offset, MPI_Aint by) {
  return static_cast<MPI_Aint>(static_cast<std::uint64_t>(offset) + static_cast<std::uint64_t>(by));
}
MPI_Aint steps(MPI_Count n, MPI_Aint stride) {
  return static_cast<MPI_Aint>(static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(stride));
}

// A list that is short enough to be copied into the list that repeats or contains it.
constexpr std::size_t kShort = 4;

template <std::size_t Bytes>
void copy_blocks(std::byte* to, MPI_Aint to_stride, const std::byte* from, MPI_Aint from_stride,
                 MPI_Count count) {
  for (MPI_Count i = 0; i < count; ++i, to += to_stride, from += from_stride)
    std::memcpy(to, from, Bytes);
}

/// `count` runs of `bytes` each.
void copy_strided(std::byte* to, MPI_Aint to_stride, const std::byte* from, MPI_Aint from_stride,
                  MPI_Count bytes, MPI_Count count) {
  switch (bytes) {
    case 1:
      return copy_blocks<1>(to, to_stride, from, from_stride, count);
    case 2:
      return copy_blocks<2>(to, to_stride, from, from_stride, count);
    case 4:
      return copy_blocks<4>(to, to_stride, from, from_stride, count);
    case 8:
      return copy_blocks<8>(to, to_stride, from, from_stride, count);
    case 12:
      return copy_blocks<12>(to, to_stride, from, from_stride, count);
    case 16:
      return copy_blocks<16>(to, to_stride, from, from_stride, count);
    case 24:
      return copy_blocks<24>(to, to_stride, from, from_stride, count);
    case 32:
      return copy_blocks<32>(to, to_stride, from, from_stride, count);
    default:
      for (MPI_Count i = 0; i < count; ++i, to += to_stride, from += from_stride) {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
      }
  }
}

/// What is done with the runs that a range of packed bytes meets. A strided() call has whole runs.
struct Packer {
  const std::byte* base;
  std::byte* out;
  void strided(const Part& part, MPI_Aint offset, MPI_Count count) {
    copy_strided(out, part.bytes, base + offset, part.stride, part.bytes, count);
    out += part.bytes * count;
  }
  void run(const Part&, MPI_Aint offset, MPI_Count bytes) {
    std::memcpy(out, base + offset, static_cast<std::size_t>(bytes));
    out += bytes;
  }
};

struct Unpacker {
  const std::byte* in;
  std::byte* base;
  void strided(const Part& part, MPI_Aint offset, MPI_Count count) {
    copy_strided(base + offset, part.stride, in, part.bytes, part.bytes, count);
    in += part.bytes * count;
  }
  void run(const Part&, MPI_Aint offset, MPI_Count bytes) {
    std::memcpy(base + offset, in, static_cast<std::size_t>(bytes));
    in += bytes;
  }
};

struct Teller {
  const Layout::Take& take;
  void strided(const Part& part, MPI_Aint offset, MPI_Count count) {
    for (MPI_Count i = 0; i < count; ++i)
      take(part.element, displaced(offset, steps(i, part.stride)), part.bytes);
  }
  void run(const Part& part, MPI_Aint offset, MPI_Count bytes) {
    take(part.element, offset, bytes);
  }
};

template <class Visitor>
void visit(const Layout& layout, MPI_Aint offset, MPI_Count position, MPI_Count bytes,
           Visitor& visitor);

/// The packed bytes [position, position + bytes) of one part, which begins at `offset`.
template <class Visitor>
void visit_part(const Part& part, MPI_Aint offset, MPI_Count position, MPI_Count bytes,
                Visitor& visitor) {
  MPI_Count i = position / part.bytes;
  MPI_Count inside = position % part.bytes;
  while (bytes > 0) {
    const MPI_Aint at = displaced(offset, steps(i, part.stride));
    if (part.inner == nullptr && inside == 0 && bytes >= part.bytes) {
      const MPI_Count whole = bytes / part.bytes;
      visitor.strided(part, at, whole);
      i += whole;
      bytes -= whole * part.bytes;
      continue;
    }
    const MPI_Count here = std::min(bytes, part.bytes - inside);
    if (part.inner == nullptr) {
      visitor.run(part, displaced(at, inside), here);
    } else {
      visit(*part.inner, at, inside, here, visitor);
    }
    bytes -= here;
    inside = 0;
    ++i;
  }
}

template <class Visitor>
void visit(const Layout& layout, MPI_Aint offset, MPI_Count position, MPI_Count bytes,
           Visitor& visitor) {
  const auto& parts = layout.parts();
  auto part = parts.begin();
  if (position != 0) {
    part =
        std::upper_bound(parts.begin(), parts.end(), position,
                         [](MPI_Count p, const Part& candidate) { return p < candidate.before; }) -
        1;
  }
  for (; bytes > 0; ++part) {
    const MPI_Count inside = position - part->before;
    const MPI_Count here = std::min(bytes, part->bytes * part->count - inside);
    visit_part(*part, displaced(offset, part->offset), inside, here, visitor);
    position += here;
    bytes -= here;
  }
}

/// Whether one run after the other is one run.
bool follows(const Part& run, const Part& next) {
  return run.inner == nullptr && next.inner == nullptr && run.count == 1 && next.count == 1 &&
         next.offset == displaced(run.offset, run.bytes);
}

/// Whether `next`, a single repetition, is the next repetition of `part`.
bool repeats(const Part& part, const Part& next) {
  return next.count == 1 && part.inner == next.inner && part.bytes == next.bytes &&
         part.element == next.element &&
         (part.count == 1 || next.offset == displaced(part.offset, steps(part.count, part.stride)));
}

}  // namespace

void Layout::add(Part part) {
  if (part.count == 0 || part.bytes == 0) return;
  if (part.inner == nullptr && part.count > 1 && part.stride == part.bytes) {
    part.bytes = times(part.bytes, part.count);
    part.count = 1;
  }
  if (part.count == 1) part.stride = 0;
  if (!keeps_elements_) part.element = Element::byte;
  const MPI_Count total = plus(bytes_, times(part.bytes, part.count));
  if (!parts_.empty()) {
    Part& last = parts_.back();
    if (follows(last, part) && (!keeps_elements_ || last.element == part.element)) {
      last.bytes += part.bytes;
      bytes_ = total;
      return;
    }
  }
  part.before = bytes_;
  bytes_ = total;
  parts_.push_back(std::move(part));
}

void Layout::append_run(Element element, MPI_Aint offset, MPI_Count n) {
  Part part;
  part.offset = offset;
  part.bytes = times(static_cast<MPI_Count>(properties(element).size), n);
  part.element = element;
  add(std::move(part));
}

void Layout::append(const std::shared_ptr<const Layout>& layout, MPI_Aint offset, MPI_Count count,
                    MPI_Aint stride) {
  if (count == 0 || layout->bytes() == 0) return;
  times(layout->bytes(), count);
  const auto& parts = layout->parts();
  if (parts.size() == 1) {
    Part part = parts.front();
    part.offset = displaced(part.offset, offset);
    part.before = 0;
    if (count == 1) return add(std::move(part));
    if (part.count == 1 ||
        stride == steps(part.count, part.stride)) {  // a longer row of the same repetitions
      if (part.count == 1) part.stride = stride;
      part.count = times(part.count, count);
      return add(std::move(part));
    }
  }
  if (parts.size() <= kShort && count == 1) {
    for (Part part : parts) {
      part.offset = displaced(part.offset, offset);
      part.before = 0;
      add(std::move(part));
    }
    return;
  }
  Part part;
  part.offset = offset;
  part.count = count;
  part.stride = stride;
  part.bytes = layout->bytes();
  part.inner = layout;
  add(std::move(part));
}

void Layout::finish() {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    Part& last = parts_[kept];
    if (repeats(last, parts_[i])) {
      if (last.count == 1) last.stride = displaced(parts_[i].offset, -last.offset);
      ++last.count;
    } else if (++kept != i) {
      parts_[kept] = std::move(parts_[i]);
    }
  }
  if (!parts_.empty()) parts_.resize(kept + 1);
  parts_.shrink_to_fit();
}

bool Layout::single_run() const {
  return parts_.empty() ||
         (parts_.size() == 1 && parts_[0].count == 1 && parts_[0].inner == nullptr);
}

Part Layout::copies(MPI_Count count, MPI_Aint extent) const {
  Part all;
  if (parts_.size() == 1 &&
      (parts_[0].count == 1 || extent == steps(parts_[0].count, parts_[0].stride))) {
    all = parts_[0];
    if (all.count == 1) all.stride = extent;
    all.count *= count;
    return all;
  }
  all.count = count;
  all.stride = extent;
  all.bytes = bytes_;
  all.inner = std::shared_ptr<const Layout>(std::shared_ptr<const Layout>(), this);  // not owned
  return all;
}

void Layout::pack(const std::byte* base, MPI_Count count, MPI_Aint extent, MPI_Count position,
                  MPI_Count bytes, std::byte* out) const {
  if (bytes == 0) return;
  Packer packer{base, out};
  const Part all = copies(count, extent);
  visit_part(all, all.offset, position, bytes, packer);
}

void Layout::unpack(const std::byte* in, MPI_Count position, MPI_Count bytes, std::byte* base,
                    MPI_Count count, MPI_Aint extent) const {
  if (bytes == 0) return;
  Unpacker unpacker{in, base};
  const Part all = copies(count, extent);
  visit_part(all, all.offset, position, bytes, unpacker);
}

void Layout::for_each_run(MPI_Count count, MPI_Aint extent, MPI_Count position, MPI_Count bytes,
                          const Take& take) const {
  if (bytes == 0) return;
  Teller teller{take};
  const Part all = copies(count, extent);
  visit_part(all, all.offset, position, bytes, teller);
}

}  // namespace tutti::mpi
