// Mesh: the ranks of a job as a box with named dimensions, the coordinates that users of several
// kinds of parallelism think in.
//
//     Mesh mesh(world, {{"pp", 2}, {"dp", -1}, {"tp", 2}}, {{"dp", "tp"}});
//     mesh.axis("tp")           // the 2 ranks that share pp and dp with this one
//     mesh.axis({"dp", "tp"})   // a fused axis: all that share pp
//
// The last dimension is innermost: its ranks are adjacent, so they are on one host if a host has as
// many. The arithmetic (MeshShape) needs no communicator.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axis.h"

namespace tutti::parallel {

struct MeshDimension {
  std::string name;
  int size = 1;  // -1 (in one dimension at most): as many as there are ranks for
};

class MeshShape {
 public:
  /// Throws Error(invalid_argument) if a dimension has no name, if two have the same, or if the
  /// sizes do not multiply up to `ranks`.
  MeshShape(int ranks, std::vector<MeshDimension> dimensions);

  int ranks() const { return ranks_; }
  std::span<const MeshDimension> dimensions() const { return dimensions_; }
  bool has(std::string_view name) const;
  int size(std::string_view name) const { return dimensions_[index(name)].size; }
  int size(std::span<const std::string> names) const;

  /// The coordinates of `rank`, by dimension.
  std::vector<int> coordinates(int rank) const;
  int coordinate(int rank, std::string_view name) const;
  int rank(std::span<const int> coordinates) const;
  /// The rank that differs from `rank` in one coordinate.
  int moved(int rank, std::string_view name, int coordinate) const;

  /// The ranks that differ from `rank` at most in the coordinates `names`, ascending: the last of
  /// the dimensions changes fastest, in whatever order they are named.
  std::vector<int> group(int rank, std::span<const std::string> names) const;
  /// Of that group: its number among all groups of these names, and the number of `rank` in it.
  struct GroupRank {
    int group = 0, rank = 0;
  };
  GroupRank group_rank(int rank, std::span<const std::string> names) const;

  /// "pp 2 x dp 4 x tp 2".
  std::string text() const;

 private:
  /// Throws Error(invalid_argument) if there is no such dimension.
  std::size_t index(std::string_view name) const;
  std::vector<bool> chosen(std::span<const std::string> names) const;
  void check_rank(int rank) const;

  int ranks_ = 1;
  std::vector<MeshDimension> dimensions_;
  std::vector<int> strides_;  // of a step in each dimension, in ranks
};

class Mesh {
 public:
  using Names = std::vector<std::string>;

  /// Collective over `world`: each dimension gets an axis, and so does each of the sets of
  /// dimensions in `fused`, all at once, so no rank waits later for a rank that does not need the
  /// axis. `world` is not needed afterwards. Throws Error(mismatch) on all ranks if their meshes
  /// differ, and Error(invalid_argument) on all if the sizes of the mesh do not multiply up.
  /// The axes have the options() of `world`, unless they are given others.
  Mesh(Communicator& world, std::vector<MeshDimension> dimensions,
       const std::vector<Names>& fused = {})
      : Mesh(world, std::move(dimensions), fused, world.options()) {}
  Mesh(Communicator& world, std::vector<MeshDimension> dimensions, const std::vector<Names>& fused,
       const Options& options);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  int size(std::string_view name) const { return shape_.size(name); }
  int coordinate(std::string_view name) const { return shape_.coordinate(rank_, name); }

  /// Throws Error(invalid_argument) for a fused axis that the constructor did not name.
  CommunicatorAxis& axis(std::string_view name) { return axis(Names{std::string(name)}); }
  CommunicatorAxis& axis(const Names& names);
  CommunicatorAxis& axis(std::initializer_list<std::string> names) { return axis(Names(names)); }

  /// This rank gives up: present and later operations on its axes fail on all of their ranks, with
  /// `reason`. So each rank tells the next, and no rank waits for a rank that waits for a dead one.
  void abort(std::string_view reason);

 private:
  struct Member {
    Communicator communicator;
    std::unique_ptr<CommunicatorAxis> axis;
  };

  int rank_;
  MeshShape shape_;
  std::map<Names, Member> members_;  // by sorted names
};

}  // namespace tutti::parallel
