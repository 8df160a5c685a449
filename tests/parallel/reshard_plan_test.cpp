// The plans of random reshards: that they are right, by a judge that carries them out element by
// element; that the verifier proves them; and that it refuses mutants that are wrong, and no
// others.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <random>
#include <utility>

#include "parallel/reshard/verify.h"
#include "tests/parallel/reshard_cases.h"

namespace tutti::parallel::reshard::test {
namespace {

constexpr std::uint64_t kCases = 1000;

/// The cases of the first test; the long run has more.
std::uint64_t pairs() {
  const char* const many = std::getenv("TUTTI_TEST_PAIRS");
  return many == nullptr ? kCases : std::strtoull(many, nullptr, 10);
}

TEST(ReshardPlan, EveryRandomPairIsProvedAndRight) {
  std::uint64_t relays = 0, far = 0;
  for (std::uint64_t seed = 0; seed < pairs(); ++seed) {
    const Case c = random_case(seed);
    ASSERT_NO_THROW(c.from.check(Side::from)) << seed;
    ASSERT_NO_THROW(c.to.check(Side::to)) << seed;
    const Plan plan = make_plan(c.from, c.to, c.options);
    const Verdict verdict = verify(c.from, c.to, plan);
    ASSERT_TRUE(verdict.proved) << seed << ": " << verdict.story;
    ASSERT_EQ(judge(c.from, c.to, plan), "") << seed;
    ASSERT_GE(verdict.loads.most(), verdict.bound) << seed << ": it is no bound";
    // Further pairs have some of a few bytes, where an element more is more than 5 %.
    ASSERT_LE(static_cast<double>(verdict.loads.most()),
              1.05 * static_cast<double>(verdict.bound) + (seed < kCases ? 0 : 64))
        << seed;
    relays += static_cast<std::uint64_t>(std::ranges::count_if(plan.moves, &Move::relay));
    far += verdict.loads.total() > 0 ? 1 : 0;
  }
  EXPECT_GT(relays, kCases);
  EXPECT_GT(far, kCases / 4);
}

// --- Mutants
// ---------------------------------------------------------------------------------------

using Random = std::mt19937_64;

Move& random_move(Plan& plan, Random& random) { return plan.moves[random() % plan.moves.size()]; }

/// Takes away a move of some message, or makes it stand twice.
void change_count(Plan& plan, Random& random, bool twice) {
  const std::size_t i = random() % plan.messages.size();
  Message& m = plan.messages[i];
  const auto n = plan.moves.begin() + static_cast<std::ptrdiff_t>(m.begin + random() % m.count);
  const std::uint64_t bytes = m.bytes / m.count;  // right where its moves are equally large
  if (twice) {
    plan.moves.insert(n, Move(*n));
    ++m.count;
    m.bytes += bytes;
  } else {
    plan.moves.erase(n);
    m.bytes -= bytes;
    if (--m.count == 0) plan.messages.erase(plan.messages.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::uint64_t next = 0;
  for (Message& each : plan.messages) {
    each.begin = next;
    next += each.count;
  }
  for (const Message& each : plan.messages) plan.most_bytes = std::max(plan.most_bytes, each.bytes);
}

void change_end(Move& move, Random& random) {
  if (move.box.dimensions() == 0) return;
  Range& range = move.box[random() % move.box.dimensions()];
  std::uint64_t& end = random() % 2 == 0 ? range.begin : range.end;
  end += random() % 2 == 0 ? 1 : std::uint64_t{0} - 1;
}

/// The same elements from another piece of the sender, or to another one of the receiver.
void change_piece(Plan& plan, const Case& c, Random& random, bool source) {
  Move& move = random_move(plan, random);
  const TensorLayout& tensor =
      source && !move.relay ? c.from.tensors[plan.tensors[move.tensor]] : c.to.tensors[move.tensor];
  (source ? move.source : move.target) =
      static_cast<std::uint32_t>(random() % tensor.pieces.size());
}

void mutate(Plan& plan, const Case& c, Random& random) {
  std::vector<Message>& messages = plan.messages;
  Message& message = messages[random() % messages.size()];
  switch (random() % 12) {
    case 0:
      return change_end(random_move(plan, random), random);
    case 1:
      return change_count(plan, random, false);
    case 2:
      return change_count(plan, random, true);
    case 3:
      return change_piece(plan, c, random, true);
    case 4:
      return change_piece(plan, c, random, false);
    case 5: {
      Move& move = random_move(plan, random);
      move.relay = !move.relay;
      return;
    }
    case 6:
      message.from = static_cast<int>(random() % static_cast<std::uint64_t>(c.to.ranks));
      return;
    case 7:
      message.to = static_cast<int>(random() % static_cast<std::uint64_t>(c.to.ranks));
      return;
    case 8: {  // another order, which relays may forbid
      const std::size_t a = random() % messages.size(), b = random() % messages.size();
      std::vector<Move> moves;
      std::swap(messages[a], messages[b]);
      for (Message& m : messages) {
        const auto of = plan.moves_of(m);
        m.begin = moves.size();
        moves.insert(moves.end(), of.begin(), of.end());
      }
      plan.moves = std::move(moves);
      return;
    }
    case 9:
      message.bytes += random() % 3;
      return;
    case 10: {  // two moves change their messages
      Move &a = random_move(plan, random), &b = random_move(plan, random);
      return std::swap(a, b);
    }
    default: {
      Move& move = random_move(plan, random);
      move.tensor = static_cast<std::uint32_t>(random() % (c.to.tensors.size() + 1));
      return;
    }
  }
}

TEST(ReshardPlan, TheVerifierRefusesTheMutantsThatAreWrongAndNoOthers) {
  std::uint64_t wrong = 0, right = 0;
  for (std::uint64_t seed = 0; wrong < 3000; ++seed) {
    const Case c = random_case(seed % kCases);
    Plan plan = make_plan(c.from, c.to, c.options);
    if (plan.messages.empty()) continue;
    Random random(seed);
    for (int i = 0; i < 4; ++i) {
      Plan mutant = plan;
      mutate(mutant, c, random);
      const Verdict verdict = verify(c.from, c.to, mutant);
      const std::string verdict_of_judge = judge(c.from, c.to, mutant);
      ASSERT_EQ(verdict.proved, verdict_of_judge.empty())
          << seed << "." << i << ": the verifier says '" << verdict.story << "', the judge '"
          << verdict_of_judge << "'";
      ++(verdict.proved ? right : wrong);
    }
  }
  EXPECT_GT(right, 100u);
  RecordProperty("wrong", static_cast<int>(wrong));
  RecordProperty("right", static_cast<int>(right));
}

TEST(ReshardPlan, TheVerifierRefusesAHostThatSendsMoreThanItsShare) {
  // Two hosts hold all of a tensor, and a third needs it: each of the two sends half of it.
  Layout from(3), to(3);
  const Tensor tensor{"w", DataType::float32, {1 << 16}};
  const int holders[] = {0, 1}, needer[] = {2};
  add_replicated(from, tensor, holders);
  add_replicated(to, tensor, needer);
  Plan plan = make_plan(from, to, {.hosts = {0, 1, 2}});
  EXPECT_EQ(link_loads(plan).sent[0], link_loads(plan).sent[1]);
  EXPECT_EQ(verify(from, to, plan).bound, tensor.elements() * 4);
  // Two such tensors to two hosts: one host alone would send twice what a link has to carry.
  const int needers[] = {2, 3};
  from.ranks = to.ranks = 4;
  to.tensors.clear();
  add_replicated(to, tensor, needers);
  plan = make_plan(from, to, {.hosts = {0, 1, 2, 3}});
  ASSERT_TRUE(verify(from, to, plan).proved);
  for (Message& m : plan.messages) {
    if (plan.moves[m.begin].relay) continue;
    m.from = 0;
    for (std::uint64_t n = m.begin; n < m.begin + m.count; ++n) plan.moves[n].source = 0;
  }
  EXPECT_EQ(judge(from, to, plan), "");
  const Verdict verdict = verify(from, to, plan);
  EXPECT_FALSE(verdict.proved);
  EXPECT_EQ(verdict.story, "the busiest link carries 524288 bytes, and 262144 would do");
  EXPECT_NO_THROW(require_proof(from, to, plan));  // it is right all the same
}

}  // namespace
}  // namespace tutti::parallel::reshard::test
