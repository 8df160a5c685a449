#include <tutti/tutti.h>

#include <cstdio>
#include <vector>

int main() {
  try {
    auto comm = tutti::Communicator::from_environment();
    // Vectors with this allocator are visible to the other ranks: nothing is copied in between.
    std::vector<float, tutti::Allocator<float>> x(1 << 20, 1.0f + comm.rank());
    comm.all_reduce(x);
    std::printf("rank %d of %d: the sum is %g\n", comm.rank(), comm.size(), x.back());
  } catch (const tutti::Error& error) {  // the text says what happened, where, and what to do
    std::fprintf(stderr, "hello: %s\n", error.what());
    return 1;
  }
}
