// What bench/start.py starts. It takes the time of the launch (of the steady clock, in seconds),
// and rank 0 prints when the communicator was made, when a first all_reduce and a barrier were
// done, and what all ranks had used by then.
#include <fmt/format.h>
#include <sys/resource.h>
#include <tutti/tutti.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

double seconds(timeval time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// CPU seconds of this process so far, and its context switches.
std::array<double, 2> used() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime),
          static_cast<double>(usage.ru_nvcsw + usage.ru_nivcsw)};
}

}  // namespace

int main(int argc, char** argv) {
  const double launched = argc > 1 ? std::strtod(argv[1], nullptr) : 0;
  const auto since_launch = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
               .count() -
           launched;
  };
  try {
    auto comm = tutti::Communicator::from_environment();
    const double created = since_launch();
    float one = 1;
    comm.all_reduce(&one, &one, 1, tutti::DataType::float32);
    comm.barrier();
    const double called = since_launch();
    auto all = used();
    comm.all_reduce(all);
    if (comm.rank() == 0) {
      fmt::print("created {:.3f} called {:.3f} cpu {:.2f} switches {:.0f}\n", created, called,
                 all[0], all[1]);
    }
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "start_rank: {}\n", error.what());
    return 1;
  }
}
