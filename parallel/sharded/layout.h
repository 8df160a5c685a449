// The places of a unit's parameters: in the unit's full buffer, which is the same on all ranks, and
// in the shards.
//
// A unit consists of pieces. One collective gathers a piece, in place, from equal blocks, one of
// each rank. So nothing ever copies a parameter. In the flat layout a unit is one piece, and a
// block may end in the middle of a parameter; by parameter, a piece is a parameter, and a block is
// made of whole rows. Offsets and counts are in elements, so they hold for every type.
#pragma once

#include <cstddef>
#include <vector>

#include "policy.h"
#include "unit.h"

namespace tutti::parallel {

struct Piece {
  std::size_t block = 0;  // elements of each rank
  std::size_t full_offset = 0, shard_offset = 0;
};

/// The part of a parameter that a rank's shard holds: always one run.
struct LocalRange {
  std::size_t begin = 0, count = 0;  // of the parameter's elements
  std::size_t shard_offset = 0;
  std::size_t full_offset = 0;  // the place of the same elements in the full buffer
};

class UnitLayout {
 public:
  UnitLayout(const Unit& unit, Layout layout, std::size_t ranks, std::size_t alignment);

  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Elements of the full buffer, and of a shard, with all padding.
  std::size_t full() const { return full_; }
  std::size_t shard() const { return shard_; }
  /// Elements in a gather of the unit: `full` without the padding that aligns pieces.
  std::size_t gathered() const { return gathered_; }
  /// Elements that are parameters.
  std::size_t parameters() const { return parameters_; }
  /// The offset of a parameter in the full buffer.
  std::size_t offset(std::size_t parameter) const { return offsets_[parameter]; }
  LocalRange local(std::size_t parameter, std::size_t rank) const;

 private:
  struct Held {  // a parameter, as the pieces hold it
    std::size_t piece, count;
  };
  std::size_t ranks_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> offsets_;
  std::vector<Held> held_;
  std::size_t full_ = 0, shard_ = 0, gathered_ = 0, parameters_ = 0;
};

}  // namespace tutti::parallel
