// Linear layers with weights that the ranks of an axis divide among each other: y = x w' + b, with
// w of `out` rows and `in` columns.
//
//     column parallel   each rank has out / P rows of w and of b: y's columns are sliced
//     row parallel      each rank has in / P columns of w: y is a sum over ranks; b is whole
//
// One after the other, column then row, they need one all-reduce in the forward and one in the
// backward: ranks never communicate the activations between them (Megatron-LM's MLP and attention).
// With sequence parallelism the activations outside of them are sliced along their rows. Then each
// all-reduce becomes an all-gather and a reduce-scatter, which together carry the same.
//
// A layer gets pointers and keeps nothing from one call to the next, so any number of micro-batches
// may be under way. The framework owns parameters, activations and gradients, all of them memory of
// the axis's device, and may supply the multiplication; else the device does. A layer adds to
// gradients of parameters, or writes them; it writes gradients of activations.
//
// Communication overlaps with multiplication: that of a gradient with the multiplication for the
// weights' gradient. If `pieces` is more than 1, that of one block of rows overlaps with the
// multiplication of the next one. The result has the same bits for any number of pieces if the axis
// reduces in the same order. (An algorithm that depends on sizes, or cuts its buffer into a part
// for each rank, does not.)
//
// Constructors are collective: if ranks differ, all of them throw Error(mismatch); if the number of
// ranks does not divide a size, all throw Error(invalid_argument), with the layer and the sizes.
#pragma once

#include <cstddef>
#include <string>

#include "../axis.h"
#include "../layer_math.h"
#include "../memory_pool.h"
#include "multiply.h"
#include "pairs.h"

namespace tutti::parallel::tensor {

struct LinearShape {
  std::string name;
  std::size_t in = 0, out = 0;  // of the whole layer
  DataType type = DataType::float32;
};

/// A rank's parameters of a layer, or their gradients. Either may be null: a layer without a bias;
/// weights that are not trained.
struct LinearParameters {
  void* weight = nullptr;
  void* bias = nullptr;
};
struct LinearConstants {
  LinearConstants(const void* w, const void* b) : weight(w), bias(b) {}
  LinearConstants(const LinearParameters& p) : weight(p.weight), bias(p.bias) {}
  const void* weight;
  const void* bias;
};

/// The places for gradients of parameters.
struct LinearGradients {
  void* weight = nullptr;
  void* bias = nullptr;
  bool adds = true;  // to what is there; else it may be anything
};

struct ColumnOptions {
  bool gather_output = false;  // y is whole on every rank, instead of its slice of the columns
  bool sequence = false;       // x has a slice of the rows: it is all-gathered first
  std::size_t pieces = 1;
};

class ColumnParallelLinear {
 public:
  ColumnParallelLinear(Axis& axis, LinearShape shape, ColumnOptions options = {},
                       Multiply multiply = {});

  /// Elements that this rank has: out / P x in, and out / P.
  std::size_t local_out() const { return local_out_; }
  std::size_t weight_count() const { return local_out_ * shape_.in; }

  /// `rows`: of the whole of x. x: rows x in; with `sequence`, rows / P x in. y: rows x out / P;
  /// with `gather_output`, rows x out. `gathered`, with `sequence`: the place for the whole of x,
  /// for the backward; null: the backward gathers x again.
  void forward(const void* x, std::size_t rows, LinearConstants parameters, void* y,
               void* gathered = nullptr);
  /// dx has the shape of x, or is null if the caller does not need it.
  void backward(const void* dy, const void* x, std::size_t rows, LinearConstants parameters,
                void* dx, LinearGradients gradients, const void* gathered = nullptr);

  MemoryUse memory() const { return memory_.total(); }

 private:
  Axis& axis_;
  const LinearShape shape_;
  const ColumnOptions options_;
  Multiply multiply_;
  const std::string what_;
  LayerMath* math_ = nullptr;
  std::size_t local_out_ = 0;
  Mapper mapper_;
  MemoryPool memory_;
  Buffer gathered_, slice_, pieces_;
};

struct RowOptions {
  bool input_is_parallel = true;  // x is this rank's slice of the columns; else it is split
  bool sequence = false;          // y gets a slice of the rows: sums are reduce-scattered
  std::size_t pieces = 1;
};

class RowParallelLinear {
 public:
  RowParallelLinear(Axis& axis, LinearShape shape, RowOptions options = {}, Multiply multiply = {});

  /// Elements that this rank has: out x in / P; the bias is whole, the same on all ranks.
  std::size_t local_in() const { return local_in_; }
  std::size_t weight_count() const { return shape_.out * local_in_; }

  /// `rows`: of the whole of y. x: rows x in / P; without `input_is_parallel`, rows x in. y: rows x
  /// out; with `sequence`, rows / P x out. The bias is added once, after the sum over ranks.
  void forward(const void* x, std::size_t rows, LinearConstants parameters, void* y);
  /// With `sequence` the gradient of the bias covers this rank's rows only;
  /// hybrid/shared_gradients.h adds it up over the ranks of the axis. Without, all ranks get the
  /// same.
  void backward(const void* dy, const void* x, std::size_t rows, LinearConstants parameters,
                void* dx, LinearGradients gradients);

  MemoryUse memory() const { return memory_.total(); }

 private:
  Axis& axis_;
  const LinearShape shape_;
  const RowOptions options_;
  Multiply multiply_;
  const std::string what_;
  LayerMath* math_ = nullptr;
  std::size_t local_in_ = 0;
  Mapper mapper_;
  MemoryPool memory_;
  Buffer gathered_, slice_, local_dx_, pieces_;
};

}  // namespace tutti::parallel::tensor
