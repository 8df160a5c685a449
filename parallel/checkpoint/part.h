// The part of a tensor that one rank has: a run of elements of a box of the whole. It is how every
// mix of parallelism divides parameters: tensor parallelism gives a rank a box, sharding a run of
// it.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tutti::parallel {

struct TensorPart {
  std::string name;  // of the whole tensor, whatever the layout
  DataType type{};
  std::vector<std::size_t> shape;  // of the whole; none: one number
  /// The box: its place and its size along each dimension. Both empty: the whole tensor.
  std::vector<std::size_t> offset{}, extent{};
  /// The run, of the box's elements in row-major order. `data` has `count` of them.
  std::size_t begin = 0, count = 0;
  void* data = nullptr;

  /// All of a tensor.
  static TensorPart whole(std::string name, DataType type, std::vector<std::size_t> shape,
                          void* data);
  std::size_t bytes() const { return count * size_of(type); }
  /// Throws Error(invalid_argument) if there is no such part.
  void check() const;
  /// Elements that follow each other in the whole and in the part: the first one's number in the
  /// whole (row-major), the first one's number in the part, and how many. Both numbers ascend.
  using Run = std::function<void(std::size_t whole, std::size_t part, std::size_t count)>;
  void for_each_run(const Run& run) const;
};

/// Elements of a tensor of this shape.
std::size_t elements_of(const std::vector<std::size_t>& shape);
/// "4096 x 11008".
std::string text_of(const std::vector<std::size_t>& shape);

}  // namespace tutti::parallel
