// A plan as the verifier runs it: checked for form, with numbered lanes, and with operands resolved
// to locations and links. Constructing a Network is the form check.
//
// It reads the plan's parts one after the other and does not keep them. If consecutive steps differ
// only in their chunks, which advance by the same number each time, it keeps them as one, a run of
// steps: a ring of thousands of ranks has tens of millions of steps, but each rank a handful of
// runs.
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

/// An operand, resolved, of the first step of a run.
struct Ref {
  static constexpr std::uint32_t kLink = 0xffffffff;
  static constexpr std::uint32_t kWritable = 0xfffffffe;  // out or tmp

  std::uint32_t id = 0;         // link: index in Network::links; memory: the first chunk's location
  std::uint32_t input = kLink;  // in: Buffers::input of the first chunk; else one of the above
  std::int32_t owner = Operand::kSelf;  // memory: the rank, if it is another one

  bool is_link() const { return input == kLink; }
  bool is_in() const { return input < kWritable; }
  /// Whether the operand is memory that a step may write. (Out of place, `in` has no location.)
  bool has_location() const { return !is_link() && id != kNone; }
};

/// Steps of a lane that follow one another, the memory of each `stride` chunks behind that of the
/// one before.
struct StepRun {
  std::uint32_t first_ref = 0;  // in Network::refs: destinations, then sources, as in the plan
  std::uint32_t steps = 0;
  std::uint32_t stride = 0;  // modulo 2^32
  std::uint32_t count = 0;   // this and what follows: as in Step
  std::uint32_t shape_chunk = 0;
  std::uint16_t destinations = 0;
  std::uint16_t sources = 0;
  Space shape_space = Space::out;
  bool completes = false;
  bool sends_wide = false, takes_wide = false;
};

/// One step of a run.
struct NetworkStep {
  const StepRun* run = nullptr;
  std::uint32_t shift = 0;  // chunks from the run's first step, modulo 2^32
  std::uint32_t lane = 0;   // index in Network::lanes
  std::uint32_t index = 0;  // in its lane

  const StepRun* operator->() const { return run; }
  std::uint32_t location(const Ref& ref) const { return ref.id + shift; }
  std::uint32_t input(const Ref& ref) const { return ref.input + shift; }
};

struct NetworkLane {
  int rank = 0;
  std::uint32_t lane = 0;       // of its rank
  std::uint32_t first_run = 0;  // in Network::runs
  std::uint32_t runs = 0;
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
  /// Throws Refuted if the plan's form is wrong.
  Network(const PlanParts& plan, bool in_place);

  std::span<const Ref> destinations(const NetworkStep& s) const {
    return {refs.data() + s->first_ref, s->destinations};
  }
  std::span<const Ref> sources(const NetworkStep& s) const {
    return {refs.data() + s->first_ref + s->destinations, s->sources};
  }
  std::span<const Ref> operands(const NetworkStep& s) const {
    return {refs.data() + s->first_ref, std::size_t{s->destinations} + s->sources};
  }

  /// For stories: step `index` of lane `lane` in words, looked up in the plan.
  std::string step_name(std::uint32_t lane, std::uint32_t index) const;
  /// Operand `i` of that step, destinations first.
  Operand operand(std::uint32_t lane, std::uint32_t index, std::size_t i) const;

  const PlanHeader& header() const { return plan.header; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(plan.header.ranks); }

  const PlanParts& plan;
  Buffers buffers;
  std::vector<NetworkLane> lanes;  // rank r's lane l is r * header().lanes + l
  std::vector<StepRun> runs;
  std::vector<Ref> refs;
  std::vector<Link> links;
  std::vector<Traffic> traffic;   // by rank
  std::uint64_t steps = 0;        // of all lanes
  std::uint32_t slots = 0;        // of all links
  std::uint32_t slot_chunks = 0;  // of all slots
  bool uses_windows = false;
};

}  // namespace tutti::proof
