#include "parallel/reshard/pack.h"

#include "parallel/reshard/places.h"

namespace tutti::parallel::reshard {
namespace {

/// Bytes from a piece's first element to the first one of a box in it.
std::uint64_t distance_to(const Piece& piece, const Box& box, DataType type) {
  std::uint64_t elements = 0;
  for (std::size_t d = 0; d < box.dimensions(); ++d) {
    elements += (box[d].begin - piece.box[d].begin) * piece.strides[d];
  }
  return elements * size_of(type);
}

SourcePlace place_in(const TensorLayout& tensor, std::uint32_t number, const Box& box,
                     const void* memory) {
  const Piece& piece = tensor.pieces[number];
  return {
      static_cast<const std::byte*>(memory) + piece.offset + distance_to(piece, box, tensor.type),
      piece.strides, tensor.type};
}

/// Calls use(move, the place of its elements in the packed message).
template <class Byte, class Use>
void each_packed(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
                 Byte* packed, const Use& use) {
  for (const Move& move : plan.moves_of(message)) {
    const DataType type = travel_type(from, to, plan, move);
    use(move, PlaceOf<Byte>{packed, packed_strides(move.box), type});
    packed += move.box.elements() * size_of(type);
  }
}

TargetPlace writable(const SourcePlace& place) {
  return {const_cast<std::byte*>(place.first), place.strides, place.type};
}
/// The place of a message's first move, if all of the message lies there as it travels.
template <class Byte>
Byte* run_at(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
             const PlaceOf<Byte>& place) {
  const auto moves = plan.moves_of(message);
  const Move& move = moves.front();
  const bool is_one = moves.size() == 1 && is_run(move.box, place.strides) &&
                      place.type == travel_type(from, to, plan, move);
  return is_one ? place.first : nullptr;
}

SourcePlace readable(const TargetPlace& place) { return {place.first, place.strides, place.type}; }

}  // namespace

SourcePlace source_of(const Layout& from, const Layout& to, const Plan& plan, const Move& move,
                      const Memory& memory) {
  if (move.relay) {
    const TensorLayout& tensor = to.tensors[move.tensor];
    return place_in(tensor, move.source, move.box,
                    memory.destinations[tensor.pieces[move.source].buffer]);
  }
  const TensorLayout& tensor = from.tensors[plan.tensors[move.tensor]];
  return place_in(tensor, move.source, move.box, memory.sources[tensor.pieces[move.source].buffer]);
}

TargetPlace target_of(const Layout& to, const Move& move, const Memory& memory) {
  const TensorLayout& tensor = to.tensors[move.tensor];
  return writable(place_in(tensor, move.target, move.box,
                           memory.destinations[tensor.pieces[move.target].buffer]));
}

const std::byte* run_of_source(const Layout& from, const Layout& to, const Plan& plan,
                               const Message& message, const Memory& memory) {
  const Move& move = plan.moves_of(message).front();
  return run_at(from, to, plan, message, source_of(from, to, plan, move, memory));
}

std::byte* run_of_target(const Layout& from, const Layout& to, const Plan& plan,
                         const Message& message, const Memory& memory) {
  const Move& move = plan.moves_of(message).front();
  return run_at(from, to, plan, message, target_of(to, move, memory));
}

void pack(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
          const Memory& memory, std::byte* packed, Device& device) {
  each_packed(from, to, plan, message, packed, [&](const Move& move, const TargetPlace& place) {
    copy_box(device, move.box, source_of(from, to, plan, move, memory), place);
  });
}

void unpack(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
            const Memory& memory, const std::byte* packed, Device& device) {
  each_packed(from, to, plan, message, packed, [&](const Move& move, const SourcePlace& place) {
    copy_box(device, move.box, place, target_of(to, move, memory));
  });
}

void pack_present(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
                  const Memory& memory, std::byte* packed) {
  each_packed(from, to, plan, message, packed, [&](const Move& move, const TargetPlace& place) {
    copy_box(move.box, readable(target_of(to, move, memory)), place);
  });
}

void copy(const Layout& from, const Layout& to, const Plan& plan, const Message& message,
          const Memory& sender, const Memory& receiver, Device& device) {
  for (const Move& move : plan.moves_of(message)) {
    copy_box(device, move.box, source_of(from, to, plan, move, sender),
             target_of(to, move, receiver));
  }
}

}  // namespace tutti::parallel::reshard
