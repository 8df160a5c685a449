// Ranks that share sequences, and ranks that divide experts, train what one rank trains: the same
// losses and norms of gradients, in mixes with all other kinds. Ranks are threads.
#include <gtest/gtest.h>

#include "tests/bindings/torch/mixes.h"
#include "tests/support/thread_ranks.h"

namespace train {
namespace {

/// Losses and norms of a mix, and those of one rank with the same model.
void expect_losses_of_one_rank(int ranks, const Options& o, Options alone) {
  const auto losses_of = [](int count, const Options& options) {
    std::vector<Trained> results(static_cast<std::size_t>(count));
    tutti::test::run_thread_ranks(count, [&](tutti::Communicator& world) {
      results[static_cast<std::size_t>(world.rank())] = by_rank(world, options);
    });
    return results;
  };
  alone.shape = o.shape;
  alone.balance = o.balance;
  const Trained expected = losses_of(1, alone)[0];
  for (const Trained& result : losses_of(ranks, o)) {
    for (std::size_t i = 0; i < kSteps; ++i) {
      EXPECT_NEAR(result.losses[i], expected.losses[i], 1e-12) << "step " << i;
      EXPECT_NEAR(result.norms[i], expected.norms[i], 1e-12) << "step " << i;
    }
  }
}

TEST(Mixes, RanksThatShareSequencesTrainAsOneRank) {
  struct Mix {
    int ranks, cp, cp_heads;
    Sharding shard = Sharding::none;
    int tp = 1, pp = 1;
    bool sequence = false;
  };
  for (const Mix& m : {Mix{2, 2, 1}, Mix{2, 2, 2}, Mix{4, 4, 2}, Mix{4, 2, 1, Sharding::fsdp},
                       Mix{4, 2, 2, Sharding::zero2}, Mix{4, 2, 1, Sharding::none, 2, 1, true},
                       Mix{4, 2, 2, Sharding::zero3, 2}, Mix{4, 2, 1, Sharding::none, 1, 2}}) {
    SCOPED_TRACE(testing::Message() << m.ranks << " ranks, cp " << m.cp << ", by heads "
                                    << m.cp_heads << ", tp " << m.tp << ", pp " << m.pp);
    Options o = tiny();
    o.cp = m.cp;
    o.cp_heads = m.cp_heads;
    o.shard = m.shard;
    o.tp = m.tp;
    o.pp = m.pp;
    o.sequence = m.sequence;
    o.micro_batches = m.pp > 1 ? 2 : 1;
    o.recompute = m.shard == Sharding::fsdp;
    expect_losses_of_one_rank(m.ranks, o, tiny());
  }
}

TEST(Mixes, RanksThatDivideExpertsTrainAsOneRank) {
  struct Mix {
    int ranks, ep;
    Sharding shard = Sharding::none;
    int cp = 1, pp = 1, replicas = 1;
    bool recompute = false;
    const char* schedule = "1f1b";
  };
  for (const Mix& m :
       {Mix{2, 1}, Mix{2, 2}, Mix{4, 2}, Mix{4, 4}, Mix{4, 2, Sharding::fsdp},
        Mix{4, 1, Sharding::zero3}, Mix{2, 2, Sharding::zero1}, Mix{4, 2, Sharding::none, 2},
        Mix{8, 2, Sharding::fsdp, 1, 1, 2}, Mix{4, 2, Sharding::none, 1, 2},
        Mix{4, 2, Sharding::none, 1, 2, 1, false, "zb-h1"},
        Mix{4, 2, Sharding::none, 1, 1, 1, true}, Mix{4, 2, Sharding::fsdp, 1, 1, 1, true}}) {
    SCOPED_TRACE(testing::Message() << m.ranks << " ranks, ep " << m.ep << ", shard "
                                    << static_cast<int>(m.shard) << ", cp " << m.cp << ", pp "
                                    << m.pp << " " << m.schedule << ", recompute " << m.recompute);
    Options o = tiny();
    o.shape.experts = 4;
    o.shape.layers = 2;
    o.ep = m.ep;
    o.cp = m.cp;
    o.pp = m.pp;
    o.shard = m.shard;
    o.replicas = m.replicas;
    o.recompute = m.recompute;
    o.schedule = m.schedule;
    // A loss of the balance is that of a micro-batch: one rank has other ones.
    o.micro_batches = m.pp > 1 ? 2 : 1;
    o.balance = m.pp > 1 ? 0 : 0.1;
    expect_losses_of_one_rank(m.ranks, o, tiny());
  }
}

}  // namespace
}  // namespace train
