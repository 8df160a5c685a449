// Ranks that go on when others die (docs/failures.md). They make ten steps; in the fourth the ranks
// that the arguments name kill themselves.
//
//     tutti run -n 4 --keep-going build/examples/survive 2
#include <tutti/tutti.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) try {
  auto comm = tutti::Communicator::from_environment();
  const int name = comm.rank();  // a rank's number changes when the communicator shrinks
  std::vector<int> lost;         // ranks of comm
  int step = 0;
  int sum = 0;
  while (step < 10) {
    try {
      if (!lost.empty()) {
        comm = comm.shrink(lost);
        lost.clear();
        // The call that failed may have ended on some ranks: all go on from the earliest step.
        comm.all_reduce(&step, &step, 1, tutti::DataType::int32, tutti::ReduceKind::min);
      }
      for (int i = 1; i < argc; ++i) {
        if (step == 3 && std::atoi(argv[i]) == name) std::raise(SIGKILL);
      }
      sum = 1000 * step + name;
      comm.all_reduce(&sum, &sum, 1, tutti::DataType::int32);
      ++step;
    } catch (const tutti::Error& error) {
      if (error.code() != tutti::ErrorCode::peer_lost) throw;
      std::printf("rank %d goes on: %s\n", name, error.what());
      lost.push_back(error.rank());
    }
  }
  std::printf("rank %d is %d of %d now: the last sum is %d\n", name, comm.rank(), comm.size(), sum);
} catch (const tutti::Error& error) {
  std::fprintf(stderr, "survive: %s\n", error.what());
  return 1;
}
