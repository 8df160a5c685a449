#include "bindings/torch/gradient_places.h"

#include <torch/csrc/autograd/autograd.h>

namespace tutti::libtorch {
namespace {

// A backward on CPUs runs its nodes on the thread that called it.
thread_local std::vector<LaterGradients::Make>* list_of_this_thread = nullptr;

}  // namespace

void gradients_to(torch::nn::Module& module, const MakesGradients::Places& places) {
  module.apply([&](torch::nn::Module& m) {
    if (auto* const maker = dynamic_cast<MakesGradients*>(&m)) maker->gradients_to(places);
  });
}

LaterGradients::LaterGradients(std::vector<Make>& later)
    : before_(std::exchange(list_of_this_thread, &later)) {}
LaterGradients::~LaterGradients() { list_of_this_thread = before_; }
std::vector<LaterGradients::Make>* LaterGradients::list() { return list_of_this_thread; }

void LaterGradients::give(const Tensor& parameter, const Tensor& gradient) {
  torch::autograd::backward({parameter}, {gradient});
}

}  // namespace tutti::libtorch
