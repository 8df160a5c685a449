// Every mix trains what one rank trains by torch alone: a GPT of float64, five steps of torch's own
// AdamW with clipping. Ranks are threads.
#include "tests/bindings/torch/mixes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <cmath>

#include "tests/support/thread_ranks.h"

namespace train {
namespace {

Trained by_torch_alone(const Options& o) {
  const auto layers = make_layers(o.shape, o.seed, 0, o.shape.layers + 2);
  std::vector<Tensor> matrices, vectors, all;
  for (const auto& layer : layers) {
    for (const Tensor& p : layer->parameters()) {
      (p.dim() > 1 ? matrices : vectors).push_back(p);
      all.push_back(p);
    }
  }
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(o.rate).weight_decay(decay));
  };
  torch::optim::AdamW optimizer({torch::optim::OptimizerParamGroup(matrices, options(o.decay)),
                                 torch::optim::OptimizerParamGroup(vectors, options(0))});
  const Text text(o.text);
  const Loss loss_of = make_loss(o.shape);
  Trained result;
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const Batch batch = text.batch(o.seed, step, 0, o.batch, o.shape.length);
    Tensor x = batch.tokens;
    for (const auto& layer : layers) x = layer->forward(x);
    const Tensor loss = loss_of(x, batch.next);
    optimizer.zero_grad();
    loss.backward();
    result.losses.push_back(loss.item<double>());
    Tensor squares = at::zeros({}, at::kDouble);
    if (o.shape.tied) {  // two copies of one matrix
      const Tensor &first = layers.front()->tied, &second = layers.back()->tied;
      first.mutable_grad() += second.grad();
      second.mutable_grad() = first.grad().clone();
      squares -= first.grad().square().sum();
    }
    for (const Tensor& p : all) squares += p.grad().square().sum();
    const double norm = std::sqrt(squares.item<double>());
    EXPECT_GT(norm, o.clip);
    result.norms.push_back(norm);
    for (const Tensor& p : all) p.mutable_grad() *= o.clip / norm;
    optimizer.step();
  }
  std::vector<Tensor> flat;
  for (const Tensor& p : all) flat.push_back(p.detach().flatten());
  result.parameters = at::cat(flat);
  return result;
}

void expect_equals_one_rank(int ranks, const Options& o) {
  static const Trained untied = by_torch_alone(tiny());
  static const Trained tied = by_torch_alone(tiny(true));
  const Trained& expected = o.shape.tied ? tied : untied;
  std::vector<Trained> results(static_cast<std::size_t>(ranks));
  tutti::test::run_thread_ranks(ranks, [&](tutti::Communicator& world) {
    results[static_cast<std::size_t>(world.rank())] = by_rank(world, o);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const Trained& result = results[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(result.losses[i], expected.losses[i], 1e-12) << "step " << i;
      EXPECT_NEAR(result.norms[i], expected.norms[i], 1e-12) << "step " << i;
    }
    // Ranks lie as Ranks says: pipeline, data, tensor. Those of other data have the same bits.
    const int data = ranks / o.pp / o.tp;
    const int first = rank / (data * o.tp) * data * o.tp + rank % o.tp;
    EXPECT_TRUE(at::equal(result.parameters, results[static_cast<std::size_t>(first)].parameters))
        << "bits of rank " << rank << " are not those of rank " << first;
    if (o.tp > 1 || o.pp > 1) continue;  // parts: the losses and norms speak for them
    ASSERT_EQ(result.parameters.sizes(), expected.parameters.sizes());
    EXPECT_LE((result.parameters - expected.parameters).abs().max().item<double>(), 1e-12);
  }
}

TEST(Mixes, OneRankAloneTrainsAsTheModelItself) {
  Options o = tiny();
  o.alone = true;
  expect_equals_one_rank(1, o);
}

TEST(Mixes, DataParallelTrainsAsOneRank) {
  for (const int ranks : {1, 2, 4, 8}) {
    SCOPED_TRACE(ranks);
    expect_equals_one_rank(ranks, tiny());
  }
}

TEST(Mixes, ShardsTrainAsOneRank) {
  for (const Sharding shard : {Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::fsdp}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(shard) << " on " << ranks);
      Options o = tiny();
      o.shard = shard;
      expect_equals_one_rank(ranks, o);
    }
  }
}

TEST(Mixes, ReplicasTrainAsOneRank) {
  for (const Sharding shard : {Sharding::zero2, Sharding::fsdp}) {
    Options o = tiny();
    o.shard = shard;
    o.replicas = 2;
    expect_equals_one_rank(4, o);
  }
}

TEST(Mixes, MicroBatchesAndRecomputingTrainAsOneRank) {
  for (const Sharding shard :
       {Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::fsdp}) {
    SCOPED_TRACE(static_cast<int>(shard));
    Options o = tiny();
    o.shard = shard;
    o.micro_batches = 2;
    o.recompute = true;
    expect_equals_one_rank(2, o);
  }
}

TEST(Mixes, TensorParallelTrainsAsOneRank) {
  for (const bool sequence : {false, true}) {
    for (const int ranks : {2, 4}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(testing::Message() << ranks << sequence << recompute);
        Options o = tiny();
        o.tp = ranks;
        o.sequence = sequence;
        o.recompute = recompute;
        expect_equals_one_rank(ranks, o);
      }
    }
  }
}

TEST(Mixes, PipelinesTrainAsOneRank) {
  for (const char* const schedule :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"}) {
    SCOPED_TRACE(schedule);
    Options o = tiny();
    o.pp = 2;
    o.micro_batches = 4;
    o.schedule = schedule;
    expect_equals_one_rank(2, o);
  }
}

TEST(Mixes, TiedEmbeddingsTrainAsOneRank) {
  struct Mix {
    int ranks, tp, pp;
    Sharding shard;
    const char* schedule = "1f1b";
  };
  for (const Mix& m :
       {Mix{1, 1, 1, Sharding::none}, Mix{2, 1, 1, Sharding::zero1}, Mix{2, 2, 1, Sharding::none},
        Mix{2, 1, 2, Sharding::none}, Mix{2, 1, 2, Sharding::none, "zb-v"},
        Mix{4, 2, 2, Sharding::none}, Mix{4, 1, 2, Sharding::fsdp},
        Mix{4, 1, 2, Sharding::zero2, "dualpipe-v"}, Mix{8, 2, 2, Sharding::zero3, "zb-h1"}}) {
    SCOPED_TRACE(testing::Message()
                 << m.ranks << " ranks, tp " << m.tp << ", pp " << m.pp << " " << m.schedule);
    Options o = tiny(true);
    o.tp = m.tp;
    o.pp = m.pp;
    o.shard = m.shard;
    o.schedule = m.schedule;
    o.sequence = m.tp > 1;
    o.micro_batches = m.pp > 1 ? 2 : 1;
    expect_equals_one_rank(m.ranks, o);
  }
}

TEST(Mixes, ScheduledBackwardsInTwoPartsTrainAsOneRank) {
  for (const Sharding shard : {Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::fsdp}) {
    for (const char* const schedule : {"zb-h1", "zb-v"}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(shard) << " " << schedule);
      Options o = tiny();
      o.shard = shard;
      o.tp = o.pp = 2;
      o.schedule = schedule;
      o.micro_batches = 4;
      expect_equals_one_rank(shard == Sharding::none ? 4 : 8, o);
    }
  }
}

TEST(Mixes, OfAllKindsTrainAsOneRank) {
  for (const Sharding shard :
       {Sharding::none, Sharding::zero1, Sharding::zero2, Sharding::zero3, Sharding::fsdp}) {
    for (const bool sequence : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(shard) << sequence);
      Options o = tiny();
      o.shard = shard;
      o.tp = o.pp = 2;
      o.sequence = sequence;
      o.micro_batches = 2;
      expect_equals_one_rank(8, o);
    }
  }
  Options o = tiny();
  o.shard = Sharding::fsdp;
  o.replicas = 2;
  o.tp = 2;
  o.recompute = true;
  expect_equals_one_rank(8, o);
}

TEST(Mixes, ThatCannotBeSayWhy) {
  const auto why = [](int ranks, const std::function<void(Options&)>& change) {
    Options o = tiny();
    change(o);
    return std::string(tutti::test::error_of([&] { o.fit(ranks); }).what());
  };
  EXPECT_NE(why(4, [](Options& o) { o.tp = 3; }).find("are 3 ranks, and there are 4"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.replicas = 2; }).find("--replicas without --shard"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.cp = 3; }).find("cp 3 x ep 1 of 4 dp ranks"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.ep = 2; }).find("0 experts among 2 ep ranks"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.tp = 2, o.shape.experts = 4; }).find("use --ep"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.cp = 4, o.shape.length = 6; }).find("6 among 4 cp ranks"),
            std::string::npos);
  EXPECT_NE(why(3, [](Options&) {}).find("8 sequences among dp 3"), std::string::npos);
  EXPECT_NE(why(8, [](Options& o) { o.tp = 8; }).find("4 heads among 8"), std::string::npos);
  // Products and numbers that are none.
  EXPECT_NE(why(4, [](Options& o) { o.tp = o.pp = 65'536; }).find("are 4294967296 ranks"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.tp = 2'000'000'000; }).find("--tp 2000000000 is more than"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.threads = 100'000; }).find("--threads 100000 is more than"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.rate = std::nan(""); }).find("--rate nan"),
            std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.clip = -1; }).find("--clip -1"), std::string::npos);
  EXPECT_NE(why(4, [](Options& o) { o.shape.layers = 2'000'000'000; }).find("every size"),
            std::string::npos);
}

}  // namespace
}  // namespace train
