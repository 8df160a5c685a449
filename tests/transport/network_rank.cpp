// One rank that calls all_reduce on so many bytes for so many seconds, checks each result, and says
// what it does: "READY", "RIGHT calls", "ERROR code rank seconds text". With `window`, on memory
// that RDMA devices reach. With `broadcast`, what rank 0 has goes to the others instead.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti.h"

int main(int argc, char** argv) {
  using namespace tutti;
  using Clock = std::chrono::steady_clock;
  const bool window = argc == 4 && std::string_view(argv[3]) == "window";
  const bool broadcast = argc == 4 && std::string_view(argv[3]) == "broadcast";
  if (argc != 3 && !window && !broadcast) return 2;
  const std::size_t count = std::strtoull(argv[1], nullptr, 10) / sizeof(std::uint32_t);
  const double seconds = std::atof(argv[2]);
  const auto say = [](const std::string& text) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  };
  try {
    Communicator comm = Communicator::from_environment();
    const auto n = static_cast<std::uint32_t>(comm.size());
    std::vector<std::uint32_t> heap(window ? 0 : 2 * count);
    std::vector<std::uint32_t, Allocator<std::uint32_t>> windows(window ? 2 * count : 0);
    const auto both = window ? std::span(windows) : std::span(heap);
    const auto in = both.first(count), out = both.last(count);
    say("READY");
    const auto begun = Clock::now();
    std::uint32_t calls = 0;
    std::uint32_t go_on = 1;
    while (go_on != 0) {
      for (std::size_t i = 0; i < count; ++i) {
        in[i] = static_cast<std::uint32_t>(i) * 7 + calls + static_cast<std::uint32_t>(comm.rank());
      }
      if (broadcast) {
        comm.broadcast(in.data(), out.data(), count, DataType::uint32, 0);
      } else {
        comm.all_reduce(in.data(), out.data(), count, DataType::uint32);
      }
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t of_rank_0 = static_cast<std::uint32_t>(i) * 7 + calls;
        const std::uint32_t expected = broadcast ? of_rank_0 : n * of_rank_0 + n * (n - 1) / 2;
        if (out[i] == expected) continue;
        say(fmt::format("WRONG call {} element {}: {} instead of {}", calls, i, out[i], expected));
        return 1;
      }
      ++calls;
      const std::uint32_t mine = Clock::now() - begun < std::chrono::duration<double>(seconds);
      comm.all_reduce(&mine, &go_on, 1, DataType::uint32, ReduceKind::min);
    }
    say(fmt::format("RIGHT {}", calls));
    return 0;
  } catch (const Error& e) {
    const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    say(fmt::format("ERROR {} {} {:.3f} {}", name(e.code()), e.rank(), now, e.what()));
    return 3;
  }
}
