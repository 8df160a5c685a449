// Gradients that are made where they are wanted. Elsewhere in torch, backward makes a parameter's
// gradient in new memory, and an engine copies it to its buffer: a pass over all gradients, in
// which nothing is computed. A module that computes gradients itself asks where they should go.
#pragma once

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensors.h"

namespace tutti::libtorch {

/// For the gradient of a parameter, of its sizes and type.
struct GradientPlace {
  Tensor memory;  // undefined: wherever you like
  // Memory has the sum of earlier micro-batches, to which the gradient is added (so that is what
  // hooks of the parameter see); else it has anything.
  bool adds = false;
};

/// A module whose backward makes gradients of its parameters (Linear, and the layers of
/// tensor_parallel.h).
class MakesGradients {
 public:
  using Places = std::function<GradientPlace(const Tensor& parameter)>;
  /// Who takes the gradients of this module says where they go, from now on. He is asked once for
  /// each gradient that is made, and the next thing that he hears of that parameter is its hook,
  /// with that memory as the gradient, or with other memory that has it.
  void gradients_to(Places places) { places_ = std::move(places); }

  GradientPlace place_of(const Tensor& parameter) const {
    return places_ ? places_(parameter) : GradientPlace{};
  }

 protected:
  MakesGradients() = default;
  ~MakesGradients() = default;

 private:
  Places places_;
};

/// While it lives, backwards on this thread leave gradients of parameters for later, where a module
/// knows how: what others wait for, the gradients of inputs, is there sooner.
class LaterGradients {
 public:
  /// What makes a gradient, and hands it to its parameter as backward would have: with its hooks.
  using Make = std::function<void()>;
  explicit LaterGradients(std::vector<Make>& later);
  ~LaterGradients();
  LaterGradients(const LaterGradients&) = delete;
  LaterGradients& operator=(const LaterGradients&) = delete;

  /// Where a module adds to; null: gradients are made now.
  static std::vector<Make>* list();
  /// To a parameter, later.
  static void give(const Tensor& parameter, const Tensor& gradient);

 private:
  std::vector<Make>* const before_;
};

/// Of the module and all modules in it.
void gradients_to(torch::nn::Module& module, const MakesGradients::Places& places);

/// Numbers of parameters.
template <class Number>
using ByParameter = std::unordered_map<const at::TensorImpl*, Number>;

}  // namespace tutti::libtorch
