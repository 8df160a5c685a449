// A model that tests train in many mixes: a GPT of float64, five steps with clipping.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "examples/train/trainer.h"

namespace train {

inline constexpr int kSteps = 5;

inline Options tiny(bool tied = false) {
  Options o;
  o.shape = {
      .vocabulary = 256, .length = 8, .width = 16, .heads = 4, .layers = 3, .type = at::kDouble};
  o.shape.tied = tied;
  o.batch = 8;
  o.rate = 1e-2;
  o.clip = 0.5;  // less than the norms that there are
  o.text = TEXT;
  return o;
}

struct Trained {
  std::vector<double> losses, norms;
  Tensor parameters;  // of all layers, one after the other
};

inline Trained by_rank(tutti::Communicator& world, Options o) {
  o.fit(world.size());
  Ranks ranks(world, o);
  Trainer trainer(ranks, o);
  const Text text(o.text);
  Trained result;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const Trainer::Result of_step = trainer.step(text, step);
    result.losses.push_back(of_step.loss);
    result.norms.push_back(of_step.norm);
  }
  std::vector<Tensor> flat;
  trainer.parameters().read([&](const tutti::libtorch::NamedTensor& p) {
    flat.push_back(p.tensor.detach().clone().flatten());
  });
  result.parameters = at::cat(flat);
  return result;
}

}  // namespace train
