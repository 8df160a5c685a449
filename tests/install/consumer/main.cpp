// A user's program, built against an installed Tutti: two ranks, which are threads, add.
#include <tutti/tutti.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

int main() {
  auto ranks = tutti::Communicator::create_local(2);
  std::array<std::vector<std::int32_t>, 2> data;
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 1000; ++i) data[r].push_back(i + 1000 * r);
    threads.emplace_back([&comm = ranks[r], &x = data[r]] { comm.all_reduce(x); });
  }
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < 1000; ++i) {
    if (data[0][i] == 2 * i + 1000 && data[1][i] == 2 * i + 1000) continue;
    std::fprintf(stderr, "element %d: %d and %d, not %d\n", i, data[0][i], data[1][i],
                 2 * i + 1000);
    return 1;
  }
  std::puts("1000 sums are right on both ranks");
}
