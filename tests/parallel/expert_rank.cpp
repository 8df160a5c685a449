// A rank that trains a layer of experts, for process ranks: compares with one rank, in several
// mixtures of axes.
#include <fmt/format.h>

#include <algorithm>

#include "tests/parallel/expert_model.h"

int main() {
  using tutti::test::MoeCase;
  auto comm = tutti::Communicator::from_environment();
  double worst = 0;
  for (const MoeCase& c :
       {MoeCase{.top_k = 1}, MoeCase{.top_k = 2, .overlap = false},
        MoeCase{.top_k = 2, .favour = 60}, MoeCase{.top_k = 2, .capacity_factor = 0.75},
        MoeCase{.top_k = 2, .data = MoeCase::Data::replicated, .ep = 2},
        MoeCase{.top_k = 2, .data = MoeCase::Data::sharded, .ep = 2}}) {
    const auto expected = tutti::test::train_moe_alone(c, static_cast<std::size_t>(comm.size()));
    const auto got = tutti::test::train_moe(comm, c);
    worst = std::max(worst, tutti::test::difference(got, expected));
    if (tutti::test::train_moe(comm, c) != got) return fmt::print("other bits\n"), 1;
  }
  if (comm.rank() == 0) fmt::print("{} ranks: {:.1e}\n", comm.size(), worst);
  return worst <= 1e-10 ? 0 : 1;
}
