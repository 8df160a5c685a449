// Domain parallelism: each rank has a block of the field (blocks.h) and computes the output cells
// of its own, for which it needs a halo of cells of other ranks (halo_layout.h). This exchanges
// halos, and in the backward adds the gradients of halos to those of the cells' owners.
//
//     Halo halo(mesh.axis({"y", "x"}), {"conv1", {{"y", 512, 2}, {"x", 512, 2}},
//                                       {{.kernel = 3, .padding = 1}, {.kernel = 3, .padding = 1}},
//                                       samples * channels});
//     halo.start(x);                      // x: the padded block, with the rank's own cells in it
//     ...                                 // output cells of halo.interior()
//     halo.finish();
//     ...                                 // output cells of halo.border()
//
//     ...                                 // dx: gradients by all cells of the padded block
//     halo.start_backward(dx);
//     halo.finish();                      // its own cells have the gradients of all ranks
//
// The two are adjoint, so a transposed convolution, or the upsampling that belongs to a pooling, is
// the same halo the other way round: its forward is start_backward(), and its backward start().
//
// Memory of the axis's device. One thread at a time uses the object and its axis.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"
#include "../memory_pool.h"
#include "halo_layout.h"

namespace tutti::parallel::domain {

class Halo {
 public:
  /// Collective over the axis, which outlives the object; its ranks are the blocks, in their order.
  /// All ranks throw: Error(mismatch) if their shapes differ, Error(invalid_argument) as HaloLayout
  /// or if there is not enough memory for the messages.
  Halo(Axis& axis, HaloShape shape);
  /// Waits for what is under way.
  ~Halo();
  Halo(const Halo&) = delete;
  Halo& operator=(const Halo&) = delete;

  const HaloLayout& layout() const { return layout_; }
  /// This rank's block of the input; with its halo; its block of the output, and the parts of that.
  const Box& own() const { return own_; }
  const Box& padded() const { return padded_; }
  const Box& output() const { return output_; }
  const Box& interior() const { return interior_; }
  const std::vector<Box>& border() const { return border_; }
  /// The elements that a rank has of `box`: outer x cells x inner.
  std::size_t elements(const Box& box) const;

  /// Starts to fill the halo of a padded block: elements(padded()) elements, outer x cells x
  /// inner, the last dimension innermost. It belongs to the exchange until finish(); the
  /// caller may read own cells meanwhile. Cells beyond edges of zeros become 0. Until finish(), the
  /// program starts no other messages on the axis, thus no other exchange either; collectives are
  /// no messages. Throws Error(invalid_usage) if an exchange is under way.
  void start(void* padded);
  /// Starts to add the gradients of halo cells to those of their owners' cells. An owner adds in
  /// the order of the layout, so bits are the same in each run. Gradients of halo cells may be
  /// changed, those beyond edges of zeros count for nothing. The rest is as in start(); the caller
  /// touches nothing of the block meanwhile.
  void start_backward(void* padded);
  /// Goes on with the next dimension if the messages of the last one have come, and returns whether
  /// all have. Never waits: for callers that compute an interior in several parts.
  bool progress();
  /// Waits for what is under way. Throws the error of a message, with the halo, the dimension and
  /// the other rank; the axis cannot be used any more then.
  void finish();
  void exchange(void* padded) {
    start(padded);
    finish();
  }
  void exchange_backward(void* padded) {
    start_backward(padded);
    finish();
  }

  /// Copies a block of own cells, elements(own()) elements, into a padded one, and out of it.
  void insert(const void* own, void* padded) const;
  void extract(const void* padded, void* own) const;

  /// The messages of both directions.
  MemoryUse memory() const { return memory_.total(); }

 private:
  struct Part;     // a message of this rank
  struct Waiting;  // one that has been started
  enum class Way : unsigned char { none, forward, backward };

  void check_memory(const void* own, const void* padded) const;
  void begin(Way way, void* padded);
  void begin_dimension();
  void end_dimension();
  bool in_turn(const Part& part) const;
  void add(std::span<const Part* const> parts);
  void wait(Waiting& waiting);
  template <class Body>
  void during(const Part& part, const char* what, const Body& body) const;

  Axis& axis_;
  const HaloShape shape_;
  const std::string what_;
  HaloLayout layout_;
  const std::uint16_t label_;
  Box own_, padded_, output_, interior_;
  std::vector<Box> border_, beyond_;
  MemoryPool memory_;
  Buffer messages_, sum_, zeros_;  // zeros: on a GPU, of a run of cells beyond the edges
  std::vector<Part> to_, from_;    // in the order of the layout
  std::vector<Waiting> waiting_;
  Way way_ = Way::none;
  std::size_t turn_ = 0, turns_ = 1;
  std::byte* data_ = nullptr;
};

}  // namespace tutti::parallel::domain
