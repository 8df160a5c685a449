// mpi_cases [NAME...]: one rank of a job; runs the cases with these names, or all.
#include "tests/bindings/mpi/cases/cases.h"

#include <algorithm>
#include <string_view>

namespace tutti::test {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

}  // namespace tutti::test

int main(int argc, char** argv) {
  using namespace tutti::test;
  int level = -1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  EXPECT(level == MPI_THREAD_MULTIPLE);
  std::ranges::sort(cases(), {}, [](const Case& c) { return std::string_view(c.name); });
  int ran = 0;
  for (const Case& c : cases()) {
    const auto is_it = [&](const char* wanted) { return std::string_view(wanted) == c.name; };
    if (argc > 1 && std::none_of(argv + 1, argv + argc, is_it)) continue;
    ++ran;
    MPI_Barrier(MPI_COMM_WORLD);
    c.run();
    // Nothing may be left over.
    int flag = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (flag != 0) std::printf("%s leaves a message\n", c.name);
    EXPECT(flag == 0);
  }
  if (rank() == 0) std::printf("%d cases passed\n", ran);
  EXPECT(ran > 0);
  MPI_Finalize();
  return 0;
}
