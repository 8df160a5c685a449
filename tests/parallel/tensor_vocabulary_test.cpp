// A vocabulary that ranks share: the embedding and the cross-entropy are those of one rank, carry
// what they say, and refuse tokens that there are not, by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/convert.h"
#include "core/error.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/comm/matrix_reference.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::tensor {
namespace {

using test::difference;
using test::error_of;
using test::Matrix;
using test::run_thread_ranks;

constexpr DataType kTableType = DataType::float64;
constexpr double kNear = 1e-12;
constexpr std::size_t kTokens = 29, kWidth = 6, kCount = 16;  // 29: no number of ranks divides it

std::vector<Token> tokens() {
  std::vector<Token> ids;
  for (std::size_t i = 0; i < kCount; ++i) ids.push_back(static_cast<Token>(i * i * 5 % kTokens));
  ids[3] = ids[9];  // twice
  ids[4] = kTokens - 1;
  return ids;
}

/// The rank's rows of a matrix of a row for each token, those of the padding of `rest`.
Matrix local_rows(const Matrix& all, const Vocabulary& v, double rest) {
  Matrix m(v.local, all.columns);
  for (std::size_t r = 0; r < v.local; ++r) {
    for (std::size_t c = 0; c < all.columns; ++c) {
      m(r, c) = v.begin + r < all.rows ? all(v.begin + r, c) : rest;
    }
  }
  return m;
}

TEST(Vocabularies, ArePaddedToEqualParts) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    struct Case {
      std::size_t tokens, multiple, local;
    };
    for (const Case& c : {Case{29, 1, 8}, Case{32, 1, 8}, Case{33, 1, 9}, Case{29, 128, 128},
                          Case{50257, 128, 12672}, Case{1, 2, 2}}) {
      const Vocabulary v(c.tokens, axis, c.multiple);
      EXPECT_EQ(v.local, c.local);
      EXPECT_EQ(v.padded, 4 * c.local);
      EXPECT_EQ(v.begin, c.local * static_cast<std::size_t>(comm.rank()));
      std::uint64_t all = v.real();
      comm.all_reduce(&all, &all, 1, DataType::uint64);
      EXPECT_EQ(all, c.tokens);
    }
    EXPECT_EQ(error_of([&] { Vocabulary(5, axis, 0); }).code(), ErrorCode::invalid_argument);
  });
}

TEST(VocabularyEmbeddings, AreThoseOfOneRank) {
  const std::vector<Token> ids = tokens();
  const Matrix weight(kTokens, kWidth, 1), dout(kCount, kWidth, 2);
  Matrix out(kCount, kWidth), dweight(kTokens, kWidth);
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t c = 0; c < kWidth; ++c) {
      out(i, c) = weight(static_cast<std::size_t>(ids[i]), c);
      dweight(static_cast<std::size_t>(ids[i]), c) += dout(i, c);
    }
  }
  for (const int ranks : {1, 2, 4, 8}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const auto p = static_cast<std::uint64_t>(ranks);
      for (const bool sequence : {false, true}) {
        VocabularyEmbedding layer(axis, "tokens", kTokens, kWidth, kTableType,
                                  {.multiple = 2, .sequence = sequence});
        const Matrix mine = local_rows(weight, layer.vocabulary(), 1e9);
        ASSERT_EQ(mine.values.size(), layer.weight_count());
        const auto part = [&](const Matrix& m) {
          return sequence ? m.slice(comm.rank(), ranks) : m;
        };
        Matrix got(part(out).rows, kWidth), gradient(mine.rows, kWidth);
        axis.reset_traffic();
        layer.forward(ids, mine.data(), got.data());
        EXPECT_EQ(got, part(out));  // with zeros added: exact
        layer.backward(ids, part(dout).data(), gradient.data());
        EXPECT_EQ(gradient, local_rows(dweight, layer.vocabulary(), 0));
        const std::uint64_t once = (p - 1) * kCount * kWidth * 8 / p;
        using Count = Traffic::Count;
        const Traffic& t = axis.traffic();
        if (sequence) {
          EXPECT_EQ(t[Collective::reduce_scatter], (Count{1, once, once}));
          EXPECT_EQ(t[Collective::all_gather], (Count{1, once, once}));
        } else {
          EXPECT_EQ(t[Collective::all_reduce], (Count{1, 2 * once, 2 * once}));
        }
        EXPECT_EQ(t.total().calls, sequence ? 2u : 1u);
      }
    });
  }
}

/// Losses and gradient of `scale` times their sum, on one rank.
struct OneRank {
  OneRank(const Matrix& logits, const std::vector<Token>& targets, Token ignored, double scale)
      : loss(logits.rows, 1), gradient(logits.rows, logits.columns) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      if (targets[i] == ignored) continue;
      double most = -HUGE_VAL, sum = 0;
      for (std::size_t c = 0; c < logits.columns; ++c) most = std::max(most, logits(i, c));
      for (std::size_t c = 0; c < logits.columns; ++c) sum += std::exp(logits(i, c) - most);
      const auto target = static_cast<std::size_t>(targets[i]);
      loss(i, 0) = std::log(sum) - (logits(i, target) - most);
      for (std::size_t c = 0; c < logits.columns; ++c) {
        gradient(i, c) = scale * std::exp(logits(i, c) - most) / sum;
      }
      gradient(i, target) -= scale;
    }
  }
  Matrix loss, gradient;
};

TEST(VocabularyCrossEntropies, AreThoseOfOneRank) {
  for (const double size : {1.0, 1000.0}) {  // exponentials would overflow without the largest
    std::vector<Token> targets = tokens();
    targets[5] = targets[11] = -1;
    const Matrix logits = each(Matrix(kCount, kTokens, 3), [&](double v) { return v * size; });
    const OneRank one(logits, targets, -1, 0.25);
    for (const int ranks : {1, 2, 4, 8}) {
      run_thread_ranks(ranks, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        VocabularyCrossEntropy layer(axis, "loss", kTokens, kTableType, {.ignore_index = -1});
        const Vocabulary& v = layer.vocabulary();
        // What is in the padding counts for nothing.
        Matrix mine = transposed(local_rows(transposed(logits), v, 1e300));
        const Matrix expected = transposed(local_rows(transposed(one.gradient), v, 0));
        VocabularyCrossEntropy::Saved saved, again;
        axis.reset_traffic();
        layer.forward(mine.data(), targets, saved);
        const auto p = static_cast<std::uint64_t>(ranks);
        const std::uint64_t bytes = 2 * (p - 1) * kCount * 8 / p + 2 * (p - 1) * 2 * kCount * 8 / p;
        EXPECT_EQ(axis.traffic()[Collective::all_reduce], (Traffic::Count{2, bytes, bytes}));
        Matrix loss(kCount, 1);
        loss.values = saved.loss;
        EXPECT_LE(difference(loss, one.loss), kNear);
        EXPECT_EQ(saved.counted, kCount - 2);
        EXPECT_EQ(saved.loss[5], 0);
        EXPECT_NEAR(saved.mean() * (kCount - 2), sum_of_rows(one.loss)(0, 0), kNear * 1e4 * size);
        layer.forward(mine.data(), targets, again);
        EXPECT_EQ(saved.loss, again.loss);  // the same bits
        std::vector<double> first = saved.loss;
        comm.broadcast(first.data(), first.data(), first.size(), kTableType, 0);
        EXPECT_EQ(first, saved.loss);
        axis.reset_traffic();
        layer.backward(mine.data(), targets, saved, 0.25, mine.data());
        EXPECT_LE(difference(mine, expected), kNear * size);
        EXPECT_EQ(axis.traffic().total(), Traffic::Count{});
      });
    }
  }
}

TEST(VocabularyCrossEntropies, OfNarrowLogitsAreComputedInFloat64) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const DataType narrow = DataType::bfloat16;
    VocabularyCrossEntropy layer(axis, "loss", 4, narrow);
    // Logits are 0, 1, 2, 3, which bfloat16 has.
    const double first = 2.0 * comm.rank();
    const std::vector<double> values{first, first + 1};
    std::vector<std::uint16_t> logits(2), gradient(2);
    convert(values.data(), kTableType, logits.data(), narrow, 2);
    const std::vector<Token> targets{2};
    VocabularyCrossEntropy::Saved saved;
    layer.forward(logits.data(), targets, saved);
    const double sum = 1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
    EXPECT_NEAR(saved.loss[0], std::log(sum) - 2, 1e-15);
    layer.backward(logits.data(), targets, saved, 1, gradient.data());
    std::vector<double> got(2);
    convert(gradient.data(), narrow, got.data(), kTableType, 2);
    for (std::size_t j = 0; j < 2; ++j) {
      const bool is_target = comm.rank() == 1 && j == 0;
      const double exact = std::exp(values[j]) / sum - (is_target ? 1 : 0);
      EXPECT_NEAR(got[j], exact, std::abs(exact) / 256);
    }
  });
}

// What is not finite is so in the losses of all ranks.
TEST(VocabularyCrossEntropies, HideNothing) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    VocabularyCrossEntropy layer(axis, "loss", 9, kTableType);
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      Matrix logits(2, 3, comm.rank());
      if (comm.rank() == 1) logits(1, 2) = bad;
      const std::vector<Token> targets{0, 8};
      VocabularyCrossEntropy::Saved saved;
      layer.forward(logits.data(), targets, saved);
      EXPECT_TRUE(std::isfinite(saved.loss[0]));
      EXPECT_FALSE(std::isfinite(saved.loss[1]));
    }
  });
}

void expect_refused(const Error& e, ErrorCode code, const std::string& part) {
  EXPECT_EQ(e.code(), code) << e.what();
  EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
}

TEST(VocabularyErrors, NameTheTokenAndItsPlace) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    VocabularyEmbedding embedding(axis, "tokens", kTokens, kWidth, kTableType);
    const Matrix weight(embedding.vocabulary().local, kWidth, 1);
    Matrix out(kCount, kWidth), gradient(weight.rows, kWidth);
    // 29 to 31 are in the padding of the last rank: no tokens.
    for (const Token bad : {-1, 29, 31, 32, 1'000'000}) {
      std::vector<Token> ids = tokens();
      ids[7] = bad;
      const std::string says = fmt::format(
          "embedding 'tokens': token {} at position 7 is outside of the vocabulary, which has 29",
          bad);
      expect_refused(error_of([&] { embedding.forward(ids, weight.data(), out.data()); }),
                     ErrorCode::invalid_argument, says);
      expect_refused(error_of([&] { embedding.backward(ids, out.data(), gradient.data()); }),
                     ErrorCode::invalid_argument, says);
    }
    embedding.forward(tokens(), weight.data(), out.data());  // nothing was started
    VocabularyCrossEntropy loss(axis, "loss", kTokens, kTableType);
    const Matrix logits(2, loss.vocabulary().local, 1);
    VocabularyCrossEntropy::Saved saved;
    const std::vector<Token> bad{3, 29}, good{3, -100};
    expect_refused(error_of([&] { loss.forward(logits.data(), bad, saved); }),
                   ErrorCode::invalid_argument,
                   "cross entropy 'loss': target 29 at position 1 is outside of the vocabulary");
    loss.forward(logits.data(), good, saved);
    // What an earlier forward has saved is not that of one that was refused.
    EXPECT_EQ(error_of([&] { loss.forward(logits.data(), bad, saved); }).code(),
              ErrorCode::invalid_argument);
    Matrix dlogits(2, loss.vocabulary().local);
    expect_refused(error_of([&] { loss.backward(logits.data(), good, saved, 1, dlogits.data()); }),
                   ErrorCode::invalid_argument, "the forward had 0");
    VocabularyEmbedding sliced(axis, "tokens", kTokens, kWidth, kTableType, {.sequence = true});
    expect_refused(error_of([&] {
                     sliced.forward(std::vector<Token>{1, 2, 3}, weight.data(), out.data());
                   }),
                   ErrorCode::invalid_argument, "3 tokens of the sequence cannot be divided");
  });
}

TEST(VocabularyErrors, RanksThatDifferAreToldSo) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const bool odd = comm.rank() == 1;
    expect_refused(
        error_of([&] { VocabularyEmbedding(axis, "tokens", odd ? 30 : 29, kWidth, kTableType); }),
        ErrorCode::mismatch, "rank 1 has \"30 tokens");
    expect_refused(error_of([&] {
                     VocabularyCrossEntropy(axis, "loss", kTokens, kTableType,
                                            {.ignore_index = odd ? 0 : -100});
                   }),
                   ErrorCode::mismatch, "ignore_index 0");
    VocabularyCrossEntropy loss(axis, "loss", kTokens, kTableType);
    const Matrix logits(3, loss.vocabulary().local, 1);
    const std::vector<Token> targets(odd ? 3 : 2, 1);
    VocabularyCrossEntropy::Saved saved;
    expect_refused(error_of([&] { loss.forward(logits.data(), targets, saved); }),
                   ErrorCode::mismatch, "cross entropy 'loss', the largest logits");
  });
}

}  // namespace
}  // namespace tutti::parallel::tensor
