// Gradients that are made where they are wanted. Elsewhere in torch, backward makes a parameter's
// gradient in new memory, and an engine copies it to its buffer: a pass over all gradients, in
// which nothing is computed. A module that computes gradients itself asks where they should go, and
// autograd never sees what it made there.
//
// That is for gradients that nobody else looks at. Where a parameter has hooks, where gradients are
// differentiated again, and where a backward is asked for the gradients of some tensors alone,
// gradients are made as torch's modules make them.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensors.h"

namespace tutti::libtorch {

/// For the gradient of a parameter, of its sizes and type.
struct GradientPlace {
  Tensor memory;      // undefined: make it elsewhere, and return it to autograd
  bool adds = false;  // to what the memory has; else the memory may have anything
};

/// What an engine answers a module that asks where the gradient of a parameter goes. A gradient
/// that got a place is the engine's from there on: the module gives autograd none.
using GradientPlaces = std::function<GradientPlace(const Tensor& parameter)>;

/// Whom a module asks. Graphs keep it, so that the module may be gone before their backward; and it
/// forgets an engine that is gone.
class GradientTaker {
 public:
  GradientPlace place_of(const Tensor& parameter) const;
  /// From now on `places` says where gradients go, as long as somebody keeps it.
  void ask(const std::shared_ptr<const GradientPlaces>& places) { places_ = places; }

 private:
  std::weak_ptr<const GradientPlaces> places_;
};

/// A module whose backward makes gradients of its parameters (Linear, and the layers of
/// tensor_parallel.h).
class MakesGradients {
 public:
  const std::shared_ptr<GradientTaker>& gradient_taker() const { return taker_; }

 protected:
  MakesGradients() = default;
  ~MakesGradients() = default;

 private:
  const std::shared_ptr<GradientTaker> taker_ = std::make_shared<GradientTaker>();
};

/// The module and all modules in it ask `places` from now on, as long as the caller keeps it.
void gradients_to(torch::nn::Module& module, const std::shared_ptr<const GradientPlaces>& places);

/// While it lives, an engine gets a parameter's gradient where autograd accumulates it: after all
/// hooks of the user's, whenever they were registered.
class GradientArrival {
 public:
  /// Gets the sum of what a backward has made (undefined: nothing that autograd knows of); what it
  /// returns is accumulated in its place. The parameter has its sizes and type now.
  using Take = std::function<Tensor(const Tensor& gradient)>;
  GradientArrival(const Tensor& parameter, Take take);
  ~GradientArrival();
  GradientArrival(GradientArrival&&) = default;
  GradientArrival& operator=(GradientArrival&&) = delete;

 private:
  struct Hook;
  std::shared_ptr<Take> take_;               // empty once this is gone
  std::shared_ptr<const void> accumulator_;  // which a parameter does not keep by itself
};

/// While it lives, backwards on this thread leave gradients of parameters for later, where a module
/// knows how: what others wait for, the gradients of inputs, is there sooner.
class LaterGradients {
 public:
  /// Makes the gradients of some parameters; undefined ones, where they got a place.
  using Make = std::function<std::vector<Tensor>()>;
  struct Left {
    std::vector<Tensor> parameters;
    Make make;
  };
  explicit LaterGradients(std::vector<Left>& later);
  ~LaterGradients();
  LaterGradients(const LaterGradients&) = delete;
  LaterGradients& operator=(const LaterGradients&) = delete;

  /// Whether backwards on this thread leave gradients for later.
  static bool are_wanted();
  /// True where these are made later. Where a parameter has hooks they are not, so that hooks are
  /// called by the backward that they belong to, with a gradient.
  static bool leave(std::vector<Tensor> parameters, Make make);
  /// Makes what was left, and hands it to the parameters as backward would have: to each once.
  static void make_all(const std::vector<Left>& later);

 private:
  std::vector<Left>* const before_;
};

/// Numbers of parameters.
template <class Number>
using ByParameter = std::unordered_map<const at::TensorImpl*, Number>;

}  // namespace tutti::libtorch
