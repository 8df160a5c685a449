// Optimizers of the modules beside torch's own, where parameters join late; and training that goes
// on from what was saved, on the same ranks with the same bits, and on others.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/optim/adamw.h>
#include <torch/serialize/archive.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/torch/fully_shard.h"
#include "bindings/torch/optimizer.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::AdamW;
using parallel::CommunicatorAxis;
using parallel::Policy;
using parallel::Precision;
using test::error_of;
using test::run_thread_ranks;
using testing::HasSubstr;

constexpr double kRate = 0.01, kDecay = 0.1;
const AdamW kAdamW({.learning_rate = kRate, .weight_decay = kDecay});

/// Numbers that differ by place.
Tensor numbers(at::IntArrayRef sizes, int seed) {
  return ((at::arange(c10::multiply_integers(sizes), at::kDouble) * 7 + seed) % 11 / 8 - 0.5)
      .view(sizes);
}

/// Two layers; some steps alone use the second.
struct Towers : torch::nn::Module {
  explicit Towers(at::ScalarType type = at::kDouble) {
    for (const auto& layer : {first, second}) {
      layer->a = layer->register_parameter("a", numbers({6, 4}, 1).to(type));
      layer->b = layer->register_parameter("b", numbers({6}, 4).to(type));
    }
    register_module("first", first);
    register_module("second", second);
    frozen = register_parameter("frozen", numbers({3}, 2).to(type), false);
    count = register_buffer("count", at::zeros({}, at::kLong));
  }
  struct Layer : torch::nn::Module {
    Tensor forward(const Tensor& x) const { return at::linear(x, a, b).tanh(); }
    Tensor a, b;
  };
  std::shared_ptr<Layer> first = std::make_shared<Layer>(), second = std::make_shared<Layer>();
  Tensor frozen, count;
};
bool has_second(int step) { return step >= 10; }
Tensor input(int step) { return numbers({5, 4}, step); }

/// All parameters, one after the other, after so many steps of torch's own AdamW.
Tensor by_torch_alone(int steps) {
  const Towers model;
  std::vector<Tensor> all;
  for (const Tensor& p : model.parameters()) {
    if (p.requires_grad()) all.push_back(p);
  }
  torch::optim::AdamW optimizer(all, torch::optim::AdamWOptions(kRate).weight_decay(kDecay));
  for (int step = 0; step < steps; ++step) {
    Tensor loss = model.first->forward(input(step)).square().sum();
    if (has_second(step)) loss = loss + model.second->forward(input(step)).square().sum();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  std::vector<Tensor> flat;
  for (const Tensor& p : all) flat.push_back(p.detach().flatten());
  return at::cat(flat);
}

/// The model in shards, trained with the same data on all ranks.
struct Sharded {
  Sharded(parallel::Axis& axis, const Policy& policy)
      : model(scalar_type(policy.precision.master)),
        shards({.shard = &axis}, model,
               {{"first", model.first.get()}, {"second", model.second.get()}}, policy) {}
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      Tensor loss = forward(0, *model.first, step);
      if (has_second(step)) loss = loss + forward(1, *model.second, step);
      model.count += 1;
      shards.backward(loss);
      shards.engine().step(kAdamW);
    }
  }
  Tensor forward(std::size_t unit, const Towers::Layer& layer, int step) {
    return shards
        .forward(
            unit, [&](const Tensor& x) { return layer.forward(x.to(layer.a.scalar_type())); },
            input(step))
        .to(at::kDouble)
        .square()
        .sum();
  }
  std::map<std::string, Tensor> parameters() {
    std::map<std::string, Tensor> all;
    shards.save([&](const ParameterState& p) {
      all[p.name] = p.value.clone();
      for (std::size_t i = 0; i < p.state.size(); ++i) {
        all[p.name + "." + std::to_string(i)] = p.state[i].clone();
      }
    });
    return all;
  }
  Towers model;
  FullyShard shards;
};
Policy in_float64(Policy policy) {
  policy.precision = Precision::of(DataType::float64);
  return policy;
}

TEST(TorchOptimizers, CountTheStepsOfEachParameterAsTorchDoes) {
  const int steps = 13;
  const Tensor expected = by_torch_alone(steps);
  const Towers model;
  LocalOptimizer local(trained_parameters(model));
  for (int step = 0; step < steps; ++step) {
    Tensor loss = model.first->forward(input(step)).square().sum();
    if (has_second(step)) loss = loss + model.second->forward(input(step)).square().sum();
    local.zero_grad();
    loss.backward();
    local.step(kAdamW);
  }
  std::vector<Tensor> flat;
  for (const NamedTensor& p : trained_parameters(model))
    flat.push_back(p.tensor.detach().flatten());
  EXPECT_LE((at::cat(flat) - expected).abs().max().item<double>(), 1e-14);
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Sharded sharded(axis, in_float64(policy));
      sharded.train(0, steps);
      std::vector<Tensor> whole;
      sharded.shards.read_parameters(
          [&](const NamedTensor& p) { whole.push_back(p.tensor.detach().clone().flatten()); });
      EXPECT_LE((at::cat(whole) - expected).abs().max().item<double>(), 1e-14);
    });
  }
}

TEST(TorchOptimizers, KeepToOneOptimizer) {
  const Towers model;
  LocalOptimizer local(trained_parameters(model));
  local.step(parallel::Sgd({.momentum = 0.9}));
  const Error e = error_of([&] { local.step(kAdamW); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
  EXPECT_THAT(e.what(), HasSubstr("AdamW keeps 2 numbers for each parameter, the optimizer before "
                                  "it 1"));
}

// --- To go on
// --------------------------------------------------------------------------------------

/// As a program does it: a file of torch's, which one rank writes and all read.
std::string file_of(const std::function<void(const WriteState&)>& save) {
  torch::serialize::OutputArchive archive;
  save([&](const ParameterState& p) {
    archive.write(p.name, p.value.clone());
    archive.write(p.name + ".steps",
                  at::scalar_tensor(static_cast<std::int64_t>(p.steps), at::kLong));
    for (std::size_t i = 0; i < p.state.size(); ++i) {
      archive.write(p.name + "." + std::to_string(i), p.state[i].clone());
    }
  });
  std::ostringstream file;
  archive.save_to(file);
  return file.str();
}
void read_file(const std::string& text, const std::function<void(const ReadState&)>& load) {
  std::istringstream file(text);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  load([&](ParameterState& p) {
    archive.read(p.name, p.value);
    Tensor steps;
    archive.read(p.name + ".steps", steps);
    p.steps = static_cast<std::uint64_t>(steps.item<std::int64_t>());
    for (std::size_t i = 0; i < p.state.size(); ++i) {
      archive.read(p.name + "." + std::to_string(i), p.state[i]);
    }
  });
}

void expect_equal(const std::map<std::string, Tensor>& got,
                  const std::map<std::string, Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(at::equal(got.at(name), tensor)) << name << got.at(name) << tensor;
  }
}

TEST(TorchResume, GoesOnWithTheSameBits) {
  const Policy mixed = Policy::fsdp(
      {DataType::bfloat16, DataType::bfloat16, DataType::float32, DataType::float32, {}});
  for (const Policy& policy : {in_float64(Policy::zero1()), in_float64(Policy::fsdp()), mixed}) {
    SCOPED_TRACE(policy.describe());
    std::string file;
    std::map<std::string, Tensor> expected;
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const auto make = [&] { return std::make_unique<Sharded>(axis, policy); };
      const auto whole = make();
      whole->train(0, 11);
      const std::string saved =
          file_of([&](const WriteState& write) { whole->shards.save(write); });
      whole->train(11, 14);
      const auto resumed = make();
      {
        const at::NoGradGuard no_grad;
        resumed->model.frozen.zero_();
      }
      read_file(saved, [&](const ReadState& read) { resumed->shards.load(kAdamW, read); });
      EXPECT_EQ(resumed->model.count.item<std::int64_t>(), 11);
      EXPECT_TRUE(at::equal(resumed->model.frozen, numbers({3}, 2).to(resumed->model.frozen)));
      EXPECT_EQ(resumed->shards.engine().shard({1, 0}).steps, 1u);
      resumed->train(11, 14);
      const auto all = whole->parameters();
      EXPECT_EQ(all.size(), 14u);  // four parameters with two states, what is frozen, the count
      expect_equal(resumed->parameters(), all);
      if (comm.rank() != 0) return;
      file = saved;
      expected = all;
    });
    if (policy.precision.master != DataType::float64) continue;
    // Gradients are the same on all ranks, so their average is: on one rank, and in a whole model.
    run_thread_ranks(1, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Sharded sharded(axis, in_float64(Policy::zero3()));
      read_file(file, [&](const ReadState& read) { sharded.shards.load(kAdamW, read); });
      sharded.train(11, 14);
      expect_equal(sharded.parameters(), expected);
    });
    const Towers model;
    std::vector<NamedTensor> named;
    for (const NamedTensor& p : trained_parameters(model)) named.push_back(p);
    LocalOptimizer local(named);
    read_file(file, [&](const ReadState& read) { local.load(kAdamW, read); });
    for (int step = 11; step < 14; ++step) {
      local.zero_grad();
      (model.first->forward(input(step)).square().sum() +
       model.second->forward(input(step)).square().sum())
          .backward();
      local.step(kAdamW);
    }
    std::map<std::string, Tensor> got;
    local.save([&](const ParameterState& p) {
      got[p.name] = p.value;
      for (std::size_t i : {0u, 1u}) got[p.name + "." + std::to_string(i)] = p.state[i];
    });
    for (const auto& [name, tensor] : got) EXPECT_TRUE(at::equal(tensor, expected[name])) << name;
  }
}

// Before the first step there is no state, and after a load of that AdamW begins at its beginning.
TEST(TorchResume, GoesOnFromWhereNothingWasTrainedYet) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded one(axis, in_float64(Policy::fsdp())), other(axis, in_float64(Policy::fsdp()));
    const std::string file = file_of([&](const WriteState& write) {
      one.shards.save([&](const ParameterState& p) {
        EXPECT_TRUE(p.state.empty()) << p.name;
        write(p);
      });
    });
    std::istringstream text(file);
    torch::serialize::InputArchive archive;
    archive.load_from(text);
    other.shards.load(kAdamW, [&](ParameterState& p) { archive.read(p.name, p.value); });
    one.train(0, 2);
    other.train(0, 2);
    expect_equal(other.parameters(), one.parameters());
  });
}

TEST(TorchResume, WhatGoesWrongOnOneRankEndsItOnAll) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded sharded(axis, in_float64(Policy::fsdp()));
    const auto why = [&](const auto& call) {
      try {
        call();
      } catch (const std::exception& e) {
        return std::string(e.what());
      }
      return std::string("nothing");
    };
    const std::string said = why([&] {
      sharded.shards.load(kAdamW, [&](ParameterState& p) {
        if (comm.rank() == 1 && p.name == "second.b") p.value = at::zeros({7});
      });
    });
    EXPECT_THAT(said, HasSubstr("the parameter second.b: its value was read as float32 [7], and it "
                                "is [6]"));
  });
}

TEST(TorchResume, WithoutNamesOfTheirOwnIsRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Towers model;
    FullyShard shards({.shard = &axis},
                      {{"tower", model.first.get()}, {"tower", model.second.get()}},
                      in_float64(Policy::fsdp()));
    const Error e = error_of([&] { shards.save([](const ParameterState&) {}); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_THAT(e.what(), HasSubstr("two tensors are called tower.a"));
  });
}

}  // namespace
}  // namespace tutti::libtorch
