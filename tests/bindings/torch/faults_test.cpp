// The modules one by one: what they do to .grad() and to parameters, and what they say when
// something is wrong. Ranks are threads, but where one is killed.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>

#include "bindings/torch/check_finite.h"
#include "bindings/torch/checkpoint.h"
#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/pipeline.h"
#include "parallel/pipeline/generate.h"
#include "tests/support/run_job.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::error_of;
using test::run_thread_ranks;
using testing::HasSubstr;
using testing::Not;

/// Two parameters and a buffer.
struct Two : torch::nn::Module {
  explicit Two(std::int64_t width = 4) {
    a = register_parameter("a", at::arange(width, at::kFloat) + 1);
    b = register_parameter("b", at::arange(width, at::kFloat) + 10);
    scale = register_buffer("scale", at::ones({1}));
  }
  Tensor forward(const Tensor& x, bool with_b = true) const {
    return (with_b ? x * a * b : x * a).sum() * scale.sum();
  }
  Tensor a, b, scale;
};

const Tensor& input(int rank) {
  static const Tensor inputs[] = {at::full({4}, 1.f), at::full({4}, 2.f), at::full({4}, 6.f)};
  return inputs[rank];
}

/// Its one unit is the module.
struct Sharded {
  Sharded(parallel::Axis& axis, Policy policy = Policy::fsdp())
      : shards({.shard = &axis}, {{"two", &module}}, policy) {}
  Tensor forward(const Tensor& x, bool with_b = true) {
    return shards.forward(
        0, [&](const Tensor& t) { return module.forward(t, with_b); }, x);
  }
  Two module;
  FullyShard shards;
};

TEST(TorchDataParallel, AveragesWhereGradientsAre) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module;
    {
      const at::NoGradGuard no_grad;
      module.a += comm.rank();
      module.scale += comm.rank();
    }
    DataParallel ddp(axis, module, {.bucket_bytes = 16, .first_bucket_bytes = 16});
    EXPECT_EQ(module.a[0].item<float>(), 1);  // as rank 0
    EXPECT_EQ(module.scale.item<float>(), 1);
    for (int step = 0; step < 3; ++step) {
      module.zero_grad();
      ddp.backward(module.forward(input(comm.rank())));
      EXPECT_TRUE(at::equal(module.a.grad(), 3 * module.b)) << module.a.grad();
      EXPECT_TRUE(at::equal(module.b.grad(), 3 * module.a));
      EXPECT_EQ(module.a.grad().const_data_ptr(), ddp.engine().gradient(0));
    }
    // Two micro-batches, of which the second is communicated; and gradients that stay, as in torch.
    module.zero_grad();
    const auto calls = [&] { return axis.traffic()[Collective::all_reduce].calls; };
    const auto before = calls();
    {
      const auto no_sync = ddp.no_sync();
      ddp.backward(module.forward(input(comm.rank())));
    }
    EXPECT_EQ(calls(), before);
    ddp.backward(module.forward(input(comm.rank())));
    EXPECT_EQ(calls(), before + 2);
    EXPECT_TRUE(at::equal(module.a.grad(), 6 * module.b));
    ddp.backward(module.forward(input(comm.rank())));
    EXPECT_TRUE(at::equal(module.a.grad(), 9 * module.b));
  });
}

TEST(TorchDataParallel, NamesParametersThatDiffer) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module(comm.rank() == 1 ? 5 : 4);
    const Error e = error_of([&] { DataParallel(axis, module); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_THAT(e.what(), HasSubstr("a: float32 [5]"));
    EXPECT_THAT(e.what(), HasSubstr("rank 1"));
  });
}

TEST(TorchDataParallel, NamesTheGradientThatNeverComes) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module;
    DataParallel ddp(axis, module);
    const Error e =
        error_of([&] { ddp.backward(module.forward(input(comm.rank()), comm.rank() == 0)); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_THAT(e.what(), HasSubstr("b on rank 1"));
    module.zero_grad();
    ddp.backward(module.forward(input(comm.rank())));  // the next step is as good as any
    EXPECT_TRUE(at::equal(module.b.grad(), 1.5 * module.a));
  });
}

TEST(TorchDataParallel, RefusesASecondBackward) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module;
    DataParallel ddp(axis, module);
    const Tensor loss = module.forward(input(comm.rank()));
    loss.backward({}, true);
    const Error e = error_of([&] { loss.backward(); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_THAT(e.what(), HasSubstr("ready for the second time"));
  });
}

TEST(TorchDataParallel, NamesWhoMadeANaN) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module;
    DataParallel ddp(axis, module, {.check_finite = true});
    const float factor = comm.rank() == 2 ? std::numeric_limits<float>::quiet_NaN() : 1;
    const Error e = error_of([&] { ddp.backward(module.forward(input(comm.rank())) * factor); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(e.rank(), 2);
  });
}

// All ranks of a job, of whatever axes: rank 2 makes an infinity in its second micro-batch.
TEST(TorchCheckFinite, NamesParameterAndRankOnAllRanks) {
  for (const bool sharded : {false, true}) {
    run_thread_ranks(4, [&](Communicator& comm) {
      CommunicatorAxis world(comm);
      Communicator pair = comm.split(comm.rank() / 2, comm.rank());
      CommunicatorAxis axis(pair);
      Two module;
      CheckFinite check(trained_parameters(module));
      std::optional<DataParallel> ddp;
      std::optional<FullyShard> shards;
      if (sharded)
        shards.emplace(parallel::ShardedAxes{.shard = &axis},
                       std::vector<FullyShard::Unit>{{"two", &module}});
      if (!sharded) ddp.emplace(axis, module);
      const auto step = [&](float factor) {
        Tensor x = input(0);
        // Of b alone: as b's gradient is x a, and a's is x b.
        const auto body = [&](const Tensor& t) {
          return (t * module.a).sum() + (t * factor * module.b).sum();
        };
        sharded ? shards->backward(shards->forward(0, body, x)) : ddp->backward(body(x));
        const Error e = error_of([&] { check.refuse(world, "step 7"); });
        if (sharded) shards->engine().discard_gradients();
        module.zero_grad();
        return e;
      };
      EXPECT_THAT(step(1).what(), HasSubstr("no error"));
      const float bad = std::numeric_limits<float>::infinity();
      const Error e = step(comm.rank() == 2 ? bad : 1);
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(e.rank(), 2);
      EXPECT_THAT(e.what(), HasSubstr("step 7: not finite: the gradient of b on rank 2"));
      EXPECT_THAT(step(1).what(), HasSubstr("no error"));
    });
  }
}

TEST(TorchDataParallel, ARankThatFailsInBackwardEndsAll) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module;
    Tensor x = input(comm.rank()).clone().requires_grad_();
    Tensor y = x * 1;
    if (comm.rank() == 1) {
      y.register_hook([](const Tensor&) { throw std::runtime_error("out of luck"); });
    }
    try {
      DataParallel ddp(axis, module);  // the abort may overtake the end of its last collective
      ddp.backward(module.forward(y));
      ADD_FAILURE() << "no error";
    } catch (const std::exception& e) {
      EXPECT_THAT(e.what(), HasSubstr("out of luck"));
    }
  });
}

// An error of torch has a backtrace, which is nothing for other ranks to read.
TEST(TorchRanks, AreToldWhatTorchRefused) {
  for (const std::string engine : {"data parallel", "sharded", "pipeline"}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const auto refuse = [&] {
        if (comm.rank() == 1) (void)at::mm(at::ones({2, 3}), at::ones({2, 3}));
      };
      Tensor x = input(comm.rank()).clone().requires_grad_();
      x.register_hook([&](const Tensor&) { refuse(); });
      const auto step = [&] {
        if (engine == "data parallel") {
          Two module;
          DataParallel ddp(axis, module);
          ddp.backward(module.forward(x * 1));
        } else if (engine == "sharded") {
          Sharded sharded(axis);
          sharded.shards.backward(sharded.forward(x * 1));
        } else {
          using namespace parallel::pipeline;
          libtorch::Pipeline pipeline(axis, generate(*find_generator("gpipe"), {2, 1}),
                                      {.shape = {1}},
                                      {.forward =
                                           [&](int, int, const Tensor& in) {
                                             if (in.defined()) refuse();
                                             return in.defined() ? in.sum() : x.sum().view({1});
                                           },
                                       .before_backward = {},
                                       .after_backward = {},
                                       .backward_weights = {}});
          (void)pipeline.step();
        }
      };
      try {
        step();
        ADD_FAILURE() << engine << ": no error on rank " << comm.rank();
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("rank 1"));
        EXPECT_THAT(e.what(), HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
        EXPECT_THAT(e.what(), Not(HasSubstr("frame #"))) << engine;
      } catch (const c10::Error&) {
        EXPECT_EQ(comm.rank(), 1) << engine;
      }
    });
  }
}

TEST(TorchDataParallel, RefusesWhatItCannotCarry) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    struct Transposed : torch::nn::Module {
      Transposed() { register_parameter("w", at::zeros({2, 3}).t()); }
    } transposed;
    EXPECT_THAT(error_of([&] { DataParallel(axis, transposed); }).what(),
                HasSubstr("the parameter w: float32 [3, 2] is not contiguous"));
  });
}

TEST(TorchFullyShard, NamesParametersThatDiffer) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module(comm.rank() == 1 ? 6 : 4);
    const Error e = error_of([&] { FullyShard({.shard = &axis}, {{"two", &module}}); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_THAT(e.what(), HasSubstr("a float32 [6]"));
  });
}

TEST(TorchFullyShard, ParametersHaveMemoryInTheirUnitOnly) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded sharded(axis);
    EXPECT_THROW((void)sharded.module.forward(input(0)), c10::Error);
    sharded.shards.backward(sharded.forward(input(comm.rank())));
    EXPECT_THROW((void)sharded.module.forward(input(0)), c10::Error);
    EXPECT_THROW((void)sharded.module.a.grad().sum(), c10::Error);
    // d/da = x b, averaged over x = 1, 2; this rank has two of four elements.
    const auto shard = sharded.shards.engine().shard({0, 0});
    ASSERT_EQ(shard.count, 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                1.5f * static_cast<float>(10 + shard.begin + i));
    }
    int read = 0;
    sharded.shards.read_parameters([&](const NamedTensor& p) {
      EXPECT_EQ(p.tensor[3].item<float>(), ++read == 1 ? 4 : 13) << p.name;
    });
    EXPECT_EQ(read, 2);
  });
}

TEST(TorchFullyShard, NamesTheGradientThatNeverComes) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded sharded(axis);
    const Error e = error_of(
        [&] { sharded.shards.backward(sharded.forward(input(comm.rank()), comm.rank() == 0)); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_EQ(e.rank(), 1);
    EXPECT_THAT(e.what(), HasSubstr("the parameter b of unit 'two' got no gradient on rank 1"));
    sharded.shards.engine().discard_gradients();
    sharded.shards.allow_unused();
    sharded.shards.backward(sharded.forward(input(comm.rank()), comm.rank() == 0));
    const auto shard = sharded.shards.engine().shard({0, 1});  // x a / 2, of rank 0 alone
    EXPECT_EQ(*static_cast<const float*>(shard.gradient), 0.5f * (1 + 2 * comm.rank()));
  });
}

TEST(TorchFullyShard, NamesWhoMadeANaN) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = Policy::zero2();
    policy.check_finite = true;
    Sharded sharded(axis, policy);
    const float factor = comm.rank() == 1 ? std::numeric_limits<float>::infinity() : 1;
    const Error e =
        error_of([&] { sharded.shards.backward(sharded.forward(input(comm.rank())) * factor); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr("unit 'two' is not finite"));
    EXPECT_EQ(e.rank(), 1);
  });
}

TEST(TorchFullyShard, AddsASecondBackwardUp) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Sharded sharded(axis, policy);
      const Tensor loss = sharded.forward(input(comm.rank()));
      loss.backward({}, true);
      sharded.shards.finish();
      loss.backward();
      sharded.shards.finish();
      const auto shard = sharded.shards.engine().shard({0, 0});  // of each backward 1.5 b
      for (std::size_t i = 0; i < shard.count; ++i) {
        EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                  2 * 1.5f * static_cast<float>(10 + shard.begin + i));
      }
    });
  }
}

// The rank that throws may live on; the others do not wait for it until their time is over.
TEST(TorchFullyShard, ARankThatFailsInForwardEndsAll) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded model(axis);
    const auto step = [&](bool throws) {
      const Tensor loss = model.shards.forward(
          0,
          [&](const Tensor& x) {
            if (throws) throw std::runtime_error("no memory for this");
            return model.module.forward(x);
          },
          input(comm.rank()));
      model.shards.backward(loss);
      model.shards.engine().discard_gradients();
    };
    step(false);
    std::string said;
    try {
      step(comm.rank() == 1);
    } catch (const std::exception& e) {
      said = e.what();
    }
    EXPECT_THAT(said, HasSubstr("no memory for this"));
    if (comm.rank() != 1) {
      EXPECT_THAT(said, HasSubstr("rank 1 failed in the forward of unit 'two'"));
    }
  });
}

TEST(TorchFullyShard, RefusesABackwardAfterItsEnd) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Tensor loss;
    {
      Sharded model(axis);
      loss = model.forward(input(comm.rank()));
    }
    const Error e = error_of([&] { loss.backward(); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_THAT(e.what(), HasSubstr("whose FullyShard is no more"));
    EXPECT_EQ(error_of([&] {
                FullyShard({.shard = &axis}, {{"none", nullptr}});
              }).code(),
              ErrorCode::invalid_argument);
  });
}

TEST(TorchFullyShard, NestsUnits) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two inner, all;
    all.register_module("inner", std::shared_ptr<Two>(&inner, [](Two*) {}));
    FullyShard shards({.shard = &axis}, {{"inner", &inner}, {"the rest", &all}}, Policy::zero3());
    EXPECT_EQ(shards.engine().unit(1).parameters.size(), 2u);
    // a' (a b x) + b', with a' and b' of the outer unit, which is used before and after.
    const Tensor loss = shards.forward(
        1,
        [&](const Tensor& x) {
          const Tensor y = shards.forward(
              0, [&](const Tensor& t) { return t * inner.a * inner.b; }, x * all.a);
          return (y + all.b * y).sum();
        },
        input(comm.rank()));
    shards.backward(loss);
    // d/db = x' a' a b, of x' = 1.5 on average; d/da' = a b (1 + b') x'.
    for (const std::size_t p : {0u, 1u}) {
      const auto shard = shards.engine().shard({1, p});
      for (std::size_t i = 0; i < shard.count; ++i) {
        const float a = static_cast<float>(1 + shard.begin + i), b = a + 9;
        EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                  p == 0 ? 1.5f * a * b * (1 + b) : 1.5f * a * a * b);
      }
    }
  });
}

TEST(TorchCheckpoint, ComputesTheSameTwice) {
  for (const bool needs_input : {true, false}) {
    const Two module;
    int forwards = 0;
    const Layer body = [&](const Tensor& x) {
      ++forwards;
      return at::dropout(x * module.a * module.b, 0.5, true);
    };
    Tensor gradients[2][2];
    for (const bool recompute : {false, true}) {
      at::manual_seed(7);
      Tensor x = at::ones({64, 4}).requires_grad_(needs_input);
      module.a.mutable_grad().reset();
      const Tensor y = recompute ? checkpoint(body, x) : body(x);
      (void)at::rand({3});  // what was drawn meanwhile makes no difference
      y.sum().backward();
      gradients[recompute][0] = module.a.grad();
      gradients[recompute][1] = needs_input ? x.grad() : Tensor(at::zeros({1}));
    }
    EXPECT_EQ(forwards, 3);
    EXPECT_TRUE(at::equal(gradients[0][0], gradients[1][0]));
    EXPECT_TRUE(at::equal(gradients[0][1], gradients[1][1]));
  }
}

struct Autocasting {
  Autocasting() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocasting() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
};

// Backward is outside of it, as torch recommends.
TEST(TorchCheckpoint, ComputesInTheTypeOfTheForward) {
  const Tensor w = (at::arange(16, at::kFloat) / 7).view({4, 4}).requires_grad_();
  std::vector<at::ScalarType> types;
  const Layer body = [&](const Tensor& x) {
    const Tensor y = at::linear(x, w);
    types.push_back(y.scalar_type());
    return y;
  };
  Tensor gradients[2];
  for (const bool recompute : {false, true}) {
    w.mutable_grad().reset();
    Tensor loss;
    {
      const Autocasting autocast;
      const Tensor x = at::ones({3, 4}) / 3;
      const Tensor y = recompute ? checkpoint(body, x) : body(x);
      loss = at::linear(y, w).square().sum();  // the same matrix, outside of it
    }
    loss.backward();
    gradients[recompute] = w.grad();
  }
  EXPECT_EQ(types, std::vector<at::ScalarType>(3, at::kBFloat16));
  EXPECT_TRUE(at::equal(gradients[0], gradients[1])) << gradients[0] << gradients[1];
}

// A segment of several units, which are gathered once more for it.
TEST(TorchCheckpoint, GathersUnitsAgain) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Two first, second;
      FullyShard shards({.shard = &axis}, {{"first", &first}, {"second", &second}}, policy);
      const auto unit = [&](std::size_t u, const Tensor& x) {
        const Two& module = u == 0 ? first : second;
        return shards.forward(
            u, [&](const Tensor& t) { return t * module.a + module.b; }, x);
      };
      const Layer segment = [&](const Tensor& x) { return unit(1, unit(0, x)); };
      std::vector<float> gradients[2];
      // The second step knows the order of the units from the first.
      for (int step = 0; step < 2; ++step) {
        for (const bool recompute : {false, true}) {
          auto& made = gradients[recompute];
          made.clear();
          const Tensor x = input(comm.rank()).clone().requires_grad_(true);
          const Tensor y = recompute ? checkpoint(segment, x) : segment(x);
          shards.backward(y.square().sum());
          for (const std::size_t u : {0u, 1u}) {
            for (const std::size_t p : {0u, 1u}) {
              const auto shard = shards.engine().shard({u, p});
              const auto* const g = static_cast<const float*>(shard.gradient);
              made.insert(made.end(), g, g + shard.count);
            }
          }
          const Tensor g = x.grad().contiguous();
          made.insert(made.end(), g.const_data_ptr<float>(), g.const_data_ptr<float>() + 4);
          shards.engine().discard_gradients();
        }
        EXPECT_EQ(gradients[0], gradients[1]) << "step " << step;
      }
    });
  }
}

// In the middle of a step: the others end, and say who was lost.
TEST(TorchRanks, ThatAreKilledEndTheOthers) {
  int round = 0;
  for (const std::string shard : {"none", "fsdp", "zero2"}) {
    Job job({"-n", "3", "--keep-going", "--timeout", "60", "sh", "-c",
             "echo PID $TUTTI_RANK $$; exec " TRAIN
             " --steps 100000 --batch 3 --report 1 --shard " +
                 shard + " --text " TEXT});
    ASSERT_TRUE(job.out_has("\n     3 ")) << job.out() << job.err();
    const std::string victim = std::to_string(round++ % 3), mark = "PID " + victim + " ";
    const std::string out = job.out();
    kill(std::stoi(out.substr(out.find(mark) + mark.size())), SIGKILL);
    EXPECT_NE(job.wait(), 0);
    EXPECT_LT(job.seconds(), 60);
    const std::string errors = job.err();
    std::size_t named = 0;
    for (std::size_t at = 0; (at = errors.find("train: ", at)) != std::string::npos; ++at) {
      const std::string line = errors.substr(at, errors.find('\n', at) - at);
      named += line.find("rank " + victim) != std::string::npos ? 1 : 0;
    }
    EXPECT_GE(named, 2u) << errors;
  }
}

// The same where ranks share layers and a pipeline: those that have no axis in common with the lost
// one are told by those that have.
TEST(TorchRanks, ThatAreKilledInAHybridEndTheOthers) {
  for (const int victim : {0, 3}) {
    Job job({"-n", "4", "--keep-going", "--timeout", "60", "sh", "-c",
             "echo PID $TUTTI_RANK $$; exec " TRAIN
             " --steps 100000 --tp 2 --pp 2 --micro-batches 4 --report 1 --text " TEXT});
    ASSERT_TRUE(job.out_has("\n     3 ")) << job.out() << job.err();
    const std::string mark = "PID " + std::to_string(victim) + " ", out = job.out();
    kill(std::stoi(out.substr(out.find(mark) + mark.size())), SIGKILL);
    EXPECT_NE(job.wait(), 0);
    EXPECT_LT(job.seconds(), 60);
    const std::string errors = job.err();
    // Each by its own line, with the number that the job has for the lost one, and not an axis.
    const std::string lost = "rank " + std::to_string(victim);
    std::size_t told = 0;
    for (const std::string& line : lines(errors)) {
      told += line.find("train: ") != std::string::npos &&
              (line.find(lost + " of the job, pid ") != std::string::npos ||
               line.find(lost + " (pid ") != std::string::npos);
    }
    EXPECT_EQ(told, 3u) << errors;
    // Where: a layer, an action of a stage, or what follows on the backward.
    EXPECT_TRUE(errors.find("linear '") != std::string::npos ||
                errors.find("micro-batch") != std::string::npos ||
                errors.find("norm") != std::string::npos)
        << errors;
  }
}

}  // namespace
}  // namespace tutti::libtorch
