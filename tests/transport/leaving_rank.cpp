// One of two ranks. Rank 0 sends COUNT numbers to rank 1 and leaves the communicator as soon as it
// may, but its process stays, as one with other communicators does. Says "READY", "RIGHT", "ERROR
// code rank text":
//
//     leaving_rank COUNT
#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti.h"

int main(int argc, char** argv) {
  using namespace tutti;
  if (argc != 2) return 2;
  const std::size_t count = std::strtoull(argv[1], nullptr, 10);
  const auto say = [](const std::string& text) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  };
  try {
    std::optional<Communicator> comm = Communicator::from_environment();
    const Communicator other = comm->split(0, comm->rank());
    comm->barrier();
    say("READY");
    std::vector<int> numbers(count, -1);
    if (comm->rank() == 0) {
      for (std::size_t i = 0; i < count; ++i) numbers[i] = 7 * static_cast<int>(i) + 1;
      comm->send(numbers.data(), count, DataType::int32, 1);
      comm.reset();
      std::this_thread::sleep_for(std::chrono::seconds(4));
    } else {
      comm->recv(numbers.data(), count, DataType::int32, 0);
      for (std::size_t i = 0; i < count; ++i) {
        if (numbers[i] == 7 * static_cast<int>(i) + 1) continue;
        say(fmt::format("WRONG element {}: {}", i, numbers[i]));
        return 1;
      }
    }
    say("RIGHT");
    return 0;
  } catch (const Error& e) {
    say(fmt::format("ERROR {} {} {}", name(e.code()), e.rank(), e.what()));
    return 3;
  }
}
