// Layouts: which ranks hold which elements of a model's tensors, and where in their memory.
//
//     Layout trainer(4);                                          // ranks 0 to 3 of a communicator
//     add_sharded(trainer, {"w", DataType::bfloat16, {4096, 4096}}, {.mesh = {4}, .placements =
//     {shard(0)}}); Layout server(6); add_sharded(server, {"w", DataType::bfloat16, {4096, 4096}},
//                 {.mesh = {2}, .placements = {shard(1)}, .ranks = {4, 5}});
//     Reshard weights(comm, trainer, server);                     // reshard.h
//
// A tensor consists of pieces. A piece is a box of its elements in the memory of one rank. The
// memory of a rank is a list of buffers, the same list on all ranks of a layout; a rank that has no
// piece in a buffer does not have the buffer. A piece says in which buffer it begins at which byte,
// and how far apart its elements are. So a row of a fused projection (query, key and value behind
// each other, or in turns by head), a padded matrix, or a shard of a flat unit of many tensors is
// one piece or a few.
//
// Replicas are pieces of several ranks with the same elements, which have the same values.
//
// A layout is data: threads may read one together. Functions throw tutti::Error.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../sharded/policy.h"
#include "box.h"

namespace tutti::parallel::reshard {

struct Piece {
  int rank = 0;
  std::uint32_t buffer = 0;  // its number in Layout::buffers
  std::uint64_t offset = 0;  // of its first element in the buffer, in bytes
  Box box;                   // its elements, in the tensor
  Strides strides{};         // in elements; of dimensions of size 1 they do not matter
  bool operator==(const Piece& other) const;
};

/// What a tensor is, whoever holds it.
struct Tensor {
  std::string name;
  DataType type{};
  std::vector<std::uint64_t> shape;  // none: one number
  std::uint64_t elements() const;
};

struct TensorLayout : Tensor {
  std::vector<Piece> pieces;
};

/// Which side of a reshard a layout describes.
enum class Side : std::uint8_t { from, to };

struct Layout {
  Layout() = default;
  explicit Layout(int its_ranks) : ranks(its_ranks) {}

  int ranks = 0;  // of the communicator; those that hold nothing count, too
  std::vector<std::string> buffers;
  std::vector<TensorLayout> tensors;

  /// The number of the buffer with this name, which it adds if there is none.
  std::uint32_t buffer(std::string_view name);
  /// The tensor's number; -1: there is none.
  int find(std::string_view name) const;
  /// The tensor with the name of `tensor`, which it adds, without pieces, if there is none. Throws
  /// Error(invalid_argument) if there is one of another type or shape.
  TensorLayout& tensor(const Tensor& tensor);

  /// By buffer: the bytes that rank `rank` has to have there; 0: it does not have the buffer.
  std::vector<std::uint64_t> bytes_of(int rank) const;
  /// The bytes of all tensors, each element once.
  std::uint64_t model_bytes() const;
  /// A number that differs where layouts differ.
  std::uint64_t hash() const;

  /// Throws Error(invalid_argument), which names the tensor, the rank and the box, unless
  ///  - there is at least one rank, names of tensors are there once, and types and shapes exist;
  ///  - each piece lies inside of its tensor's shape, is not empty, and has an existing rank and
  ///    buffer, at an offset that is a multiple of its element's size;
  ///  - some piece has each element of each tensor;
  ///  - Side::to: no two elements of a rank's pieces lie in the same place of a buffer.
  /// Takes time in the order of the number of pieces.
  void check(Side side) const;
};

// --- Makers. Each adds pieces to a layout, and the tensor if it is not there. Pieces lie packed in
// a buffer with the tensor's name, unless the function says otherwise. ----------------------------

/// A rank's piece by hand. `strides`: none: packed. Returns the piece, which may be changed.
Piece& add_piece(Layout& layout, const Tensor& tensor, int rank, const Box& box,
                 std::string_view buffer, std::uint64_t offset = 0,
                 std::span<const std::uint64_t> strides = {});

/// All of the tensor, on each of the ranks.
void add_replicated(Layout& layout, const Tensor& tensor, std::span<const int> ranks);

/// What a dimension of a mesh does with a tensor, as DTensor's placements.
struct Placement {
  int dimension = -1;  // of the tensor, which it cuts; -1: each rank has all
  /// The sizes of the shares, by coordinate; none: as torch.chunk() cuts, all of ceil(size / ranks)
  /// but the last ones, which have what is left.
  std::vector<std::uint64_t> sizes{};
};
inline Placement replicate() { return {}; }
inline Placement shard(int dimension) { return {.dimension = dimension}; }

/// A mesh of ranks, and what its dimensions do with a tensor. Dimensions that cut the same one of
/// the tensor cut one after the other, the first of the mesh first.
struct Sharding {
  std::vector<int> mesh;              // its sizes, the last dimension innermost
  std::vector<Placement> placements;  // by dimension of the mesh
  std::vector<int> ranks{};           // of the layout, by rank of the mesh; none: 0, 1, ...
};
/// Throws Error(invalid_argument) if mesh, placements and ranks do not match each other or the
/// tensor.
void add_sharded(Layout& layout, const Tensor& tensor, const Sharding& sharding);

/// Elements `begin` ... `begin + count - 1` of the tensor in row-major order, on rank `rank`, one
/// after the other from byte `offset` of a buffer on: a box, or a few.
void add_run(Layout& layout, const Tensor& tensor, int rank, std::uint64_t begin,
             std::uint64_t count, std::string_view buffer, std::uint64_t offset);

/// The tensors, all of one type, as a unit of FullyShard (parallel/sharded) over the ranks: its
/// shards lie in a buffer `unit`. `cut` and `alignment` (in elements): as the engine's Policy.
void add_unit(Layout& layout, std::string_view unit, std::span<const Tensor> tensors,
              std::span<const int> ranks, parallel::Layout cut = parallel::Layout::flat,
              std::uint64_t alignment = 32);

/// Index i of `dimension` belongs to rank owners[i] (as experts do): a rank has its indices in
/// ascending order, packed.
void add_owned(Layout& layout, const Tensor& tensor, int dimension, std::span<const int> owners);

// --- JSON ----------------------------------------------------------------------------------------

/// The layout as JSON (docs/reshard.md has the form), a line for each tensor.
std::string to_json(const Layout& layout);
/// Reads it, and the short forms (a mesh with placements, replicas, owners, runs) that people
/// write. Throws Error(invalid_argument), with the tensor and the field, for what is not a layout.
/// Does not check() it.
Layout layout_from_json(std::string_view text);
/// The headers of safetensors files, one a rank: each file is a buffer "data" of its rank, in which
/// its tensors lie whole. Throws Error(invalid_argument).
Layout layout_of_safetensors(std::span<const std::string> paths);

}  // namespace tutti::parallel::reshard
