// Data parallel: what it does to .grad(), and what the modules say when something is wrong. Ranks
// are threads, but where one is killed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "bindings/torch/check_finite.h"
#include "bindings/torch/data_parallel.h"
#include "bindings/torch/pipeline.h"
#include "parallel/pipeline/generate.h"
#include "tests/bindings/torch/small_modules.h"
#include "tests/support/run_job.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using test::error_of;
using test::run_thread_ranks;
using testing::HasSubstr;
using testing::Not;

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
    // Two micro-batches; the ranks communicate after the second. And gradients that stay, as in
    // torch.
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

// In the middle of a step: the others end, and say which rank was lost.
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
