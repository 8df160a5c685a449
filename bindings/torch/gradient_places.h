// Making gradients in their final place. Usually torch's backward makes a parameter's gradient in
// new memory, and an engine copies it to its buffer: a pass over all gradients that computes
// nothing. A module that computes gradients itself asks for the place instead, and autograd never
// sees gradients that it made there.
//
// This works only for gradients that no other code looks at. If a parameter has hooks, if gradients
// are differentiated again, or if a backward computes the gradients of some tensors alone, the
// module makes gradients as torch's modules do.
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

/// An engine's answers to a module that asks for the place of a parameter's gradient. A gradient
/// with a place belongs to the engine from then on: the module gives autograd none.
using GradientPlaces = std::function<GradientPlace(const Tensor& parameter)>;

/// The object that a module asks. Graphs keep it, so the module may be gone before their backward.
/// It forgets an engine that is gone.
class GradientTaker {
 public:
  GradientPlace place_of(const Tensor& parameter) const;
  /// From now on `places` gives the places of gradients, as long as its owner keeps it.
  void ask(const std::shared_ptr<const GradientPlaces>& places) { places_ = places; }

 private:
  std::weak_ptr<const GradientPlaces> places_;
};

/// A module with a backward that makes gradients of its parameters (Linear, and the layers of
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

/// While it lives, an engine gets a parameter's gradient when autograd accumulates it: after all
/// hooks of the user's, whenever they were registered.
class GradientArrival {
 public:
  /// Gets the sum of the gradients that a backward has made (undefined: autograd knows of none).
  /// Autograd accumulates the returned tensor instead. The parameter has its sizes and type now.
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

/// While it lives, backwards on this thread leave gradients of parameters for later, if a module
/// knows how. So the gradients of inputs, for which others wait, are ready sooner.
class LaterGradients {
 public:
  /// Makes the gradients of some parameters; a gradient with a place is undefined in the result.
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
  /// True if these gradients come later. They do not if a parameter has hooks: so hooks run in the
  /// backward to which they belong, with a gradient.
  static bool leave(std::vector<Tensor> parameters, Make make);
  /// Makes the left gradients, and hands them to the parameters as backward would: once to each.
  static void make_all(const std::vector<Left>& later);

 private:
  std::vector<Left>* const before_;
};

/// Numbers of parameters.
template <class Number>
using ByParameter = std::unordered_map<const at::TensorImpl*, Number>;

}  // namespace tutti::libtorch
