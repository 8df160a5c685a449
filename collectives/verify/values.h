// What the chunks of a run hold: an input, or an expression over inputs. Equal expressions get
// equal numbers (hash-consing), so that "the same bits on all ranks" is a comparison of numbers.
// Every expression knows which ranks' inputs it contains; so an input that is counted twice, or is
// missing, shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/verify/buffers.h"
#include "collectives/verify/story.h"

namespace tutti::proof {

/// 0: nothing was ever written there.
using Value = std::uint32_t;
inline constexpr Value kNothing = 0;

class Values {
 public:
  /// `scales`: see VerifyOptions.
  Values(const Buffers& buffers, bool scales)
      : buffers_(buffers),
        scales_(scales),
        inputs_(buffers.inputs()),
        ranks_(buffers.ranks()),
        table_(1024, Slot{0, kNothing}) {}

  /// An input as it is read from `in`. An operator may scale it on the way (avg,
  /// pre_multiplied_sum), and combine() does not round the product that it goes on to sum.
  Value input(std::uint32_t input) const { return 1 + input; }
  /// A copy of it in out, tmp or a slot, where it is rounded to the data type. A sum that begins
  /// from the copy can have other bits, so it is another value. (What is copied already is itself.)
  Value copied(Value v) const { return scales_ && is_direct(v) ? v + inputs_ : v; }
  /// ((parts[0] + parts[1]) + ...). Throws Refuted when that makes no sense.
  Value combine(std::span<const Value> parts);

  bool is_input(Value v) const { return v <= 2 * inputs_; }
  /// The number of an input that is_input().
  std::uint32_t input_of(Value v) const { return (v - 1) % inputs_; }
  /// The chunk of `in` that this is a sum of (or a copy of).
  std::uint32_t chunk(Value v) const;
  /// Whether every rank's input is in it.
  bool is_complete(Value v) const { return contributions(v).length == ranks_; }
  /// The ranks whose inputs it lacks, in order.
  std::vector<RankInterval> missing(Value v) const;
  std::uint32_t size_class(Value v) const;
  /// The most sums that lie in each other.
  std::uint32_t depth(Value v) const { return is_input(v) ? 0 : node(v).depth; }
  /// "in[2]@3", "(in[0]@1 + in[0]@2) + in[0]@0"; long ones are abridged.
  std::string text(Value v) const;

 private:
  /// A set of ranks. Most are intervals, of ranks in a circle: begin ... begin + length - 1 modulo
  /// the number of ranks. The others are lists of intervals in pool_.
  struct Contributions {
    std::uint32_t begin = 0;   // or the first in pool_
    std::uint32_t length = 0;  // ranks in all
    std::uint32_t pooled = 0;  // 0, or the number of intervals in pool_
  };
  struct Node {
    std::uint32_t chunk = 0;
    Contributions contributions;
    std::uint32_t first_part = 0;  // in parts_
    std::uint32_t parts = 0;
    std::uint32_t depth = 0;
  };
  struct Slot {
    std::uint32_t hash;
    Value value;
  };

  bool is_direct(Value v) const { return v <= inputs_ && v != kNothing; }
  const Node& node(Value v) const { return nodes_[v - 1 - 2 * inputs_]; }
  std::span<const Value> parts(const Node& n) const {
    return {parts_.data() + n.first_part, n.parts};
  }
  Contributions contributions(Value v) const;
  Contributions join(std::span<const Value> parts);
  void append_intervals(const Contributions& c, std::vector<RankInterval>& to) const;
  Contributions from_intervals(std::span<const RankInterval> sorted);
  void grow_table();
  void put_text(Value v, std::string& text) const;

  const Buffers& buffers_;
  bool scales_;
  std::uint32_t inputs_;
  std::uint32_t ranks_;
  std::vector<Node> nodes_;
  std::vector<Value> parts_;
  std::vector<RankInterval> pool_;
  std::vector<Slot> table_;  // open addressing, by parts
  std::vector<RankInterval> scratch_;
};

}  // namespace tutti::proof
