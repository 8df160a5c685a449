#include "bindings/mpi/type.h"

#include <algorithm>
#include <cstring>

#include "bindings/mpi/error.h"

namespace tutti::mpi {
namespace {

MPI_Aint checked_add(MPI_Aint a, MPI_Aint b) {
  MPI_Aint sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    fail(MPI_ERR_COUNT, "the type would extend over more than 2^63 - 1 bytes");
  return sum;
}

MPI_Aint checked_times(MPI_Count n, MPI_Aint bytes) {
  MPI_Aint product = 0;
  if (__builtin_mul_overflow(n, bytes, &product)) {
    fail(MPI_ERR_COUNT, "the type would extend over more than 2^63 - 1 bytes");
  }
  return product;
}

/// The bounds of n copies, `stride` bytes apart.
Bounds repeated(Bounds one, MPI_Count n, MPI_Aint stride) {
  const MPI_Aint last = checked_times(n - 1, stride);
  return {checked_add(one.lower, std::min<MPI_Aint>(0, last)),
          checked_add(one.upper, std::max<MPI_Aint>(0, last))};
}

Bounds joined(Bounds a, Bounds b) {
  return {std::min(a.lower, b.lower), std::max(a.upper, b.upper)};
}

void copy_through_buffer(const void* from, MPI_Count from_count, const Type& from_type, void* to,
                         MPI_Count to_count, const Type& to_type, MPI_Count bytes) {
  constexpr MPI_Count kPiece = 64 * 1024;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(bytes, kPiece)));
  for (MPI_Count done = 0; done < bytes; done += kPiece) {
    const MPI_Count here = std::min(kPiece, bytes - done);
    from_type.pack(from, from_count, done, here, piece.data());
    to_type.unpack(piece.data(), done, here, to, to_count);
  }
}

}  // namespace

// --- Moving data

void Type::pack(const void* buffer, MPI_Count count, MPI_Count position, MPI_Count bytes,
                void* out) const {
  if (bytes == 0) return;
  if (contiguous_) {
    std::memcpy(out, address(buffer) + position, static_cast<std::size_t>(bytes));
    return;
  }
  layout_->pack(static_cast<const std::byte*>(buffer), count, extent(), position, bytes,
                static_cast<std::byte*>(out));
}

void Type::unpack(const void* in, MPI_Count position, MPI_Count bytes, void* buffer,
                  MPI_Count count) const {
  if (bytes == 0) return;
  if (contiguous_) {
    std::memcpy(address(buffer) + position, in, static_cast<std::size_t>(bytes));
    return;
  }
  layout_->unpack(static_cast<const std::byte*>(in), position, bytes,
                  static_cast<std::byte*>(buffer), count, extent());
}

void Type::copy(const void* from, MPI_Count from_count, const Type& from_type, void* to,
                MPI_Count to_count, const Type& to_type) {
  const MPI_Count bytes = std::min(from_count * from_type.size(), to_count * to_type.size());
  if (bytes == 0) return;
  if (from_type.contiguous(from_count)) {
    to_type.unpack(from_type.address(from), 0, bytes, to, to_count);
  } else if (to_type.contiguous(to_count)) {
    from_type.pack(from, from_count, 0, bytes, to_type.address(to));
  } else {
    copy_through_buffer(from, from_count, from_type, to, to_count, to_type, bytes);
  }
}

std::optional<MPI_Count> Type::elements_in(MPI_Count bytes) const {
  if (bytes == 0) return 0;
  if (size() == 0) return std::nullopt;
  MPI_Count n = bytes / size() * elements();
  bool whole = true;
  typed_layout().for_each_run(1, 0, 0, bytes % size(),
                              [&](Element element, MPI_Aint, MPI_Count run) {
                                const auto width = static_cast<MPI_Count>(properties(element).size);
                                n += run / width;
                                whole = whole && run % width == 0;
                              });
  if (!whole) return std::nullopt;
  return n;
}

MPI_Count Type::bytes_of_elements(MPI_Count n) const {
  if (elements() == 0) {
    if (n != 0) fail(MPI_ERR_COUNT, "{} elements of a type that has none", n);
    return 0;
  }
  MPI_Count bytes = checked_times(n / elements(), size());
  MPI_Count rest = n % elements();
  typed_layout().for_each_run(1, 0, 0, rest == 0 ? 0 : size(),
                              [&](Element element, MPI_Aint, MPI_Count run) {
                                const auto width = static_cast<MPI_Count>(properties(element).size);
                                const MPI_Count here = std::min(rest, run / width);
                                bytes += here * width;
                                rest -= here;
                              });
  return bytes;
}

const Layout& Type::typed_layout() const {
  std::call_once(typed_once_, [this] {
    if (typed_layout_ == nullptr) typed_layout_ = make_layout(true);
  });
  return *typed_layout_;
}

std::string Type::name() const {
  const std::lock_guard lock(name_mutex_);
  return name_;
}

void Type::set_name(std::string name) {
  const std::lock_guard lock(name_mutex_);
  name_ = std::move(name);
}

// --- Making types

std::shared_ptr<const Layout> Type::make_layout(bool typed) const {
  auto layout = std::make_shared<Layout>(typed);
  for (const Copies& copies : copies_) {
    auto old = copies.type->layout_;
    if (typed) {
      copies.type->typed_layout();
      old = copies.type->typed_layout_;
    }
    if (copies.count == 1 ||
        copies.stride == copies.length * copies.type->extent()) {  // fits: include() has checked
      layout->append(old, copies.displacement, copies.count * copies.length, copies.type->extent());
      continue;
    }
    auto block = std::make_shared<Layout>(typed);
    block->append(old, 0, copies.length, copies.type->extent());
    block->finish();
    layout->append(block, copies.displacement, copies.count, copies.stride);
  }
  layout->finish();
  return layout;
}

/// What one more part means for everything but the layout.
void Type::include(const Copies& copies) {
  const Type& old = *copies.type;
  const MPI_Count n = checked_times(copies.count, copies.length);
  if (n == 0 || old.empty_) return;
  checked_times(n, old.size());
  const auto spread = [&](Bounds one) {
    Bounds all = repeated(repeated(one, copies.length, old.extent()), copies.count, copies.stride);
    return Bounds{checked_add(all.lower, copies.displacement),
                  checked_add(all.upper, copies.displacement)};
  };
  if (old.marked_) {
    const Bounds bounds = spread(old.bounds_);
    bounds_ = marked_ ? joined(bounds_, bounds) : bounds;
    marked_ = true;
  }
  empty_ = false;
  if (old.size() == 0) return;
  const bool first = signature_.length() == 0;
  const Bounds true_bounds = spread(old.true_bounds_);
  true_bounds_ = first ? true_bounds : joined(true_bounds_, true_bounds);
  alignment_ = std::max(alignment_, old.alignment_);
  element_ = first || element_ == old.element_ ? old.element_ : std::nullopt;
  signature_ = signature_.then(old.signature_.times(static_cast<std::uint64_t>(n)));
  external_size_ = checked_add(external_size_, checked_times(n, old.external_size_));
  copies_.push_back(copies);
}

void Type::finish() {
  if (!marked_) {  // else bounds that were given for a part count alone
    bounds_ = true_bounds_;
    // The next element of the type is aligned as its elements have to be.
    const auto alignment = static_cast<MPI_Aint>(alignment_);
    const MPI_Aint beyond = (bounds_.upper - bounds_.lower) % alignment;
    if (beyond != 0) bounds_.upper = checked_add(bounds_.upper, alignment - beyond);
  }
  layout_ = make_layout(false);
  contiguous_ = layout_->single_run() && layout_->bytes() == extent();
}

TypeRef Type::of_blocks(std::vector<Block> blocks, Contents contents) {
  auto type = std::make_shared<Type>();
  type->contents_ = std::move(contents);
  for (const Block& block : blocks) {
    type->include({block.type, block.displacement, 1, block.count, 0});
  }
  type->finish();
  return type;
}

TypeRef Type::repeat(MPI_Count count, MPI_Count length, MPI_Aint stride, const TypeRef& old,
                     Contents contents) {
  auto type = std::make_shared<Type>();
  type->contents_ = std::move(contents);
  type->include({old, 0, count, length, stride});
  type->finish();
  return type;
}

TypeRef Type::resized(const TypeRef& old, Bounds bounds, Contents contents) {
  auto type = std::make_shared<Type>();
  type->contents_ = std::move(contents);
  type->include({old, 0, 1, 1, 0});
  type->bounds_ = bounds;
  type->marked_ = true;
  type->empty_ = false;
  type->finish();
  return type;
}

TypeRef Type::duplicate(const TypeRef& old) {
  auto type = std::make_shared<Type>();
  type->contents_.combiner = MPI_COMBINER_DUP;
  type->contents_.types = {old};
  type->include({old, 0, 1, 1, 0});
  type->bounds_ = old->bounds_;  // also of what has no elements
  type->marked_ = old->marked_;
  type->finish();
  type->pair_ = old->pair_;
  if (old->committed()) type->commit();
  return type;
}

TypeRef Type::predefined(std::string name, Element element) {
  auto type = std::make_shared<Type>();
  const ElementProperties& of = properties(element);
  auto layout = std::make_shared<Layout>(true);
  layout->append_run(element, 0, 1);
  type->layout_ = type->typed_layout_ = std::move(layout);
  type->bounds_ = type->true_bounds_ = {0, static_cast<MPI_Aint>(of.size)};
  type->empty_ = false;
  type->contiguous_ = true;
  type->alignment_ = of.alignment;
  type->element_ = element;
  type->signature_ = Signature::of(element);
  type->external_size_ = static_cast<MPI_Count>(of.external_size);
  type->commit();
  type->set_name(std::move(name));
  return type;
}

TypeRef Type::predefined_pair(std::string name, Element value, Element index) {
  const TypeRef first = predefined("", value);
  const TypeRef second = predefined("", index);
  const std::size_t width = properties(value).size, alignment = second->alignment_;
  const std::size_t offset = (width + alignment - 1) / alignment * alignment;
  auto type = of_blocks({{1, 0, first}, {1, static_cast<MPI_Aint>(offset), second}}, {});
  type->pair_ = Pair{value, index, offset};
  type->commit();
  type->set_name(std::move(name));
  return type;
}

}  // namespace tutti::mpi
