// The contents of the chunks of a run: an input, or an expression over inputs. Equal expressions
// get equal numbers (hash-consing), so that "the same bits on all ranks" is a comparison of
// numbers. Every expression knows which ranks' inputs it contains, so a double or missing input
// shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/verify/buffers.h"
#include "collectives/verify/story.h"

namespace tutti::proof {

/// 0: no step has written there.
using Value = std::uint32_t;
inline constexpr Value kNothing = 0;

class Values {
 public:
  /// `scales`: see VerifyOptions. `rounds`: a sum is rounded where a step stores it.
  Values(const Buffers& buffers, bool scales, bool rounds)
      : buffers_(buffers),
        scales_(scales),
        rounds_(rounds),
        inputs_(buffers.inputs()),
        ranks_(buffers.ranks()),
        table_(1024, kNothing) {}

  /// An input as it is read from `in`. An operator may scale it on the way (avg,
  /// pre_multiplied_sum), and combine() does not round the product that it goes on to sum.
  Value input(std::uint32_t input) const { return 1 + input; }
  /// A copy of it in out, tmp or a slot, where it is rounded to the data type. A sum that begins
  /// from the copy can have other bits, so the copy is another value. (A copy of a copy is the same
  /// value.) A partial sum that was not rounded is rounded.
  Value copied(Value v) {
    if (!is_input(v)) return is_wide(v) ? combine({&v, 1}) : v;
    return scales_ && is_direct(v) ? v + inputs_ : v;
  }
  /// ((parts[0] + parts[1]) + ...). `wide`: kept in the digits that it is computed in. Throws
  /// Refuted if that makes no sense.
  Value combine(std::span<const Value> parts, bool wide = false);

  /// What of it a compressed link or tmp carries.
  Value compressed(Value v);
  /// Whether a value is one sum of all ranks' inputs, each compressed once, in the order of the
  /// ranks; and whether it is such a sum, compressed once.
  bool is_sum_of_8_bits(Value v) const;
  bool is_sum_in_8_bits(Value v) const;

  bool is_input(Value v) const { return v <= 2 * inputs_; }
  /// The number of an input that is_input().
  std::uint32_t input_of(Value v) const { return (v - 1) % inputs_; }
  /// The chunk of `in` that this is a sum of (or a copy of).
  std::uint32_t chunk(Value v) const;
  /// Whether every rank's input is in it.
  bool is_complete(Value v) const { return contributions(v).length == ranks_; }
  /// The ranks with inputs that it lacks, in order.
  std::vector<RankInterval> missing(Value v) const;
  std::uint32_t size_class(Value v) const;
  /// The most sums that lie in each other, of those that are rounded.
  std::uint32_t depth(Value v) const { return is_input(v) ? 0 : node(v).depth; }
  /// Whether, with steps that combine in the canonical order, it is the canonical expression of the
  /// ranks' inputs that are in it, but for what is rounded in between.
  bool is_canonical(Value v) const { return is_input(v) || contributions(v).is_canonical; }
  /// Such an expression in full, with "round" where a step rounds the sum that it stores; and the
  /// canonical one of all ranks' in[chunk]. Long ones are abridged.
  std::string tree_text(Value v) const;
  std::string canonical_text(std::uint32_t chunk) const;
  /// "in[2]@3", "(in[0]@1 + in[0]@2) + in[0]@0"; long ones are abridged.
  std::string text(Value v) const;

 private:
  /// A set of ranks. Most are intervals, of ranks in a circle: begin ... begin + length - 1 modulo
  /// the number of ranks. The others are lists of intervals in pool_.
  struct Contributions {
    std::uint32_t begin = 0;        // or the first in pool_: they go on until length is reached
    std::uint32_t length : 30 = 0;  // ranks in all
    std::uint32_t is_scattered : 1 = 0;  // in pool_
    std::uint32_t is_canonical : 1 = 0;
  };
  /// A sum; or, with one part, what that becomes: compressed or, if it is wide, rounded. There can
  /// be as many as the plan has steps, so they are kept small.
  struct Node {
    std::uint32_t chunk = 0;
    Contributions contributions;
    std::uint32_t first_part = 0;  // in parts_, up to the next node's
    std::uint32_t depth : 31 = 0;
    std::uint32_t is_wide : 1 = 0;  // a partial sum that is not rounded
  };

  bool is_compressed(Value v) const { return !is_input(v) && parts(v).size() == 1; }
  bool is_wide(Value v) const { return !is_input(v) && node(v).is_wide; }
  bool is_direct(Value v) const { return v <= inputs_ && v != kNothing; }
  const Node& node(Value v) const { return nodes_[v - 1 - 2 * inputs_]; }
  std::span<const Value> parts(Value v) const {
    const Node* n = &node(v);
    const std::size_t end = n == &nodes_.back() ? parts_.size() : n[1].first_part;
    return {parts_.data() + n->first_part, end - n->first_part};
  }
  Contributions contributions(Value v) const;
  Contributions join(std::span<const Value> parts);
  void append_intervals(const Contributions& c, std::vector<RankInterval>& to) const;
  Contributions from_intervals(std::span<const RankInterval> sorted);
  /// If the tree over `parts` is the canonical expression of some ranks, these ranks; else none.
  RankInterval canonical_ranks(std::span<const Value> parts) const;
  /// Where in table_ the sum of `parts` is, or could be. The latest part says where to look first,
  /// so that what is made one after the other lies together in memory; where too many sums have the
  /// same one, a hash of all parts does.
  std::size_t place_of(std::span<const Value> parts, bool wide) const;
  void grow_table();
  void put_text(Value v, std::string& text) const;
  void put_tree(std::span<const Value> parts, std::string& text) const;

  const Buffers& buffers_;
  bool scales_, rounds_;
  std::uint32_t inputs_;
  std::uint32_t ranks_;
  std::vector<Node> nodes_;
  std::vector<Value> parts_;
  std::vector<RankInterval> pool_;
  std::vector<Value> table_;  // open addressing, by parts
  std::vector<RankInterval> scratch_;
};

}  // namespace tutti::proof
