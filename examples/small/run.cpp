#include "run.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "text.h"

namespace small {
namespace {

/// destinations <- sum of sources. In the order of the sources, so that equal plans give equal
/// bits.
template <typename T>
void combine_as(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
                std::size_t count) {
  const auto element = [](auto* bytes, std::size_t i) { return bytes + i * sizeof(T); };
  for (std::size_t i = 0; i < count; ++i) {
    T sum;
    std::memcpy(&sum, element(sources[0], i), sizeof sum);  // the caller's memory may lie anyhow
    for (const std::byte* source : sources.subspan(1)) {
      T next;
      std::memcpy(&next, element(source, i), sizeof next);
      if constexpr (std::is_integral_v<T>) {
        using Unsigned = std::make_unsigned_t<T>;  // which wraps
        sum = static_cast<T>(static_cast<Unsigned>(sum) + static_cast<Unsigned>(next));
      } else {
        sum += next;
      }
    }
    for (std::byte* destination : destinations) {
      std::memcpy(element(destination, i), &sum, sizeof sum);
    }
  }
}

void combine(Type type, std::span<std::byte* const> destinations,
             std::span<const std::byte* const> sources, std::size_t count) {
  switch (type) {
    case Type::int32:
      return combine_as<std::int32_t>(destinations, sources, count);
    case Type::int64:
      return combine_as<std::int64_t>(destinations, sources, count);
    case Type::float32:
      return combine_as<float>(destinations, sources, count);
    case Type::float64:
      return combine_as<double>(destinations, sources, count);
  }
}

/// One rank's way through one call.
class Runner {
 public:
  Runner(Job& job, const Plan& plan, const Call& call)
      : job_(job),
        plan_(plan),
        call_(call),
        cut_(call.count, size_of(call.type), plan.pieces, job.slot_bytes()),
        number_(job.next_call()) {}

  void run() {
    const auto& steps = plan_.steps[static_cast<std::size_t>(job_.rank())];
    for (tile_ = 0; tile_ < cut_.tiles; ++tile_) {
      for (const Step& step : steps) make(step);
    }
  }

 private:
  void make(const Step& step) {
    const std::size_t bytes = bytes_of(step);
    std::vector<const std::byte*> sources;
    std::vector<std::byte*> destinations;
    for (const Operand& o : step.sources) {
      sources.push_back(o.is_link() ? arrived(step, o.peer, bytes) : memory(o));
    }
    for (const Operand& o : step.destinations) {
      destinations.push_back(o.is_link() ? free_slot(step, o.peer, bytes) : memory(o));
    }
    combine(call_.type, destinations, sources, bytes / size_of(call_.type));
    // The release says: who sees this number sees the data, too. And of a freed slot: who sees it
    // writes after these reads.
    for (const Operand& o : step.destinations) {
      if (o.is_link())
        job_.link(job_.rank(), o.peer).published.fetch_add(1, std::memory_order_release);
    }
    for (const Operand& o : step.sources) {
      if (o.is_link()) job_.link(o.peer, job_.rank()).freed.fetch_add(1, std::memory_order_release);
    }
  }

  Extent extent(const Operand& o) const { return cut_.piece(tile_, o.chunk % plan_.pieces); }
  std::size_t bytes_of(const Step& step) const {
    for (const auto* side : {&step.destinations, &step.sources}) {
      for (const Operand& o : *side) {
        if (!o.is_link()) return extent(o).count * size_of(call_.type);
      }
    }
    return 0;  // a proved plan has no such step
  }
  std::byte* memory(const Operand& o) const {
    const void* buffer =
        o.space == Space::in ? call_.in : call_.out;  // the proof: no step writes `in`
    const std::size_t block = o.chunk / plan_.pieces;
    return static_cast<std::byte*>(const_cast<void*>(buffer)) +
           (block * call_.count + extent(o).begin) * size_of(call_.type);
  }

  /// The data of the next message from `peer`, when it is there.
  const std::byte* arrived(const Step& step, int peer, std::size_t bytes) {
    Link& link = job_.link(peer, job_.rank());
    const std::uint64_t message =
        link.freed.load(std::memory_order_relaxed);  // this rank writes it
    job_.wait(
        peer, [&] { return link.published.load(std::memory_order_acquire) > message; },
        [&] { return "to send" + where(step); });
    Slot& slot = job_.slot(peer, job_.rank(), message);
    if (slot.call != tag() || slot.bytes != bytes) {
      job_.fail("rank " + std::to_string(job_.rank()) + " and rank " + std::to_string(peer) +
                " make different calls: rank " + std::to_string(peer) + " sent " +
                std::to_string(slot.bytes) + " bytes where " + std::to_string(bytes) +
                " of the same call were expected," + where(step));
    }
    return slot.data();
  }
  /// The room of the next message to `peer`, when there is some.
  std::byte* free_slot(const Step& step, int peer, std::size_t bytes) {
    Link& link = job_.link(job_.rank(), peer);
    const std::uint64_t message = link.published.load(std::memory_order_relaxed);
    job_.wait(
        peer, [&] { return message < link.freed.load(std::memory_order_acquire) + kSlots; },
        [&] { return "to free a slot" + where(step); });
    Slot& slot = job_.slot(job_.rank(), peer, message);
    slot.call = tag();
    slot.bytes = bytes;
    return slot.data();
  }

  /// A number that differs between calls that do not match.
  std::uint64_t tag() const {
    return number_ << 8 | static_cast<std::uint64_t>(plan_.collective) << 4 |
           static_cast<std::uint64_t>(call_.type);
  }
  std::string where(const Step& step) const {
    return " in step '" + to_text(step) + "', tile " + std::to_string(tile_) + " of " +
           name(plan_.collective) + " #" + std::to_string(number_);
  }

  Job& job_;
  const Plan& plan_;
  const Call& call_;
  Cut cut_;
  std::uint64_t number_;  // of the call, on this rank
  std::size_t tile_ = 0;
};

}  // namespace

std::size_t size_of(Type type) { return type == Type::int32 || type == Type::float32 ? 4 : 8; }

Cut::Cut(std::size_t block_elements, std::size_t element_bytes, std::size_t tile_pieces,
         std::size_t slot_bytes)
    : block(block_elements), grain(64 / element_bytes), pieces(tile_pieces) {
  const std::size_t most = slot_bytes / 64 * grain * pieces;  // of a tile
  const auto up = [](std::size_t a, std::size_t b) { return (a + b - 1) / b; };
  tiles = std::max<std::size_t>(up(block, most), 1);
  // Tiles of nearly equal length: a short last one would cost a whole round of messages.
  tile = tiles == 1 ? most : up(up(block, tiles), grain * pieces) * grain * pieces;
  tiles = std::max<std::size_t>(up(block, tile), 1);
}

Extent Cut::piece(std::size_t tile_index, std::size_t piece_index) const {
  const std::size_t first = tile_index * tile;
  const std::size_t length = std::min(block - first, tile);
  if (pieces == 1) return {first, length};
  const std::size_t grains = (length + grain - 1) / grain;
  const std::size_t begin = std::min(length, grains * piece_index / pieces * grain);
  const std::size_t end = std::min(length, grains * (piece_index + 1) / pieces * grain);
  return {first + begin, end - begin};
}

void run(Job& job, const Proved& plan, const Call& call) {
  if (plan->ranks() != job.ranks()) {
    job.fail("a plan for " + std::to_string(plan->ranks()) + " ranks cannot run on " +
             std::to_string(job.ranks()));
  }
  if (plan->slots > kSlots) {
    job.fail("the plan needs " + std::to_string(plan->slots) + " slots, a link has " +
             std::to_string(kSlots));
  }
  Runner(job, *plan, call).run();
}

}  // namespace small
