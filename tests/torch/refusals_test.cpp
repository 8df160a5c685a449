// What one rank alone has, and cannot be: all ranks are told, and none waits for it.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/pipeline.h"
#include "bindings/torch/tensor_parallel.h"
#include "parallel/pipeline/generate.h"
#include "tests/thread_ranks.h"
#include "tests/torch/whole_numbers.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::error_of;
using test::run_thread_ranks;
using test::whole_numbers;
using testing::HasSubstr;

struct Holder : torch::nn::Module {
  explicit Holder(const Tensor& parameter) { register_parameter("w", parameter); }
};

/// Ranks that wait for one that does not come fail in time for a test.
Options patient() {
  Options options;
  options.timeout = std::chrono::seconds(20);
  return options;
}

/// `make(is_odd)`, where `is_odd` on `odd` ranks, which are all or the last. Others have what is
/// right.
void expect_refused(int odd, const std::string& why,
                    const std::function<void(parallel::Axis&, bool is_odd)>& make) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, patient(), [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Error e = error_of([&] { make(axis, comm.rank() >= kRanks - odd); });
    EXPECT_THAT(e.what(), HasSubstr(why));
    if (odd == kRanks) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    } else {
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      EXPECT_EQ(e.rank(), kRanks - odd);
      EXPECT_THAT(e.what(), HasSubstr("rank " + std::to_string(kRanks - odd)));
    }
    // Nothing has failed: the ranks may make what is right, on the same axis.
    EXPECT_NO_THROW(make(axis, false));
  });
}

TEST(TorchRefusals, OfAParameterInDataParallelAreEverybodys) {
  const std::pair<std::function<Tensor()>, const char*> odd[] = {
      {[] {
         return at::zeros({2, 3}).t();
       },
       "the parameter w: float32 [3, 2] is not contiguous"},
      {[] {
         return at::zeros({3, 2}, at::kComplexFloat);
       },
       "the parameter w has the type ComplexFloat"},
      {[] {
         return at::zeros({3, 2}).to_sparse();
       },
       "the parameter w: it is not dense"}};
  for (const auto& [tensor, why] : odd) {
    for (const int ranks : {1, 3}) {
      expect_refused(ranks, why, [&](parallel::Axis& axis, bool is_odd) {
        Holder module(is_odd ? tensor() : at::zeros({3, 2}));
        const DataParallel ddp(axis, module);
      });
    }
  }
}

TEST(TorchRefusals, OfABufferInDataParallelAreEverybodys) {
  for (const int ranks : {1, 3}) {
    expect_refused(ranks, "the module's tensor table is sparse",
                   [&](parallel::Axis& axis, bool is_odd) {
                     Holder module(at::zeros({2}));
                     const Tensor table = whole_numbers({3, 2}, 1);
                     module.register_buffer("table", is_odd ? table.to_sparse() : table);
                     const DataParallel ddp(axis, module);
                   });
  }
}

TEST(TorchRefusals, OfAParameterInShardsAreEverybodys) {
  for (const int ranks : {1, 3}) {
    expect_refused(ranks, "the parameter w of unit 'two' is float64 [2], but the policy's types",
                   [](parallel::Axis& axis, bool is_odd) {
                     Holder one(at::zeros({4})),
                         two(at::zeros({2}, is_odd ? at::kDouble : at::kFloat));
                     const FullyShard shards({.shard = &axis}, {{"one", &one}, {"two", &two}});
                   });
    expect_refused(ranks, "the parameter w: float32 [3, 2] is not contiguous",
                   [](parallel::Axis& axis, bool is_odd) {
                     Holder one(is_odd ? at::zeros({2, 3}).t() : at::zeros({3, 2}));
                     const FullyShard shards({.shard = &axis}, {{"one", &one}}, Policy::zero1());
                   });
    expect_refused(ranks, "unit 'two' has no module", [](parallel::Axis& axis, bool is_odd) {
      Holder one(at::zeros({4})), two(at::zeros({4}));
      const FullyShard shards({.shard = &axis}, {{"one", &one}, {"two", is_odd ? nullptr : &two}});
    });
  }
}

// What a program throws of its own is handed on as it is, and told to the others.
TEST(TorchRefusals, ByTheProgramAreEverybodys) {
  run_thread_ranks(3, patient(), [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const bool alone : {true, false}) {
      Holder one(at::zeros({4}));
      const Treat treat = [&](const NamedTensor&) -> Treatment {
        if (!alone || comm.rank() == 1) throw std::out_of_range("no treatment for this");
        return {};
      };
      try {
        const FullyShard shards({.shard = &axis}, {{"one", &one}}, Policy::fsdp(), treat);
        ADD_FAILURE() << "no error on rank " << comm.rank();
      } catch (const Error& e) {
        EXPECT_TRUE(alone);
        EXPECT_EQ(e.rank(), 1);
        EXPECT_THAT(e.what(), HasSubstr("rank 1 was refused"));
        EXPECT_THAT(e.what(), HasSubstr("no treatment for this"));
      } catch (const std::out_of_range&) {
        EXPECT_FALSE(alone);
      }
    }
  });
}

TEST(TorchRefusals, OfALayersTypeAreEverybodys) {
  for (const int ranks : {1, 3}) {
    expect_refused(ranks, "linear 'up' has the type ComplexFloat",
                   [](parallel::Axis& axis, bool is_odd) {
                     const auto type = is_odd ? at::kComplexFloat : at::kFloat;
                     const ColumnParallelLinear up(axis, "up", 4, 6, type);
                   });
    expect_refused(ranks, "embedding 'tokens' has the type ComplexFloat",
                   [](parallel::Axis& axis, bool is_odd) {
                     const auto type = is_odd ? at::kComplexFloat : at::kFloat;
                     const VocabParallelEmbedding tokens(axis, "tokens", 6, 4, type);
                   });
  }
}

TEST(TorchRefusals, OfWhatIsBetweenStagesAreEverybodys) {
  for (const int ranks : {1, 3}) {
    expect_refused(ranks, "between stages there are [0]", [](parallel::Axis& axis, bool is_odd) {
      const auto schedule =
          parallel::pipeline::generate(*parallel::pipeline::find_generator("gpipe"), {3, 1});
      const Pipeline pipeline(axis, schedule, {.shape = {is_odd ? 0 : 4}},
                              {.forward = [](int, int, const Tensor& in) { return in; },
                               .before_backward = {},
                               .after_backward = {},
                               .backward_weights = {}});
    });
  }
}

}  // namespace
}  // namespace tutti::libtorch
