// The cases of invariant bits (invariant_cases.h) as one rank that is a process, started by
// `tutti run`: --long has more of them, --all-types those of every type. Exits with 1 when a result
// has other bits than the canonical expression.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string_view>

#include "tests/comm/invariant_cases.h"

int main(int argc, char** argv) {
  using namespace tutti;
  try {
    Options options;
    options.invariant = true;
    Communicator c = Communicator::from_environment(options);
    test::InvariantCases cases;
    cases.counts = {1, 7, 1000, 20'011, 150'001};
    const std::string_view how = argc > 1 ? argv[1] : "";
    const bool is_long = how == "--long";
    if (is_long) cases.counts.insert(cases.counts.end(), {1'000'003, std::size_t{4} << 20});
    if (!is_long && how != "--all-types") {
      cases.types = {DataType::bfloat16, DataType::float32, DataType::float8_e4m3};
    }
    std::uint64_t made = 0, wrong = 0;
    for (const bool window : {false, true}) {
      cases.window = window;
      const test::InvariantTally tally = run_invariant_cases(c, cases);
      made += tally.cases;
      wrong += tally.wrong;
      if (tally.wrong > 0) fmt::print(stderr, "{}\n", tally.first);
    }
    c.all_reduce(&wrong, &wrong, 1, DataType::uint64);
    if (c.rank() == 0) fmt::print("{} ranks: {} cases, {} wrong\n", c.size(), made, wrong);
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
