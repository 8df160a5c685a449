#include "parallel/domain/halo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/domain/box_copy.h"
#include "parallel/memory_need.h"

namespace tutti::parallel::domain {
namespace {

constexpr std::size_t kAlignment = 64;

std::vector<std::string> lines_of(const HaloShape& s) {
  std::vector<std::string> lines{fmt::format("'{}' of {} x cells x {} elements, {}, corners {}",
                                             s.name, s.outer, s.inner, name(s.type), s.corners)};
  for (const Dimension& d : s.dimensions) {
    lines.push_back(fmt::format("dimension {}: {} cells over {} ranks, {} edges", d.name, d.cells,
                                d.ranks, d.edge == Edge::zero ? "zero" : "periodic"));
    // Another line, because a difference is shown by the beginning of its line.
    lines.push_back(fmt::format("{}: blocks of [{}]", d.name, fmt::join(d.blocks, ", ")));
  }
  for (const Stencil& t : s.stencils) {
    lines.push_back(fmt::format("kernel {}, stride {}, dilation {}, padding {}", t.kernel, t.stride,
                                t.dilation, t.padding));
  }
  return lines;
}

/// Before anything is checked: a rank that refused its shape alone would leave the others waiting.
HaloLayout agreed_layout(Axis& axis, const std::string& what, const HaloShape& shape) {
  agree(axis, what, lines_of(shape));
  try {
    if (size_of(shape.type) == 0 || shape.outer == 0 || shape.inner == 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} x cells x {} elements of type {}", shape.outer, shape.inner,
                              name(shape.type)));
    }
    const Device& device = axis.device();
    const bool has_sums = device.computes() && is_float(shape.type) && size_of(shape.type) > 1;
    if (device.is_gpu() && !has_sums) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}, and the device is {}: it has no kernels for sums of them",
                              name(shape.type), device.name()));
    }
    return {axis.size(), shape};
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", what, error.what()), error.rank());
  }
}

BlockMemory memory_of(const HaloShape& shape, const Box& padded) {
  return {shape.outer, padded, shape.inner * size_of(shape.type)};
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.size(); ++d) {
    if (intersection(a[d], b[d]).size() == 0) return false;
  }
  return true;
}

}  // namespace

struct Halo::Part {
  HaloMessage message;
  BoxRuns source, target;  // in this rank's memory, if it is the one that has them
  std::size_t count = 0;   // elements
  std::byte* packed = nullptr;
  bool local() const { return message.from == message.to; }
};

struct Halo::Waiting {
  const Part* part;
  bool sends;
  Pending pending;
};

Halo::Halo(Axis& axis, HaloShape shape)
    : axis_(axis),
      shape_(std::move(shape)),
      what_(fmt::format("halo '{}'", shape_.name)),
      layout_(agreed_layout(axis, what_, shape_)),
      label_(axis.new_label(what_)),
      own_(layout_.input().box(axis.rank())),
      padded_(layout_.padded(axis.rank())),
      output_(layout_.output().box(axis.rank())),
      interior_(layout_.interior(axis.rank())),
      border_(layout_.border(axis.rank())),
      beyond_(without(padded_, layout_.in_field(axis.rank()))),
      memory_(MemoryPool::Reuse::no, axis.device()),
      turns_(shape_.corners ? own_.size() : 1) {
  const int rank = axis_.rank();
  const BlockMemory memory = memory_of(shape_, padded_);
  std::size_t bytes = 0;
  std::vector<std::size_t> sums(turns_);  // what a dimension's messages add
  std::vector<std::size_t> offsets;
  for (const bool receives : {true, false}) {
    for (HaloMessage& m : receives ? layout_.to(rank) : layout_.from(rank)) {
      // The same cells are elsewhere in another rank's memory.
      const BoxRuns source(memory, m.from == rank ? m.source : own_),
          target(memory, m.to == rank ? m.target : own_);
      const std::size_t count = elements(m.target), size = count * size_of(shape_.type);
      if (m.from == rank) sums[turns_ == 1 ? 0 : m.dimension] += size;
      offsets.push_back(bytes);
      bytes += (size + kAlignment - 1) / kAlignment * kAlignment;
      (receives ? to_ : from_).push_back({std::move(m), source, target, count});
    }
  }
  const std::size_t largest = *std::ranges::max_element(sums);
  const bool is_gpu = axis_.device().is_gpu();
  std::size_t zeros = 0;
  for (const Box& box : beyond_) {
    if (is_gpu) zeros = std::max(zeros, BoxRuns(memory, box).run());
  }
  agree_on_memory(axis_, what_, bytes + largest + zeros, axis_.device());
  together(axis_, what_, [&] {
    messages_ = memory_.allocate(bytes);
    sum_ = memory_.allocate(largest, is_gpu ? MemoryKind::window : MemoryKind::host);
    zeros_ = memory_.zeros(zeros);
  });
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    (i < to_.size() ? to_[i] : from_[i - to_.size()]).packed = messages_.data() + offsets[i];
  }
}

Halo::~Halo() {
  for (Waiting& w : waiting_) {
    try {
      w.pending.wait();
    } catch (const Error&) {
      // A program that leaves in the middle of an exchange has an error of its own.
    }
  }
}

std::size_t Halo::elements(const Box& box) const {
  return shape_.outer * static_cast<std::size_t>(cells(box)) * shape_.inner;
}

void Halo::check_memory(const void* own, const void* padded) const {
  axis_.device().check_memory(what_, {{"the block of own cells", own, elements(own_)},
                                      {"the padded block", padded, elements(padded_)}});
}

void Halo::insert(const void* own, void* padded) const {
  check_memory(own, padded);
  const BlockMemory memory = memory_of(shape_, padded_);
  const BoxRuns runs(memory, own_);
  // It is only read from.
  const BoxRuns::Copy copy{&runs, const_cast<std::byte*>(static_cast<const std::byte*>(own))};
  BoxRuns::unpack(axis_.device(), {&copy, 1}, static_cast<std::byte*>(padded));
}

void Halo::extract(const void* padded, void* own) const {
  check_memory(own, padded);
  const BlockMemory memory = memory_of(shape_, padded_);
  const BoxRuns runs(memory, own_);
  const BoxRuns::Copy copy{&runs, static_cast<std::byte*>(own)};
  BoxRuns::pack(axis_.device(), {&copy, 1}, static_cast<const std::byte*>(padded));
}

void Halo::start(void* padded) {
  begin(Way::forward, padded);
  const BlockMemory memory = memory_of(shape_, padded_);
  for (const Box& box : beyond_) BoxRuns(memory, box).zero(axis_.device(), data_, zeros_.data());
  begin_dimension();
}

void Halo::start_backward(void* padded) {
  begin(Way::backward, padded);
  begin_dimension();
}

void Halo::begin(Way way, void* padded) {
  if (way_ != Way::none) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("{}: an exchange is under way; call finish() first", what_));
  }
  axis_.device().check_memory(what_, {{"the padded block", padded, elements(padded_)}});
  way_ = way;
  turn_ = 0;
  data_ = static_cast<std::byte*>(padded);
}

bool Halo::in_turn(const Part& part) const {
  if (turns_ == 1) return true;
  return part.message.dimension == (way_ == Way::forward ? turn_ : turns_ - 1 - turn_);
}

template <class Body>
void Halo::during(const Part& part, const char* what, const Body& body) const {
  try {
    body();
  } catch (const Error& error) {
    const HaloMessage& m = part.message;
    const int peer = m.from == axis_.rank() ? m.to : m.from;
    throw Error(error.code(),
                fmt::format("{}, {}, dimension {}, {} rank {}: {}", what_,
                            way_ == Way::forward ? "forward" : "backward",
                            shape_.dimensions[m.dimension].name, what, axis_.world_rank(peer),
                            error.what()),
                error.rank());
  }
}

void Halo::begin_dimension() {
  const bool forward = way_ == Way::forward;
  const auto message = [&](const Part& part, bool sends, std::byte* data, int peer) {
    Call call = call_of(Collective::send_recv, sends ? data : nullptr, sends ? nullptr : data,
                        part.count, shape_.type);
    call.peer = peer;
    call.sends = sends;
    call.label = label_;
    during(part, sends ? "to" : "from", [&] {
      waiting_.push_back({&part, sends, axis_.start(call, what_)});
    });
  };
  for (const Part& part : forward ? to_ : from_) {
    if (!in_turn(part) || part.local()) continue;
    const bool direct = forward && part.target.contiguous();
    message(part, false, direct ? data_ + part.target.offset() : part.packed,
            forward ? part.message.from : part.message.to);
  }
  std::vector<BoxRuns::Copy> copies;
  for (const Part& part : forward ? from_ : to_) {
    const BoxRuns& runs = forward ? part.source : part.target;
    if (in_turn(part) && !part.local() && !runs.contiguous())
      copies.push_back({&runs, part.packed});
  }
  BoxRuns::pack(axis_.device(), copies, data_);
  for (const Part& part : forward ? from_ : to_) {
    if (!in_turn(part) || part.local()) continue;
    const BoxRuns& runs = forward ? part.source : part.target;
    message(part, true, runs.contiguous() ? data_ + runs.offset() : part.packed,
            forward ? part.message.to : part.message.from);
  }
}

void Halo::end_dimension() {
  const bool forward = way_ == Way::forward;
  std::vector<BoxRuns::Copy> own, halo;  // from the own block; into the halo
  for (const Part& part : to_) {
    if (!in_turn(part)) continue;
    if (part.local()) own.push_back({forward ? &part.source : &part.target, part.packed});
    if (part.local() || !part.target.contiguous()) halo.push_back({&part.target, part.packed});
  }
  BoxRuns::pack(axis_.device(), own, data_);
  if (forward) return BoxRuns::unpack(axis_.device(), halo, data_);
  std::vector<const Part*> parts;
  bool apart = true;
  for (const auto* list : {&to_, &from_}) {
    for (const Part& part : *list) {
      if (!in_turn(part) || part.message.from != axis_.rank()) continue;
      for (const Part* other : parts) {
        apart = apart && !overlap(part.message.source, other->message.source);
      }
      parts.push_back(&part);
    }
  }
  if (apart) return add(parts);
  for (const Part*& part : parts) add({&part, 1});
}

/// Parts that have no cell of this rank in common.
void Halo::add(std::span<const Part* const> parts) {
  std::vector<BoxRuns::Copy> own;
  std::byte* next = sum_.data();
  for (const Part* part : parts) {
    own.push_back({&part->source, next});
    next += part->count * size_of(shape_.type);
  }
  Device& device = axis_.device();
  BoxRuns::pack(device, own, data_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    device.add(shape_.type, own[i].packed, own[i].packed, 1, parts[i]->packed, parts[i]->count);
  }
  BoxRuns::unpack(device, own, data_);
}

void Halo::wait(Waiting& waiting) {
  during(*waiting.part, waiting.sends ? "to" : "from", [&] { waiting.pending.wait(); });
}

bool Halo::progress() {
  while (way_ != Way::none) {
    if (!std::ranges::all_of(waiting_, [](const Waiting& w) { return w.pending.ready(); })) {
      return false;
    }
    for (Waiting& w : waiting_) wait(w);
    waiting_.clear();
    end_dimension();
    if (++turn_ == turns_) {
      way_ = Way::none;
    } else {
      begin_dimension();
    }
  }
  return true;
}

void Halo::finish() {
  while (!progress()) {
    for (Waiting& w : waiting_) wait(w);
  }
}

}  // namespace tutti::parallel::domain
