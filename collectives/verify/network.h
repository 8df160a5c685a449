// A plan as the verifier runs it: checked for form, its lanes numbered through, its operands
// resolved to locations and links. Constructing a Network is the form check.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/plan.h"
#include "collectives/verify.h"
#include "collectives/verify/buffers.h"

namespace tutti::proof {

inline constexpr std::uint32_t kNone = 0xffffffff;

/// An operand, resolved.
struct Ref {
  static constexpr std::uint32_t kLink = 0xffffffff;
  static constexpr std::uint32_t kWritable = 0xfffffffe;  // out or tmp

  std::uint32_t id = 0;         // link: index in Network::links; memory: the first chunk's location
  std::uint32_t input = kLink;  // in: Buffers::input of the first chunk; else one of the above

  bool is_link() const { return input == kLink; }
  bool is_in() const { return input < kWritable; }
};

struct NetworkStep {
  const Step* step = nullptr;
  std::uint32_t first_ref = 0;  // in Network::refs: destinations, then sources, as in the plan
};

struct NetworkLane {
  int rank = 0;
  std::uint32_t lane = 0;        // of its rank
  std::uint32_t first_step = 0;  // in Network::steps
  std::uint32_t steps = 0;
};

/// A bounded FIFO from one lane to another. Message k lies in slot k % capacity.
struct Link {
  int sender = 0;
  int receiver = 0;
  std::uint8_t channel = 0;
  std::uint32_t sending_lane = kNone;  // index in Network::lanes
  std::uint32_t receiving_lane = kNone;
  std::uint32_t sends = 0;
  std::uint32_t receives = 0;
  std::uint32_t widest = 0;       // chunks of its largest message
  std::uint32_t capacity = 0;     // slots, or messages where these are fewer
  std::uint32_t first_slot = 0;   // among the slots of all links
  std::uint32_t first_value = 0;  // among the chunks of all slots: slot s's are at s * widest
};

class Network {
 public:
  /// Throws Refuted when the plan's form is wrong.
  Network(const Plan& plan, bool in_place);

  std::span<const Ref> destinations(const NetworkStep& s) const {
    return {refs.data() + s.first_ref, s.step->destinations};
  }
  std::span<const Ref> sources(const NetworkStep& s) const {
    return {refs.data() + s.first_ref + s.step->destinations, s.step->sources};
  }
  /// Operand `i` of a step of lane `lane`, as it stands in the plan: destinations first.
  const Operand& operand(std::uint32_t lane, const NetworkStep& s, std::size_t i) const {
    return plan.ranks[static_cast<std::size_t>(lanes[lane].rank)]
        .operands[s.step->first_operand + i];
  }
  /// Step `index` (of all steps), which lane `lane` makes, in words.
  std::string step_name(std::uint32_t lane, std::uint32_t index) const;

  const Plan& plan;
  Buffers buffers;
  std::vector<NetworkLane> lanes;  // rank r's lane l is r * plan.header.lanes + l
  std::vector<NetworkStep> steps;
  std::vector<Ref> refs;
  std::vector<Link> links;
  std::vector<Traffic> traffic;   // by rank
  std::uint32_t slots = 0;        // of all links
  std::uint32_t slot_chunks = 0;  // of all slots
  bool uses_windows = false;
};

}  // namespace tutti::proof
