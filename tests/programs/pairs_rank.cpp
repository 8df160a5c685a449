// One rank that exchanges COUNT numbers with every other one, so that every pair connects, and says
// what it does: "READY", "RIGHT", "ERROR code rank text". Rank r begins after DELAYS[r] seconds:
//
//     pairs_rank DELAYS [COUNT]        0,0,2.5 1000
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tutti.h"

int main(int argc, char** argv) {
  using namespace tutti;
  if (argc != 2 && argc != 3) return 2;
  const std::size_t count = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const auto say = [](const std::string& text) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  };
  try {
    Communicator comm = Communicator::from_environment();
    const auto size = static_cast<std::size_t>(comm.size());
    std::vector<double> delays;
    std::istringstream list(argv[1]);
    for (std::string delay; std::getline(list, delay, ',');) {
      delays.push_back(std::atof(delay.c_str()));
    }
    delays.resize(size);
    say("READY");
    const double delay = delays[static_cast<std::size_t>(comm.rank())];
    std::this_thread::sleep_for(std::chrono::duration<double>(delay));
    std::vector<int> out(size * count), in(size * count, -1);
    group([&] {
      for (int peer = 0; peer < comm.size(); ++peer) {
        if (peer == comm.rank()) continue;
        const auto p = static_cast<std::size_t>(peer);
        for (std::size_t i = 0; i < count; ++i) {
          out[p * count + i] = 1000 * comm.rank() + peer + 7 * static_cast<int>(i);
        }
        comm.send(&out[p * count], count, DataType::int32, peer);
        comm.recv(&in[p * count], count, DataType::int32, peer);
      }
    });
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (std::size_t i = 0; i < count && peer != comm.rank(); ++i) {
        const int got = in[static_cast<std::size_t>(peer) * count + i];
        if (got == 1000 * peer + comm.rank() + 7 * static_cast<int>(i)) continue;
        say(fmt::format("WRONG {} from rank {}", got, peer));
        return 1;
      }
    }
    comm.barrier();
    say("RIGHT");
    return 0;
  } catch (const Error& e) {
    say(fmt::format("ERROR {} {} {}", name(e.code()), e.rank(), e.what()));
    return 3;
  }
}
