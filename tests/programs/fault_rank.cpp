// A rank that runs collectives without end, for tests that kill one of them. On an error it prints
// "ERROR code culprit text" and exits with 3. Arguments: a seed; "idle": asks for errors instead.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/memory.h"

int main(int argc, char** argv) {
  using namespace tutti;
  // The same sequence on all ranks.
  std::mt19937 random(argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1U);
  constexpr std::size_t kMost = std::size_t{1} << 20;
  try {
    Communicator comm = Communicator::from_environment();
    const auto n = static_cast<std::size_t>(comm.size());
    std::vector<float> plain_in(kMost), plain_out(kMost);
    std::vector<float, Allocator<float>> window_in(kMost), window_out(kMost);
    fmt::print("READY\n");
    std::fflush(stdout);
    if (argc > 2 && argv[2] == std::string_view("idle")) {
      for (;;) {
        if (const std::optional<Error> error = comm.error()) throw *error;
        usleep(1000);
      }
    }
    for (;;) {
      const bool window = random() % 2 == 0;
      const float* in = window ? window_in.data() : plain_in.data();
      float* out = window ? window_out.data() : plain_out.data();
      const std::size_t count = (std::size_t{1} << (random() % 18)) + random() % 7;
      const int root = static_cast<int>(random() % n);
      switch (random() % 8) {
        case 0:
          comm.all_reduce(in, out, count, DataType::float32);
          break;
        case 1:
          comm.all_gather(in, out, count / n, DataType::float32);
          break;
        case 2:
          comm.reduce_scatter(in, out, count / n, DataType::float32);
          break;
        case 3:
          comm.broadcast(in, out, count, DataType::float32, root);
          break;
        case 4:
          comm.reduce(in, out, count, DataType::float32, {}, root);
          break;
        case 5:
          comm.all_to_all(in, out, count / n, DataType::float32);
          break;
        case 6:
          comm.barrier();
          break;
        default:
          group([&] {
            comm.send(in, count, DataType::float32, static_cast<int>((comm.rank() + 1U) % n));
            comm.recv(out, count, DataType::float32, static_cast<int>((comm.rank() + n - 1) % n));
          });
      }
    }
  } catch (const Error& e) {
    fmt::print("ERROR {} {} {}\n", name(e.code()), e.rank(), e.what());
    std::fflush(stdout);
    return 3;
  }
}
